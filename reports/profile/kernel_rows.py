"""Makes the rows of the kernel table and the stage table, and what is drawn of the kernels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import accumulate

import pandas as pd

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import Row, count, from_row, known, names, number, records, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import gpu_times, per_gpu_stages
from nsight_prof.reports.analysis.profiled import (
    TRACE_ONLY,
    empty_counters,
    is_mixed,
    kernel_time,
    profiled,
    weight,
)
from nsight_prof.reports.analysis.stages import ALL, MOST_STAGES, idle_share
from nsight_prof.reports.findings.kernels.causes import Judged
from nsight_prof.reports.findings.kernels.evidence import rates
from nsight_prof.reports.findings.kernels.judge import judge
from nsight_prof.reports.findings.kernels.roofs import unit_of
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile import figure_views
from nsight_prof.reports.profile.view_models import (
    KernelFigures,
    KernelRow,
    LevelFigures,
    MissingValue,
    StageKernel,
    StageRow,
)

SHOWN = 30
"""Kernels of the table: all that were profiled, and further ones up to this many."""
LEVEL_LABELS = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
TOP_OF_STAGE = 5


@once
def kernel_figures(run: Run) -> KernelFigures:
    """Return the kernels of `run` and what is drawn of them, which needs no findings."""
    kernels = kernel_rows(run)
    panels, missed = figure_views.rooflines(run, kernels)
    shown_share = sum(row.share or 0.0 for row in kernels)
    return KernelFigures(
        gpu_time_ns=known(kernel_time(run)),
        gpus=gpu_times(run),
        kernels=kernels,
        rest_kernels=len(run.kernels) - len(kernels),
        rest_share=max(0.0, 1 - shown_share) if len(run.kernels) > len(kernels) else None,
        stages=stage_views(run, kernels),
        rooflines=panels,
        not_plotted=missed,
        occupancy=figure_views.occupancy_bars(kernels),
        throughput=figure_views.throughput_bars(kernels),
        stalls=figure_views.stall_figure(run, kernels),
    )


def kernel_rows(run: Run) -> tuple[KernelRow, ...]:
    """Return the profiled kernels and the largest others, most GPU time first, numbered from 1."""
    counted = {text(row["kernel_id"]): row for row in profiled(run)}
    rows = [row for row in records(run.kernels) if text(row["kernel_id"]) in counted]
    others = [row for row in records(run.kernels) if text(row["kernel_id"]) not in counted]
    rows += others[: max(0, SHOWN - len(rows))]
    rows.sort(key=lambda row: weight(counted.get(text(row["kernel_id"]), row)), reverse=True)
    missing = _missing(run.gaps)
    judged = {text(kernel.row["kernel_id"]): kernel for kernel in judge(run)}
    sums = accumulate(number(row["share"]) for row in rows)
    all_rows = (
        _kernel_row(rank, row, counted.get(key), missing, judged.get(key))
        for rank, (row, key) in enumerate(((row, text(row["kernel_id"])) for row in rows), 1)
    )
    return tuple(replace(row, so_far=known(s)) for row, s in zip(all_rows, sums, strict=True))


def saved(kernels: tuple[KernelRow, ...]) -> tuple[float | None, float | None]:
    """Return what all judged kernels could save, in ns and of the GPU time; None where unknown."""
    judged = [row for row in kernels if row.gain is not None]
    times = [row.gain_ns for row in judged if row.gain_ns is not None]
    shares = [row.gain_program for row in judged if row.gain_program is not None]
    if not judged or len(times) < len(judged) or len(shares) < len(judged):
        return None, None
    return sum(times), sum(shares)


def _missing(gaps: pd.DataFrame) -> dict[str, list[MissingValue]]:
    found: dict[str, list[MissingValue]] = defaultdict(list)
    for row in records(gaps):
        if text(row["kernel_id"]):
            value = MissingValue(text(row["column"]), text(row["reason"]))
            found[text(row["kernel_id"])].append(value)
    return found


def _kernel_row(
    rank: int,
    kernel: Row,
    counted: Row | None,
    missing: dict[str, list[MissingValue]],
    judged: Judged | None,
) -> KernelRow:
    key = text(kernel["kernel_id"])
    row = counted or empty_counters(key) | {c: kernel[c] for c in TRACE_ONLY}
    difference = known(row["duration_difference"])
    cause = judged.cause if judged is not None else None
    gain = known(judged.gain) if judged is not None else None
    return from_row(
        KernelRow,
        kernel | row,
        number=rank,
        stages=names(kernel["stage"]),
        so_far=None,
        profiled=counted is not None,
        ncu_duration_ns=known(row["duration_ns"]),
        duration_flagged=abs(difference or 0.0) > threshold("duration_difference"),
        registers=count(row["registers"]) if counted else count(kernel.get("registers")),
        dram=_level(row, "dram"),
        l2=_level(row, "l2"),
        l1=_level(row, "l1"),
        pipe_dtype=text(row["tensor_dtype"])
        if text(row["pipe"]) == "tensor"
        else text(row["pipe"]),
        bound_label=LABELS.get(text(row["bound_by"]), ""),
        bound_unit=Writer().text(unit) if (unit := unit_of(row)) is not None else "",
        bound_cause=cause.key if cause is not None else "",
        bound_reason=cause.clause if cause is not None else Text(""),
        matrix_work=None if known(row["flops_tensor"]) is None else number(row["flops_tensor"]) > 0,
        **_roof(judged),
        gain=gain,
        gain_ns=_ratio(gain, kernel["total_ns"]),
        gain_program=_ratio(gain, kernel["share"]),
        mixed=is_mixed(kernel),
        missing=tuple(missing.get(key, ())),
    )


def _ratio(gain: float | None, total: object) -> float | None:
    """Return the part `gain` of a time or share; None where either is unknown."""
    of = known(total)
    return None if gain is None or of is None else gain * of


def _roof(judged: Judged | None) -> Row:
    """Return what was reached and the roof, where their quotient is the share of it."""
    measured_rates = rates(judged) if judged is not None else []
    label = LABELS.get(judged.resource, "") if judged is not None and measured_rates else ""
    numbers = [row.value for row in measured_rates if isinstance(row.value, Number)]
    values = [number.value for number in numbers] or [None, None]
    unit = numbers[0].unit if numbers else ""
    return {"rate": values[0], "roof": values[1], "roof_unit": unit, "roof_label": label}


def _level(row: Row, level: str) -> LevelFigures:
    return LevelFigures(
        level,
        LEVEL_LABELS[level],
        known(row[f"{level}_bytes"]),
        known(row[f"{level}_throughput"]),
        known(row[f"{level}_pct"]),
        known(row[f"intensity_{level}"]),
    )


def stage_views(run: Run, kernels: tuple[KernelRow, ...]) -> tuple[StageRow, ...]:
    """Return the stages in order of their GPU time, then the others in one, then the capture."""
    numbers = {row.kernel_id: row.number for row in kernels}
    stages = per_gpu_stages(run)
    own_stages = stages[stages["stage"] != ALL].sort_values("share", ascending=False)
    capture = stages[stages["stage"] == ALL]
    rows = [_stage(run, row, numbers) for row in records(own_stages.head(MOST_STAGES))]
    if len(own_stages) > MOST_STAGES:
        # Ranges that a framework numbers: one table each tells nothing.
        rows = [replace(row, top=()) for row in rows]
        rows.append(_other_stages(own_stages.iloc[MOST_STAGES:]))
    return (*rows, *(_stage(run, row, numbers) for row in records(capture)))


def _other_stages(rest: pd.DataFrame) -> StageRow:
    """Add up the small stages; they may overlap in time, so their wall time has no sum."""
    sums = rest[["instances", "launches", "kernel_ns", "share"]].sum(min_count=1).to_dict()
    nothing = dict.fromkeys(("wall_ns", "busy_ns", "idle_ns", "idle_share"))
    return from_row(StageRow, sums, stage=f"({len(rest)} others)", top=(), **nothing)


def _stage(run: Run, row: Row, numbers: dict[str, int]) -> StageRow:
    return from_row(
        StageRow,
        row,
        busy_ns=known(row["gpu_busy_ns"]),
        idle_share=known(idle_share(row)),
        top=_top_kernels(run, text(row["stage"]), numbers),
    )


def _top_kernels(run: Run, stage: str, numbers: dict[str, int]) -> tuple[StageKernel, ...]:
    kernels_of_stage = run.stage_kernels[run.stage_kernels["stage"] == stage]
    if stage == ALL and kernels_of_stage.empty:
        kernels_of_stage = run.kernels
    readable = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    top = kernels_of_stage.sort_values("total_ns", ascending=False).head(TOP_OF_STAGE)
    return tuple(
        StageKernel(
            numbers.get(key := text(row["kernel_id"])),
            text(readable.get(key, key)),
            count(row["calls"]) or 0,
            number(row["total_ns"]),
            known(row["share"]),
        )
        for row in records(top)
    )
