"""The section of the target network_kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.operations.models import KernelModel
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.page import Column, Json, Number, Section, Table, Text, arranged
from nsight_prof.reports.page.charts import LineFigure, Panel, Series, spaced
from nsight_prof.reports.studies.network_kernels import findings, side_by_side, whole
from nsight_prof.reports.studies.network_kernels.points import (
    FAMILIES,
    FINE,
    TARGET,
    Curve,
    Point,
    curves,
    points,
)

MOST_LINES = 6
"""Curves of a figure: the quickest, the slowest, and evenly spaced ones between."""
DETAILS = 8
"""Rows of a table of details that a page shows."""
INTRO = Text(
    "Convolutions, LSTMs, norms, softmax, pooling, elementwise operations, linear layers and "
    "attention of vision transformers, each over its sizes; and networks made of them."
)
METHOD = (
    Text(
        "FLOPs and bytes are closed formulas of the sizes, bytes compulsory: each input read once "
        "and each output written once. Convolutions: 2 C R S FLOPs an output."
    ),
    Text(
        "Cold: on buffers that the L2 cache has not seen lately. Hot: on the same ones again, as "
        "an operation finds what the one before left. Both in CUDA graphs; the smallest size also "
        "as the host launches it."
    ),
    Text(
        "Peak memory is that of the hot cases: inputs, output, weights, and the workspace of the "
        "kernels."
    ),
    Text(
        "A whole network is predicted by the sum of its operations: activations hot, weights cold "
        "unless all of them fit the cache."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured case of this target."""
    found = points(run)
    if not found:
        return None
    kernels = whole.kernels(run)
    by_key = sorted(kernels.models.items()) if kernels else ()
    models = [(f"{key}, {mode}", model) for (key, mode), model in by_key]
    wholes = whole.wholes(run, found, kernels)
    pairs, cold = side_by_side.pairs_of(run, found), curves(found)
    delays = [fitted for line in cold if (fitted := _delay(line)) is not None]
    conclusions = (
        whole.host_bound(wholes),
        findings.saturation(found),
        findings.layout(found),
        findings.precision(found),
        findings.recurrence(found),
        whole.additivity(wholes),
        findings.cache(found),
        findings.distance(found),
        findings.between_sizes(models),
        side_by_side.finding(pairs),
        oscillation.finding(delays),
    )
    charts = (whole.chart(wholes), *(_chart(cold, family) for family in FAMILIES))
    tables: tuple[Table[Any], ...] = (
        whole.table(wholes),
        *(_table(cold, curves(found, hot=True), family) for family in FAMILIES),
        side_by_side.table(pairs),
        _models(models),
        oscillation.table(delays),
    )
    return Section(
        TARGET,
        Text("The operations of networks over their sizes"),
        arranged([INTRO], conclusions, charts, tables, METHOD),
        numbers=_numbers(found, wholes, models)
        | {
            "side_by_side": {pair.name: side_by_side.numbers(pair) for pair in pairs},
            "delay_factors": oscillation.numbers(delays),
        },
    )


def _delay(line: Curve) -> oscillation.Sweep | None:
    """Return the oscillation over evenly spaced sizes; None for other curves."""
    if line.last.family != FINE:
        return None
    sizes = [float(point.batch) for point in line.points]
    times = [(point.seconds, *point.interval) for point in line.points]
    return oscillation.sweep(line.name, sizes, times)


def _chart(lines: Sequence[Curve], family: str) -> LineFigure | None:
    """Return time and share of the roof of a family over the batch, a line an operation."""
    chosen = [line for line in lines if line.last.family == family and len(line.points) > 1]
    if not chosen:
        return None
    drawn = spaced(sorted(chosen, key=lambda line: line.last.seconds), MOST_LINES)
    axis = {"linear": "Tokens", "elementwise": "Elements", "norm": "Images or rows"}
    times = tuple(_series(line, 1e6, lambda point: point.time) for line in drawn)
    panels = [Panel("time (us)", times, y_log=True)]
    if any(line.last.fraction.value is not None for line in drawn):
        shares = tuple(_series(line, 100.0, lambda point: point.fraction) for line in drawn)
        panels.append(Panel("share of the roof (%)", shares))
    return LineFigure(
        f"network-{family}",
        f"{str(FAMILIES[family].message).capitalize()}: time and share of the roof over the batch",
        "Lines: time, and share of what the measured roofs allow, over the batch",
        axis.get(family, "Batch"),
        panels=tuple(panels),
        x_log=True,
        subtitle=f"On buffers that the cache has not seen. {len(drawn)} of {len(chosen)} sizes.",
    )


def _series(line: Curve, factor: float, quantity: Callable[[Point], Number]) -> Series:
    y = tuple(factor * number(quantity(point).value) for point in line.points)
    return Series(line.name, tuple(float(p.batch) for p in line.points), y)


def _table(cold: Sequence[Curve], hot: Sequence[Curve], family: str) -> Table[Point]:
    """Return the operations of a family at each batch: unused and used buffers, roof, memory."""
    lines = [line for line in cold if line.last.family == family]
    names = {point.ref: line.name for line in lines for point in line.points}
    used = {(line.name, point.batch, point.variant): point for line in hot for point in line.points}
    pairs = {
        p.ref: used.get((names[p.ref], p.batch, p.variant)) for line in lines for p in line.points
    }

    def of_hot(cell: Callable[[Point], Number]) -> Callable[[Point], Number | None]:
        return lambda point: None if (same := pairs[point.ref]) is None else cell(same)

    return Table(
        f"network-{family}",
        Text("Measured: {family}", family=FAMILIES[family]),
        [
            Column(Text("operation"), lambda point: names[point.ref]),
            Column(Text("batch"), lambda point: point.batch),
            Column(Text("cold"), lambda point: point.time),
            Column(Text("hot"), of_hot(lambda point: point.time)),
            Column(Text("of its roof"), lambda point: point.fraction),
            Column(Text("roof"), lambda point: point.roof or None),
            Column(Text("peak memory"), of_hot(lambda point: point.peak_memory)),
            Column(Text("counted FLOPs"), lambda point: point.flops_ratio),
            Column(Text("DRAM bytes"), lambda point: point.bytes_ratio),
        ],
        [point for line in lines for point in line.points],
        refs=lambda point: [point.ref, *([same.ref] if (same := pairs[point.ref]) else [])],
        preview=DETAILS,
    )


def _models(models: Sequence[tuple[str, KernelModel]]) -> Table[tuple[str, KernelModel]]:
    """Return how far each model lies from what was left out of it."""

    def error(model: KernelModel, known_shape: bool) -> Number:
        found = [abs(c.error) for c in model.held_out if c.known_shape is known_shape]
        return Number(statistics.fmean(found) if found else None, "fraction")

    return Table(
        "network-models",
        Text("Models between the sizes, and their held-out errors"),
        [
            Column(Text("operation"), lambda row: row[0]),
            Column(Text("cases"), lambda row: len(row[1].operations)),
            Column(Text("fixed time"), lambda row: Number(float(row[1].parameters[0]), "s")),
            Column(Text("other batches: MAPE"), lambda row: error(row[1], True)),
            Column(Text("other shapes: MAPE"), lambda row: error(row[1], False)),
        ],
        models,
        note=Text("Each shape was left out in turn, and each batch between two others of a shape."),
        preview=DETAILS,
    )


def _numbers(
    found: Sequence[Point], wholes: Sequence[whole.Whole], models: Sequence[tuple[str, KernelModel]]
) -> dict[str, Json]:
    return {
        "cases": {
            str(point.row["case_id"]): {
                "seconds": point.seconds,
                "roof_fraction": point.fraction.value,
                "peak_memory_bytes": point.peak_memory.value,
            }
            for point in found
        },
        "networks": {
            str(row.point.row["case_id"]): {
                "seconds": row.point.seconds,
                "sum_of_operations": row.predicted,
            }
            for row in wholes
        },
        "models": {
            name: {
                "cases": len(model.operations),
                "held_out": [
                    {"error": case.error, "known_shape": case.known_shape}
                    for case in model.held_out
                ],
            }
            for name, model in models
        },
    }
