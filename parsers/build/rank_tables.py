"""Makes the tables of a job from the tables of its ranks.

Each rank is a run directory of its own. Their tables are read one after the other, so that no more
than those of one rank, and the collectives of all, are in memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, count, records, text
from nsight_prof.parsers.errors import ProfError, StepFailed
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.ranks.times import (
    COLLECTIVE,
    COLLECTIVES,
    FEWEST_BINS,
    MOST_BINS,
    MOST_OF_ALL,
    RankTimes,
)
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE, roofs_table
from nsight_prof.parsers.roofs.comm import TABLE as COMM_ROOFS
from nsight_prof.parsers.run.directory import Manifest, RankRecord, RunDir, read_manifest
from nsight_prof.parsers.run.sentences import made_of, stored
from nsight_prof.parsers.run.sentences_file import write_sentences

RANKS, RANK_KERNELS, RANK_COUNTERS = "ranks", "rank_kernels", "rank_counters"
RANK_STAGES, RANK_BINS = "rank_stages", "rank_bins"
RANK_TIMES, RANK_COLLECTIVES, RANK_STEPS = "rank_times", "rank_collectives", "rank_steps"
READ_ONCE = ("kernels", "gpu_stages", "devices")
"""Tables of a rank that several tables of the job are made of."""
SMS_ACTIVE, TENSOR = "SMs Active", "Tensor Active"
DRAM = ("DRAM Read Bandwidth", "DRAM Write Bandwidth")
"""Metrics as nsys 2025.3.1 calls them on a GH100."""
TIMES = ("launches", "wall_ns", "gpu_busy_ns", "idle_ns", "kernel_ns", "memory_ns")


def build_rank_tables(job: RunDir, problems: Mapping[int, str] = MappingProxyType({})) -> None:
    """Write `tables/` of a job from those of its ranks, which are there already.

    A rank without readable tables has a row that says so (`problem`); `problems` are why those of
    some ranks could not be made.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: its file of communication roofs cannot be read.
        StepFailed: the tables cannot be written.
    """
    roofs = roofs_table(job.path / COMM_ROOFS_FILE)
    rows: list[dict[str, Any]] = []
    counted: list[dict[str, Any]] = []
    stages: list[pd.DataFrame] = [tables.empty(RANK_STAGES)]
    manifest = read_manifest(job)
    bins = min(MOST_BINS, max(FEWEST_BINS, MOST_OF_ALL // max(1, len(manifest.ranks))))
    sums, times = _Kernels(), RankTimes(bins=bins, align=alignment(manifest))
    for record in manifest.ranks:
        if record.reason:
            rows.append(_row(record, problem=record.reason))
            continue
        run = job.rank(record.rank)
        if not run.tables.is_dir():
            rows.append(
                _row(record, problem=problems.get(record.rank, stored("its tables are gone")))
            )
            continue
        try:
            read = {name: records(tables.read(run.tables, name)) for name in READ_ONCE}
            rows += _rank_rows(record, read)
            sums.add(record.rank, read["kernels"])
            times.add(record, run.tables, read)
            stages.append(_stages(record.rank, run, read["kernels"]))
            counted += _counted(record.rank, run, read["kernels"])
        except ProfError as error:
            rows.append(_row(record, problem=error.message))
    partial = job.tables.with_name(f"{job.tables.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        tables.write(pd.DataFrame(rows, columns=_columns(RANKS)), RANKS, partial)
        tables.write(sums.frame(), RANK_KERNELS, partial)
        counters = pd.DataFrame(counted, columns=_columns(RANK_COUNTERS))
        tables.write(tables.check(counters, RANK_COUNTERS), RANK_COUNTERS, partial)
        tables.write(pd.concat(stages, ignore_index=True), RANK_STAGES, partial)
        for name, frame in times.frames(roofs).items():
            tables.write(frame, name, partial)
        tables.write(roofs, COMM_ROOFS, partial)
        write_sentences(partial, made_of(row["problem"] for row in rows))
        shutil.rmtree(job.tables, ignore_errors=True)
        os.replace(partial, job.tables)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StepFailed(
            f"the tables of {job.path} cannot be written: {error}",
            "free some space or correct the permissions, then: prof report RUN",
        ) from error


def alignment(manifest: Manifest) -> str:
    """Return by what the recipe of a job aligns clocks."""
    ranks = manifest.recipe.get("ranks")
    return str(ranks.get("align", COLLECTIVES)) if isinstance(ranks, dict) else COLLECTIVES


def _rank_rows(record: RankRecord, read: Mapping[str, list[Row]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each GPU that the rank gave work to."""
    for time in read["gpu_stages"]:
        if time["stage"] != ALL:
            continue
        uses = [row for row in read["devices"] if row["gpu"] == time["gpu"]]
        first = uses[0] if uses else {}
        pids = sorted({pid for row in uses if (pid := count(row["pid"])) is not None})
        yield _row(
            record,
            device=count(first.get("device")),
            gpu=text(first.get("name")),
            uuid=text(first.get("uuid")),
            pids=", ".join(map(str, pids)),
            **{name: time[name] for name in TIMES},
        )


def _row(record: RankRecord, problem: str = "", **facts: Any) -> dict[str, Any]:
    empty = dict.fromkeys(_columns(RANKS))
    of_record = {"rank": record.rank, "host": record.host, "file": record.file, "problem": problem}
    return empty | of_record | facts


def _stages(rank: int, run: RunDir, kernels: list[Row]) -> pd.DataFrame:
    """Return what each stage of a rank takes, collectives apart."""
    collectives = {row["kernel_id"] for row in kernels if text(row["category"]) == COLLECTIVE}
    rows = tables.read(run.tables, "stage_kernels", ["stage", "kernel_id", "total_ns", "calls"])
    is_collective = rows["kernel_id"].isin(collectives)
    found = pd.DataFrame(
        {
            "stage": rows["stage"],
            "kernel_ns": rows["total_ns"].mask(is_collective, 0),
            "collective_ns": rows["total_ns"].where(is_collective, 0),
            "launches": rows["calls"].mask(is_collective, 0),
        }
    )
    sums = found.groupby("stage", sort=False, observed=True).sum().reset_index()
    return tables.check(sums.assign(rank=rank), RANK_STAGES)


def _counted(rank: int, run: RunDir, listed: list[Row]) -> Iterator[dict[str, Any]]:
    """Yield those `listed` kernels of a rank that ncu counted, and those that nsys sampled."""
    kernels = {row["kernel_id"]: row for row in listed}
    step = read_manifest(run).step("counters")
    mode = step.inputs.get("mode", "") if step is not None else ""
    for row in records(tables.read(run.tables, "counters")):
        wanted = ("passes", "duration_ns", "sm_active_pct", "tensor_pct", "dram_pct", "dram_bytes")
        found = {name: row[name] for name in wanted}
        yield _kernel_facts(rank, kernels, row["kernel_id"], source="counters", mode=mode, **found)
    samples = tables.read(run.tables, "gpu_samples")
    for kernel_id, rows in samples[samples["kernel_id"] != ""].groupby("kernel_id", observed=True):
        mean = dict(zip(rows["metric"], rows["mean"], strict=True))
        active = rows[rows["metric"] == SMS_ACTIVE]
        dram = [mean[name] for name in DRAM if name in mean]
        yield _kernel_facts(
            rank, kernels, kernel_id,
            source="samples",
            samples=int(active["samples"].sum()),
            duration_ns=kernels[kernel_id]["median_ns"],
            sm_active_pct=mean.get(SMS_ACTIVE),
            tensor_pct=mean.get(TENSOR),
            dram_pct=sum(dram) if dram else None,
        )  # fmt: skip


def _kernel_facts(
    rank: int, kernels: dict[Any, Row], kernel_id: Any, **facts: Any
) -> dict[str, Any]:
    names = ("kernel_id", "short_name", "grid", "category")
    kernel = kernels.get(kernel_id)
    names_of_kernel = {} if kernel is None else {name: text(kernel[name]) for name in names}
    return {**dict.fromkeys(_columns(RANK_COUNTERS)), "rank": rank, **names_of_kernel, **facts}


def _columns(table: str) -> list[str]:
    return [column.name for column in tables.tables()[table]]


@dataclass
class _Kernel:
    """One kernel over the ranks: its names, and its time and launches on each of them."""

    facts: Row
    total_ns: dict[int, int] = field(default_factory=dict)
    calls: int = 0


class _Kernels:
    """Adds up the kernels of the ranks."""

    def __init__(self) -> None:
        self._found: dict[str, _Kernel] = {}

    def add(self, rank: int, kernels: list[Row]) -> None:
        """Add the rows of table `kernels` of a rank."""
        for row in kernels:
            total = count(row["total_ns"])
            if total is not None:
                kernel = self._found.setdefault(text(row["kernel_id"]), _Kernel(row))
                kernel.total_ns[rank] = kernel.total_ns.get(rank, 0) + total
                kernel.calls += count(row["calls"]) or 0

    def frame(self) -> pd.DataFrame:
        """Return table `rank_kernels`, most GPU time first."""
        total_ns = sum(sum(k.total_ns.values()) for k in self._found.values())
        rows = [_kernel_row(key, kernel, total_ns) for key, kernel in self._found.items()]
        frame = pd.DataFrame(rows, columns=_columns(RANK_KERNELS))
        order = ["total_ns", "kernel_id"]
        return tables.check(frame.sort_values(order, ascending=[False, True]), RANK_KERNELS)


def _kernel_row(kernel_id: str, kernel: _Kernel, total_ns: int) -> dict[str, Any]:
    by_rank = kernel.total_ns
    fastest, slowest = (pick(by_rank, key=lambda r: (by_rank[r], r)) for pick in (min, max))
    total = sum(by_rank.values())
    names = ("name", "short_name", "library", "category", "grid", "block")
    return {
        "kernel_id": kernel_id,
        **{name: text(kernel.facts[name]) for name in names},
        "ranks": len(by_rank),
        "calls": kernel.calls,
        "total_ns": total,
        "share": total / total_ns if total_ns else None,
        "min_ns": by_rank[fastest],
        "min_rank": fastest,
        "median_ns": median(by_rank.values()),
        "max_ns": by_rank[slowest],
        "max_rank": slowest,
    }
