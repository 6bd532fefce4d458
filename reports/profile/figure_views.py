"""Makes the view models of the plots from the kernel rows and the roofs."""

from __future__ import annotations

from collections import defaultdict

from nsight_prof.parsers.build.roofline import (
    LEVELS,
    Ceiling,
    Ceilings,
    ceilings,
    distance,
    roof_label,
)
from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.waits import stall_meaning
from nsight_prof.reports.page.charts import (
    NotPlotted,
    Roof,
    RooflineKernel,
    RooflinePanel,
    RooflinePoint,
    ridges,
)
from nsight_prof.reports.page.figure_models import (
    OccupancyBar,
    StallBar,
    StallFigure,
    ThroughputBar,
)
from nsight_prof.reports.page.values import Text, Word
from nsight_prof.reports.profile.view_models import KernelRow, LevelFigures

DATASHEET = "datasheet"
INTENSITIES = (1e-4, 1e5)
"""FLOP/B outside of this range are a broken counter, not a kernel."""
PANELS = {"tensor": "Tensor Cores", "vector": "FP64, FP32 and FP16 arithmetic"}
NO_FLOPS_COUNTED = "its floating-point operations were not counted"
NO_FLOPS = "it does no floating-point operations"
NO_INTENSITY = "no memory level has a plausible intensity"
STALL_REASONS = 7
"""Reasons that get a colour of their own; the rest is "other"."""


def all_roofs(run: Run) -> tuple[Roof, ...]:
    """Return every known roof, in the order that is used: measured, counters, datasheet."""
    return tuple(
        Roof(
            text(row["level_or_pipe"]),
            text(row["dtype"]),
            roof_label(text(row["level_or_pipe"]), text(row["dtype"])),
            number(row["value"]),
            text(row["unit"]),
            text(row["source"]),
            known(row["clock_hz"]),
            text(row["detail"]),
        )
        for row in records(run.roofs)
        if known(row["value"]) is not None
    )


def rooflines(
    run: Run, kernels: tuple[KernelRow, ...]
) -> tuple[tuple[RooflinePanel, ...], tuple[NotPlotted, ...]]:
    """Return a panel for the Tensor Cores and one for the other pipes, and who is on neither."""
    roofs = ceilings(run.roofs)
    plotted: dict[str, list[RooflineKernel]] = {key: [] for key in PANELS}
    missed = []
    for row in (k for k in kernels if k.profiled):
        reason = _why_not(row)
        if reason:
            missed.append(NotPlotted(row.number, row.short_name, row.share, reason))
        else:
            plotted["tensor" if row.pipe == "tensor" else "vector"].append(_plotted(row, roofs))
    sheet = ceilings(run.roofs[run.roofs["source"] == DATASHEET])
    panels = [_panel(key, tuple(found), roofs, sheet) for key, found in plotted.items() if found]
    return tuple(panels), tuple(missed)


def _why_not(row: KernelRow) -> str:
    if row.flops is None or row.flop_throughput is None:
        return NO_FLOPS_COUNTED
    if row.flops == 0:
        return NO_FLOPS
    if not _points(row):
        return NO_INTENSITY
    return ""


def _points(row: KernelRow) -> list[LevelFigures]:
    low, high = INTENSITIES
    levels = (row.dram, row.l2, row.l1)
    return [f for f in levels if f.intensity is not None and low <= f.intensity <= high]


def _plotted(row: KernelRow, roofs: Ceilings) -> RooflineKernel:
    return RooflineKernel(
        number=row.number,
        kernel_id=row.kernel_id,
        label=row.short_name,
        category=row.category,
        share=row.share,
        throughput=row.flop_throughput or 0.0,
        pipe=row.pipe,
        dtype=row.pipe_dtype,
        bound_by=row.bound_by,
        points=tuple(_point(row, figures, roofs) for figures in _points(row)),
        clock_hz=row.sm_clock_hz,
    )


def _point(row: KernelRow, figures: LevelFigures, roofs: Ceilings) -> RooflinePoint:
    memory = roofs.memory.get(figures.level)
    compute = roofs.pipe(row.pipe, row.pipe_dtype)
    intensity = figures.intensity or 0.0
    reached = None
    if memory is not None and compute is not None:
        clock = row.sm_clock_hz or 0.0
        limits = memory.at_clock(clock), compute.at_clock(clock)
        reached = known(distance(row.flop_throughput or 0.0, intensity, *limits))
    return RooflinePoint(figures.level, intensity, reached)


def _panel(
    key: str, kernels: tuple[RooflineKernel, ...], roofs: Ceilings, sheet: Ceilings
) -> RooflinePanel:
    memory = [roofs.memory[level] for level in LEVELS if level in roofs.memory]
    used = {(k.pipe, k.dtype) for k in kernels}
    compute = [
        roof
        for (pipe, dtype), roof in roofs.compute.items()
        if (pipe, dtype) in used or (key == "vector" and pipe == "fp32")
    ]
    compute.sort(key=lambda roof: roof.value, reverse=True)
    published = [sheet.memory.get(roof.key) for roof in memory]
    published += [sheet.compute.get((roof.key, roof.dtype)) for roof in compute]
    used_roofs = [*memory, *compute]
    slopes, levels = tuple(map(_roof, memory)), tuple(map(_roof, compute))
    return RooflinePanel(
        key,
        Text("Roofline: {units}", units=Word(PANELS[key])),
        slopes,
        levels,
        ridges(slopes, levels),
        kernels,
        tuple(_roof(roof) for roof in published if roof is not None and roof not in used_roofs),
    )


def _roof(c: Ceiling) -> Roof:
    label = roof_label(c.key, c.dtype)
    return Roof(c.key, c.dtype, label, c.value, c.unit, c.source, known(c.clock_hz), c.detail)


def occupancy_bars(kernels: tuple[KernelRow, ...]) -> tuple[OccupancyBar, ...]:
    """Return achieved against theoretical occupancy of the kernels that have either."""
    return tuple(
        OccupancyBar(
            row.number,
            row.short_name,
            row.share,
            row.achieved_occupancy_pct,
            row.theoretical_occupancy_pct,
            row.occupancy_limiter,
        )
        for row in kernels
        if row.achieved_occupancy_pct is not None or row.theoretical_occupancy_pct is not None
    )


def throughput_bars(kernels: tuple[KernelRow, ...]) -> tuple[ThroughputBar, ...]:
    """Return per cent of each roof for the kernels that have any."""
    bars = [
        ThroughputBar(
            row.number,
            row.short_name,
            row.share,
            row.dram.pct,
            row.l2.pct,
            row.l1.pct,
            row.tensor_pct if row.matrix_work is not False else None,
            row.bound_by,
        )
        for row in kernels
    ]
    return tuple(b for b in bars if {b.dram_pct, b.l2_pct, b.l1_pct, b.tensor_pct} != {None})


def stall_figure(run: Run, kernels: tuple[KernelRow, ...]) -> StallFigure:
    """Return stall shares per kernel; reasons are ordered by their share weighted by GPU time."""
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for stall in records(run.stalls):
        if known(stall["share"]) is not None:
            shares[text(stall["kernel_id"])][text(stall["reason"])] = number(stall["share"])
    rows = [row for row in kernels if row.kernel_id in shares]
    weights: dict[str, float] = defaultdict(float)
    for row in rows:
        for reason, stall_share in shares[row.kernel_id].items():
            weights[reason] += stall_share * (row.share if row.share is not None else 1.0)
    order = sorted(weights, key=lambda reason: -weights[reason])
    largest, rest = order[:STALL_REASONS], order[STALL_REASONS:]
    meanings = [Text("waiting {for_what}", for_what=stall_meaning(reason)) for reason in largest]
    bars = [
        StallBar(
            row.number,
            row.short_name,
            row.share,
            _stall_shares(shares[row.kernel_id], largest, rest),
        )
        for row in rows
    ]
    if rest:
        return StallFigure((*largest, "other"), (*meanings, Text("all other reasons")), tuple(bars))
    return StallFigure(tuple(largest), tuple(meanings), tuple(bars))


def _stall_shares(
    shares: dict[str, float], largest: list[str], rest: list[str]
) -> tuple[float, ...]:
    values = tuple(shares.get(reason, 0.0) for reason in largest)
    return (*values, sum(shares.get(reason, 0.0) for reason in rest)) if rest else values
