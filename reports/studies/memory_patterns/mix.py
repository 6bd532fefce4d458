"""Mixes of reads and writes: bandwidth by ratio and granularity, and what a turnaround costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nsight_prof.parsers.cells import Row, known
from nsight_prof.reports.page import Column, Json, Number, Table, Text
from nsight_prof.reports.page.charts import LineFigure, Panel, Series
from nsight_prof.reports.studies.memory_patterns.findings import (
    NAMES,
    mix_finding,
    turnaround_findings,
)
from nsight_prof.reports.studies.memory_patterns.points import (
    Outcome,
    Point,
    mix_points,
    pure,
    ratios,
    unmixed,
)
from nsight_prof.reports.studies.memory_patterns.turnaround_fit import Estimate, MixFit, fit_all
from nsight_prof.reports.studies.memory_patterns.turnaround_solve import Mixes

Z = 1.96
"""Half-width of a 95 % interval in standard errors."""

FORMULAS = {
    "none": "R/Br + W/Bw",
    "switches": "R/Br + W/Bw + N t",
    "mix": "R/Br + W/Bw + min(R, W) c",
    "batched": "R/Br + W/Bw + min(R, W) / max(run, D) t",
    "drain": "R/Br + W/Bw + N c r^p min(w, D)^(1-p)",
}


def mixes(rows: Sequence[Row]) -> Outcome | None:
    """Return what the mixes say; None without a measured one."""
    points = mix_points(rows)
    if not points:
        return None
    used, models = fitted(points)
    turn = turn_chart(used, models[0]) if models else None
    return Outcome(
        (*mix_finding(points), *turnaround_findings(models, points)),
        (bandwidth_table(points), model_table(models)),
        (bandwidth_chart(points), turn),
        numbers(points, models),
    )


def fitted(points: Sequence[Point]) -> tuple[list[Point], list[MixFit]]:
    """Return the points that a fit may use, and all models, the best first.

    Mixes in two launches are left out: they pay for a launch, too.
    """
    used = [point for point in points if point.way != "launches"]
    if not used:
        return [], []
    data = Mixes(
        reads=np.array([point.reads for point in used]),
        writes=np.array([point.writes for point in used]),
        switches=np.array([point.switches for point in used]),
        seconds=np.array([point.seconds for point in used]),
        sigma=np.array([_sigma(point) for point in used]),
    )
    return used, fit_all(data)


def _sigma(point: Point) -> float:
    half = (point.high - point.low) / 2
    return half / Z if math.isfinite(half) else 0.0


def bandwidth_table(points: Sequence[Point]) -> Table[str]:
    """Return bandwidth by ratio and granularity, one row per ratio."""
    rates = {(point.ratio, point.column): point.rate for point in points}
    alone = {point.ratio: point.rate for point in points if point.way == "alone"}
    headings = dict.fromkeys(point.column for point in points if point.way != "alone")

    def no_mixing(ratio: str) -> Number:
        return Number(alone.get(ratio, unmixed(points, ratio)), "B/s")

    def mixed(heading: str) -> Column[str]:
        def cell(ratio: str) -> Number | None:
            if ratio in alone:
                return None
            rate = rates.get((ratio, heading))
            return Number(rate, "B/s")

        return Column(Text("{granularity}", granularity=heading), cell, "TB/s")

    return Table(
        "memory-patterns-mix",
        Text("Bandwidth of mixes by the length of a run, bytes read and written"),
        [
            Column(Text("read:write"), str),
            Column(Text("no mixing"), no_mixing, "TB/s"),
            *map(mixed, headings),
        ],
        ratios(points),
        note=Text(
            "No mixing: one direction alone, or the same bytes at the two pure bandwidths. A run "
            "is what is read or written before the direction changes, of the rarer direction; of "
            "the other it is as many times more as the ratio says."
        ),
    )


def model_table(models: Sequence[MixFit]) -> Table[MixFit]:
    """Return the models side by side, the best first."""
    return Table(
        "memory-patterns-models",
        Text("Models of the time of a mix"),
        [
            Column(Text("penalty"), lambda mix_fit: NAMES[mix_fit.model]),
            Column(Text("time of a call"), lambda mix_fit: FORMULAS[mix_fit.model]),
            Column(Text("t, per switch"), lambda mix_fit: _scaled(mix_fit.turnaround, "s"), "us"),
            Column(Text("c, per GB"), lambda mix_fit: _scaled(mix_fit.mix_cost, "s", 1e9), "us"),
            Column(Text("D"), lambda mix_fit: _scaled(mix_fit.batch, "iB"), "MiB"),
            Column(Text("p"), lambda mix_fit: _scaled(mix_fit.exponent, "")),
            Column(Text("Br"), lambda mix_fit: Number(mix_fit.read_rate.value, "B/s"), "TB/s"),
            Column(Text("Bw"), lambda mix_fit: Number(mix_fit.write_rate.value, "B/s"), "TB/s"),
            Column(Text("residual"), lambda mix_fit: Number(mix_fit.error, "fraction"), digits=2),
            Column(
                Text("left-out error"),
                lambda mix_fit: Number(mix_fit.left_out_error, "fraction"),
                digits=2,
            ),
            Column(Text("AICc above best"), lambda mix_fit: Number(mix_fit.aicc - models[0].aicc)),
        ],
        models,
        note=Text(
            "R, W: bytes read and written; Br, Bw: bandwidths of one direction; N: switches from "
            "writing to reading; r, w, run: bytes read, written, and of the rarer direction "
            "between two switches; t of the model with r: before 64 MiB of reads. In brackets "
            "95 % confidence intervals. Residual: root mean square of measured against fitted "
            "times; left-out error: the same for each mix predicted from all other cases."
        ),
    )


def _scaled(estimate: Estimate | None, unit: str, factor: float = 1.0) -> Number | None:
    """Return an estimate, times `factor`, with its interval; None where the model has none."""
    if estimate is None:
        return None
    value, low, high = (factor * end for end in (estimate.value, estimate.low, estimate.high))
    return Number(value, unit, low=low, high=high)


def numbers(points: Sequence[Point], models: Sequence[MixFit]) -> dict[str, Json]:
    """Return what metrics.json has of the mixes, in base units."""
    read, write = pure(points)
    return {
        "read_bytes_per_s": known(read),
        "write_bytes_per_s": known(write),
        "mixes": [
            {
                "ratio": p.ratio,
                "way": p.way,
                "run_bytes": p.run_bytes,
                "switches": p.switches,
                "bytes_per_s": known(p.rate),
            }
            for p in points
        ],
        "models": [_model_numbers(mix_fit) for mix_fit in models],
    }


def _model_numbers(mix_fit: MixFit) -> dict[str, Json]:
    estimates = {
        "turnaround_s": mix_fit.turnaround,
        "mix_cost_s_per_byte": mix_fit.mix_cost,
        "batch_bytes": mix_fit.batch,
        "exponent": mix_fit.exponent,
        "read_bytes_per_s": mix_fit.read_rate,
        "write_bytes_per_s": mix_fit.write_rate,
    }
    return {
        "model": mix_fit.model,
        "aicc": known(mix_fit.aicc),
        "relative_residual": known(mix_fit.error),
        "relative_left_out_error": known(mix_fit.left_out_error),
        **{
            name: {"value": known(e.value), "low": known(e.low), "high": known(e.high)}
            for name, e in estimates.items()
            if e is not None
        },
    }


SHORTEST = float(1 << 20)
"""Bytes of a run; what shorter ones cost each is below a microsecond and the same by the byte."""


def bandwidth_chart(points: Sequence[Point]) -> LineFigure:
    """Return measured bandwidth over the length of a run, one line per ratio."""
    series = []
    for ratio in ratios(points):
        switching = _switching(points, ratio)
        if not switching:
            continue
        total = switching[0].reads + switching[0].writes
        series.append(
            Series(
                ratio,
                tuple(p.run_bytes for p in switching),
                tuple(p.rate / 1e12 for p in switching),
                tuple(total / p.high / 1e12 for p in switching),
                tuple(total / p.low / 1e12 for p in switching),
            )
        )
    read, write = pure(points)
    alone = ((read, "reads alone"), (write, "writes alone"))
    return LineFigure(
        name="memory_patterns_mix",
        title="Bandwidth of mixed reads and writes",
        subtitle="One line per ratio of reads to writes, with its 95 % interval.",
        alt="Bandwidth of five ratios of reads to writes over the bytes moved before the direction "
        "changes, and of either direction alone.",
        x_label="run: bytes of the rarer direction before the direction changes",
        y_label="bandwidth, TB/s",
        series=tuple(series),
        x_log=True,
        x_bytes=True,
        y_zero=False,
        levels=tuple((rate / 1e12, words) for rate, words in alone if math.isfinite(rate)),
    )


def turn_chart(points: Sequence[Point], best: MixFit) -> LineFigure | None:
    """Return what each turn costs over the reads that follow it, by measurement and by a model.

    The cost is the time above R / B_read + W / B_write of the model, over the switches.

    Args:
        points: the cases of the fit, in its order.
        best: the model.

    Returns:
        None where all runs are short.
    """
    predicted = dict(zip(points, best.predicted, strict=True))
    costs, residuals = [], []
    for ratio in ratios(points):
        switching = [p for p in _switching(points, ratio) if p.run_bytes >= SHORTEST]
        if not switching:
            continue
        x = tuple(p.reads / p.switches for p in switching)
        modelled = tuple(1e6 * _cost(p, predicted[p], best) for p in switching)
        measured = tuple(1e6 * _cost(p, p.seconds, best) for p in switching)
        costs.append(Series(ratio, x, measured, style="points", group=ratio))
        costs.append(Series(f"{ratio}, model", x, modelled, group=ratio))
        off = tuple(100 * (p.seconds / predicted[p] - 1) for p in switching)
        residuals.append(Series(ratio, x, off, group=ratio))
    if not costs:
        return None
    return LineFigure(
        name="memory_patterns_turn",
        title="Cost of a turnaround from writing to reading",
        subtitle="Points: measured. Dashed: the best model. A constant price would be level. "
        "Runs from 1 MiB on.",
        alt="Time of a switch from writing to reading over the bytes read after it, measured and "
        "modelled, for five ratios; below, measured above modelled times of a call in per cent.",
        x_label="bytes read after a turnaround, before the next",
        x_log=True,
        x_bytes=True,
        panels=(
            Panel("us per turnaround", tuple(costs), y_log=True),
            Panel("call above model, %", tuple(residuals)),
        ),
    )


def _switching(points: Sequence[Point], ratio: str) -> list[Point]:
    switching = [p for p in points if p.ratio == ratio and p.switches and p.way != "launches"]
    return sorted(switching, key=lambda p: p.run_bytes)


def _cost(point: Point, seconds: float, model: MixFit) -> float:
    """Return the seconds a switch that `seconds` are above both directions alone."""
    alone = point.reads / model.read_rate.value + point.writes / model.write_rate.value
    return (seconds - alone) / point.switches
