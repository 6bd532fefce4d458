"""Figures of the mixes: bandwidth by the length of a run, and the cost of a turn by its reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.reports.page.charts import LineFigure, Panel, Series
from nsight_prof.reports.studies.memory_patterns.points import Point, pure, ratios
from nsight_prof.reports.studies.memory_patterns.turnaround_fit import MixFit

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
