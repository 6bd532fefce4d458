"""Where the time of each GPU of a job goes, and what its collectives tell: table `rank_times`.

The launches of one rank are read at a time; of each only its collectives are kept.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import count, records, text
from nsight_prof.parsers.nsys.stages.nccl import POINT_TO_POINT, WHOLE, bus_factor
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.ranks.clocks import Array
from nsight_prof.parsers.ranks.waits import Calls, Kind, RankGpu, Waits, compare
from nsight_prof.parsers.roofs.comm import roof_at
from nsight_prof.parsers.run.directory import RunDir

ROWS = 1 << 18
COLLECTIVE = "collective"
MATRIX = "gemm"
COLUMNS = ["kernel_id", "start_ns", "duration_ns", "device"]


@dataclass(frozen=True)
class _Message:
    """What NCCL's payload says of a call: bytes that a rank passes, ranks (0: not known)."""

    operation: str
    bytes: int
    communicator: str
    ranks: int


@dataclass
class RankTimes:
    """Collects what the ranks' tables hold, one rank after the other."""

    calls: dict[RankGpu, dict[str, Calls]] = field(default_factory=dict)
    rows: dict[RankGpu, dict[str, Any]] = field(default_factory=dict)
    messages: dict[str, _Message] = field(default_factory=dict)
    """By kind of collective: its kernel's id and, where the payload says more, that."""
    names: dict[str, str] = field(default_factory=dict)

    def add(self, rank: int, run: RunDir) -> None:
        """Read the tables of a rank; raises as `tables.read`."""
        kernels = tables.read(run.tables, "kernels")
        stages = tables.read(run.tables, "gpu_stages")
        devices = {count(r["gpu"]): r for r in records(tables.read(run.tables, "devices"))}
        gaps = tables.read(run.tables, "gpu_idle_gaps")
        by_id = {row["kernel_id"]: row for row in records(kernels)}
        category = np.array([text(row["category"]) for row in by_id.values()])
        launches = _launches(run, list(by_id))
        self.names |= {str(key): text(row["short_name"]) for key, row in by_id.items()}
        messages = _messages(run)
        for stage in records(stages[stages["stage"] == ALL]):
            device = count((devices.get(count(stage["gpu"])) or {}).get("device"))
            if device is None:
                continue
            kernel, start, duration = (column[launches[3] == device] for column in launches[:3])
            is_collective = (category == COLLECTIVE)[kernel]
            is_matrix = (category == MATRIX)[kernel]
            end = start + duration
            compute = _union(start[~is_collective], end[~is_collective])
            kernels_ns = _union(start, end)
            gpu = (rank, device)
            found = zip(
                *(c[is_collective].tolist() for c in (kernel, start, duration)), strict=True
            )
            ids = list(map(str, by_id))
            self.calls[gpu] = self._calls([(ids[k], s, d) for k, s, d in found], messages)
            idle = gaps[(gaps["gpu"] == stage["gpu"])].groupby("cause")["idle_ns"].sum()
            self.rows[gpu] = {
                "wall_ns": int(stage["wall_ns"]),
                "compute_ns": compute,
                "exposed": kernels_ns - compute,
                "copies_ns": int(stage["gpu_busy_ns"]) - kernels_ns,
                "idle_ns": int(stage["idle_ns"]),
                "launches": int((~is_collective).sum()),
                "matrix_ns": int(duration[is_matrix].sum()),
                "other_ns": int(duration[~is_matrix & ~is_collective].sum()),
                "idle_causes": {str(cause): int(ns) for cause, ns in idle.items()},
            }

    def _calls(
        self, launches: list[tuple[str, int, int]], messages: dict[int, _Message]
    ) -> dict[str, Calls]:
        """Sort the collectives of a GPU (kernel, start, duration) by kind."""
        starts: dict[str, list[int]] = defaultdict(list)
        durations: dict[str, list[int]] = defaultdict(list)
        for kernel, start, duration in sorted(launches, key=lambda launch: launch[1]):
            key, message = kernel, messages.get(start)
            if message is not None:
                key = f"{kernel} {message.operation} {message.bytes}"
                # A send is one transfer with its receive, not with the sends of other ranks.
                if message.operation not in POINT_TO_POINT:
                    key += f" {message.communicator}"
                self.messages.setdefault(key, message)
            starts[key].append(start)
            durations[key].append(duration)
        return {
            key: Calls(np.array(starts[key], np.int64), np.array(durations[key], np.int64))
            for key in starts
        }

    def frames(self, roofs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return tables `rank_times` and `rank_collectives`; `roofs` is table `comm_roofs`."""
        waits, kinds = compare(self.calls)
        rows = [self._row(gpu, waits[gpu]) for gpu in sorted(self.rows)]
        times = pd.DataFrame(rows, columns=[c.name for c in tables.tables()["rank_times"]])
        collectives = pd.DataFrame(
            [self._kind_row(kind, roofs) for kind in kinds],
            columns=[c.name for c in tables.tables()["rank_collectives"]],
        )
        order = collectives.sort_values(["wait_ns", "kernel_id"], ascending=[False, True])
        return tables.check(times, "rank_times"), tables.check(order, "rank_collectives")

    def _row(self, gpu: RankGpu, waits: Waits) -> dict[str, Any]:
        facts = self.rows[gpu]
        exposed, known = facts["exposed"], waits.matched > 0
        total = sum(int(calls.duration.sum()) for calls in self.calls[gpu].values())
        share = waits.wait_ns / total if known and total else None
        waited_ns = None if share is None else round(exposed * share)
        causes = facts["idle_causes"]
        longest = max(causes, key=lambda cause: (causes[cause], cause), default="")
        clock = waits.clock if gpu != min(self.rows) else None
        return {
            **{k: facts[k] for k in ("wall_ns", "compute_ns", "copies_ns", "idle_ns", "launches")},
            "matrix_ns": facts["matrix_ns"],
            "other_ns": facts["other_ns"],
            "rank": gpu[0],
            "device": gpu[1],
            "collective_ns": exposed,
            "overlapped_ns": max(0, total - exposed),
            "wait_ns": waited_ns,
            "transfer_ns": None if waited_ns is None else exposed - waited_ns,
            "collectives": waits.matched,
            "late_ns": waits.late_ns if known else None,
            "late_low_ns": waits.low_ns if np.isfinite(waits.low_ns) and known else None,
            "late_high_ns": waits.high_ns if np.isfinite(waits.high_ns) and known else None,
            "last": waits.last if known else None,
            "idle_cause": longest,
            "idle_cause_ns": causes.get(longest),
            "clock": "epoch" if waits.clock is None else "collectives" if clock else "reference",
            "clock_offset_ns": None if clock is None else clock.offset_ns,
            "clock_drift_ppm": None if clock is None else clock.drift_ppm,
            "clock_residual_ns": None if clock is None else clock.residual_p95_ns,
        }

    def _kind_row(self, kind: Kind, roofs: pd.DataFrame) -> dict[str, Any]:
        message, size, bandwidth, roof = self.messages.get(kind.key), None, None, None
        transfer = float(np.median(kind.transfer_ns))
        kernel = kind.key.partition(" ")[0]
        if message is not None:
            # A trace of one rank knows of no other; all GPUs that have the call make it together.
            ranks = message.ranks if message.ranks > 1 else kind.gpus
            size = message.bytes * (ranks if message.operation in WHOLE else 1)
            bandwidth = size / transfer * 1e9 * bus_factor(message.operation, ranks)
            roof = roof_at(roofs, message.operation, ranks, size)
        return {
            "kernel_id": kernel,
            "short_name": self.names.get(kernel, ""),
            "gpus": kind.gpus,
            "instances": kind.instances,
            "transfer_ns": transfer,
            "wait_ns": kind.wait_ns,
            "bytes": size,
            "bus_bandwidth": bandwidth,
            "operation": "" if message is None else message.operation,
            "communicator": "" if message is None else message.communicator,
            "roof": roof,
        }


def _launches(run: RunDir, kernels: list[Any]) -> list[Array]:
    """Return the columns of table `launches`, kernels as their place in `kernels`."""
    number_of = {kernel: number for number, kernel in enumerate(kernels)}
    found: list[list[Array]] = [[np.zeros(0, np.int64)] for _ in COLUMNS]
    for batch in tables.batches(run.tables / "launches.parquet", ROWS, COLUMNS):
        known = batch[batch["kernel_id"].isin(number_of)]
        ids = known["kernel_id"].astype("category").cat.remove_unused_categories().cat
        numbers = np.array([number_of[kernel] for kernel in ids.categories], np.int64)
        for column, name in zip(found, COLUMNS, strict=True):
            of_batch = numbers[ids.codes] if name == "kernel_id" else known[name].to_numpy(np.int64)
            column.append(of_batch)
    return [np.concatenate(column) for column in found]


def _messages(run: RunDir) -> dict[int, _Message]:
    """Return what NCCL said of single calls, by the start of their kernel."""
    return {
        int(row["start_ns"]): _Message(
            text(row["operation"]), size, text(row["communicator"]), count(row["ranks"]) or 0
        )
        for row in records(tables.read(run.tables, "collectives"))
        if row["calls"] == 1 and (size := count(row["message_bytes"]))
    }


def _union(start: Array, end: Array) -> int:
    """Return the time that at least one of the intervals covers (ns)."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([start[:1], end[:-1]])
    return int(np.maximum(0, end - np.maximum(start, before)).sum())
