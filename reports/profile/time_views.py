"""Makes the tables behind sentences about time: by kind of kernel and stage, and idle by cause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import from_row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import per_gpu_gaps, per_gpu_stages
from nsight_prof.reports.analysis.kinds import FEW, MOST_PARTS, kind_of
from nsight_prof.reports.analysis.repeats import periods, repeats
from nsight_prof.reports.analysis.stages import ALL, stage_rows
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.page import Interval, Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.time_models import (
    HostCost,
    IdleRow,
    KindRow,
    KindTable,
    StepTimes,
)

STEPS = (
    Text("queued ahead: the host had launched all of it before"),
    Text("queued in part: the lead of the host ends in it"),
    Text("waits for launches throughout"),
)
SHOWN = 12
"""Kinds of the table; what is beyond is added up in its last row."""
CAUSES = {
    "launches": "launches: the host issues them more slowly than the GPU runs them",
    "host": "host: it did something else for 0.1 ms or longer",
    "synchronisation": "synchronisation: the host had waited for the GPU",
    "queued": "queued: the GPU's own time between operations that were there already",
    "unknown": "unknown: the call that issued what came next is not in the trace",
}
"""Cause of table `idle_gaps` -> what it means (docs/reading-the-report.md)."""


SUMS = ("gaps", "idle_ns", "late_calls", "before_call_ns", "in_call_ns")
COSTS = {
    "launch": "a launch call of the host",
    "launch-graph": "a kernel node of a CUDA graph",
}
"""Kind of table `measured_roofs` -> what takes the time."""


def kind_table(run: Run) -> KindTable | None:
    """Return GPU time by kind and stage; None where a kernel each says as much, or nothing."""
    kernels = run.kernels
    if len(kernels) <= FEW or kernels["total_ns"].isna().all():
        return None
    stages = _stages(run)
    times = _stage_times(run, stages)
    groups = sorted(kernels.groupby(_kinds(kernels)), key=lambda item: -item[1]["total_ns"].sum())
    rows = [_row(str(kind), group, stages, times) for kind, group in groups[:SHOWN]]
    if rest := groups[SHOWN:]:
        together = pd.concat([group for _, group in rest])
        rows.append(_row(f"{len(rest)} other kinds", together, stages, times))
    return KindTable(tuple(stages), tuple(rows), _row("", kernels, stages, times))


def _kinds(kernels: pd.DataFrame) -> pd.Series[str]:
    """Return the kind of each kernel in words; one of no known kind is its own."""
    category = kernels["category"].fillna("other")
    names = category.map(lambda key: Writer().text(kind_of(key)))
    return names.where(category != "other", kernels["short_name"])


def _stages(run: Run) -> list[str]:
    stages = [row for row in stage_rows(run) if row["stage"] != ALL]
    stages.sort(key=lambda row: -number(row["share"]))
    return [text(row["stage"]) for row in stages[:MOST_PARTS]] if len(stages) > 1 else []


def _stage_times(run: Run, stages: list[str]) -> dict[tuple[str, str], float]:
    """Return the ns of each (stage, kernel id)."""
    found = run.stage_kernels[run.stage_kernels["stage"].isin(stages)]
    return {
        (text(row["stage"]), text(row["kernel_id"])): number(row["total_ns"])
        for row in records(found)
    }


def _row(
    kind: str, kernels: pd.DataFrame, stages: list[str], times: dict[tuple[str, str], float]
) -> KindRow:
    ids = [text(key) for key in kernels.sort_values("total_ns", ascending=False)["kernel_id"]]
    categories = tuple(dict.fromkeys(text(c) or "other" for c in kernels["category"]))
    calls = known(kernels["calls"].sum(min_count=1))
    return KindRow(
        kind=kind,
        categories=categories,
        kernels=len(ids),
        launches=None if calls is None else int(calls),
        total_ns=float(kernels["total_ns"].sum()),
        share=known(kernels["share"].sum(min_count=1)),
        by_stage=tuple(sum(times.get((stage, key), 0.0) for key in ids) for stage in stages),
        kernel_ids=tuple(ids),
    )


def step_times(run: Run) -> Iterator[StepTimes]:
    """Yield the steps of each loop of which some were queued ahead of the GPU, by how they came."""
    frame = timeline(run)
    if frame is None:
        return
    for stage in [text(row["stage"]) for row in stage_rows(run)]:
        inside = "" if stage == ALL else stage
        found = periods(frame, inside) if repeats(frame, inside) is not None else None
        if found is None:
            continue
        period, queued, _ = found
        in_part = ~queued & np.append(False, queued[:-1])
        for how, mask in zip(STEPS, (queued, in_part, ~queued & ~in_part), strict=True):
            if mask.any():
                times, first = period[mask], int(np.argmax(mask)) + 1
                ends = Interval(float(times.min()), float(times.max()), "ns")
                median = Number(float(np.median(times)), "ns")
                yield StepTimes(stage, how, len(times), first, median, ends)


def idle_rows(run: Run) -> tuple[IdleRow, ...]:
    """Return the time without work of each stage by cause, most of it first within a stage.

    Of several GPUs the time of one on average, and how many gaps all of them had.
    """
    staged = {text(row["stage"]) for row in stage_rows(run)}
    gaps = per_gpu_gaps(run, capture=staged == {ALL})
    if gaps.empty:
        return ()
    walls = {text(row["stage"]): number(row["wall_ns"]) for row in records(per_gpu_stages(run))}
    gaps = gaps.assign(stage=ALL if staged == {ALL} else gaps["stage"].fillna(""))
    groups = gaps.groupby(["stage", "cause"], sort=False)
    sums = groups[list(SUMS)].sum(min_count=1)
    sums = sums.join(groups.agg({"longest_ns": "max", "gpus": "first"}))
    order = {stage: index for index, stage in enumerate(sorted(staged))}
    ranked = sorted(
        records(sums.reset_index()),
        key=lambda row: (order.get(text(row["stage"]), len(order)), -number(row["idle_ns"])),
    )
    return tuple(
        from_row(
            IdleRow,
            row,
            label=CAUSES.get(text(row["cause"]), text(row["cause"])),
            gaps=round(number(row["gaps"]) * number(row["gpus"])),
            of_wall=number(row["idle_ns"]) / wall
            if (wall := walls.get(text(row["stage"])))
            else None,
            late_calls=_integer(number(row["late_calls"]) * number(row["gpus"])),
        )
        for row in ranked
    )


def _integer(value: float) -> int | None:
    return None if known(value) is None else round(value)


def host_costs(run: Run) -> tuple[HostCost, ...]:
    """Return what launches cost without a profiler, where the GPU's roofs were measured."""
    return tuple(
        HostCost(COSTS[text(row["kind"])], 1e9 * number(row["value"]), text(row["case_id"]))
        for row in records(run.measured_roofs)
        if text(row["kind"]) in COSTS and known(row["value"]) is not None
    )
