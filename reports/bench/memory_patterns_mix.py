"""Mixes of reads and writes: bandwidth by ratio and granularity, and what a turnaround costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.reports.bench.memory_patterns_figures import bandwidth_figure, turn_figure
from nsight_prof.reports.bench.memory_patterns_findings import (
    NAMES,
    mix_finding,
    numbers,
    turnaround_finding,
)
from nsight_prof.reports.bench.memory_patterns_points import Point, mix_points, ratios, unmixed
from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Json, LineFigure
from nsight_prof.reports.bench.turnaround_fit import Estimate, MixFit, fit_all
from nsight_prof.reports.bench.turnaround_solve import Mixes
from nsight_prof.reports.cells import Row
from nsight_prof.reports.formats import NA, significant

Z = 1.96
"""Half-width of a 95 % interval in standard errors."""

FORMULAS = {
    "none": "R/Br + W/Bw",
    "switches": "R/Br + W/Bw + N t",
    "mix": "R/Br + W/Bw + min(R, W) c",
    "batched": "R/Br + W/Bw + min(R, W) / max(run, D) t",
    "drain": "R/Br + W/Bw + N c r^p min(w, D)^(1-p)",
}


@dataclass(frozen=True)
class MixView:
    """What a section says of the mixes."""

    findings: tuple[BenchFinding, ...]
    tables: tuple[BenchTable, ...]
    figures: tuple[LineFigure, ...]
    numbers: dict[str, Json]


def fitted(points: Sequence[Point]) -> tuple[list[Point], list[MixFit]]:
    """Return the points that a fit may use, and all models, the best first.

    Two launches are left out: they pay for a launch, too.
    """
    used = [point for point in points if point.way != "launches"]
    if not used:
        return [], []
    mixes = Mixes(
        reads=np.array([point.reads for point in used]),
        writes=np.array([point.writes for point in used]),
        switches=np.array([point.switches for point in used]),
        seconds=np.array([point.seconds for point in used]),
        sigma=np.array([_sigma(point) for point in used]),
    )
    return used, fit_all(mixes)


def _sigma(point: Point) -> float:
    half = (point.high - point.low) / 2
    return half / Z if math.isfinite(half) else 0.0


def mix_view(rows: Sequence[Row]) -> MixView | None:
    """Return findings, tables and figures of the mixes; None without a measured one."""
    points = mix_points(rows)
    if not points:
        return None
    used, models = fitted(points)
    tables = [bandwidth_table(points)]
    figures = [bandwidth_figure(points)]
    if models:
        tables.append(model_table(models))
        turn = turn_figure(used, models[0])
        figures += [turn] if turn else []
    findings = (*mix_finding(points), *turnaround_finding(models, points))
    return MixView(findings, tuple(tables), tuple(figures), numbers(points, models))


def bandwidth_table(points: Sequence[Point]) -> BenchTable:
    """Return bandwidth by ratio and granularity."""
    headings = list(dict.fromkeys(point.column for point in points if point.way != "alone"))
    rates = {(point.ratio, point.column): point.rate for point in points}
    alone = {point.ratio: point.rate for point in points if point.way == "alone"}
    rows = []
    for ratio in ratios(points):
        if ratio in alone:
            rows.append((ratio, _tera(alone[ratio]), *("" for _ in headings)))
            continue
        found = [rates.get((ratio, heading)) for heading in headings]
        rows.append((ratio, _tera(unmixed(points, ratio)), *(_tera(rate) for rate in found)))
    return BenchTable(
        title="Bandwidth of mixes by the length of a run, TB/s of bytes read and written",
        columns=("read:write", "no mixing", *headings),
        rows=tuple(rows),
        note="No mixing: one direction alone, or the same bytes at the two pure bandwidths. A run "
        "is what is read or written before the direction changes, of the rarer direction; the "
        "other has as many times more as the ratio says.",
        left=("read:write",),
    )


def _tera(rate: float | None) -> str:
    return NA if rate is None or not math.isfinite(rate) else significant(rate / 1e12)


def estimate_text(estimate: Estimate | None, scale: float = 1.0, unit: str = "") -> str:
    """Return "1.92 us (1.7 to 2.1)" of an estimate times `scale`; "" where there is none."""
    if estimate is None:
        return ""
    value, low, high = (
        significant(scale * end) for end in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value}{f' {unit}' if unit else ''} ({low} to {high})"


def _turnaround_text(estimate: Estimate | None) -> str:
    """Return a time a switch in the unit that suits it: it spans microseconds to picoseconds."""
    if estimate is None:
        return ""
    scale, unit = (1e6, "us") if abs(estimate.value) >= 1e-8 else (1e12, "ps")
    return estimate_text(estimate, scale, unit)


def _per_cent(error: float) -> str:
    return NA if not math.isfinite(error) else f"{significant(100 * error, 2)} %"


def model_table(models: Sequence[MixFit]) -> BenchTable:
    """Return the models side by side, the best first."""
    rows = tuple(
        (
            NAMES[one.model],
            FORMULAS[one.model],
            _turnaround_text(one.turnaround),
            estimate_text(one.mix_cost, 1e15),
            estimate_text(one.batch, 2.0**-20),
            estimate_text(one.exponent),
            f"{_tera(one.read_rate.value)}, {_tera(one.write_rate.value)}",
            _per_cent(one.error),
            _per_cent(one.left_out_error),
            significant(one.aicc - models[0].aicc),
        )
        for one in models
    )
    return BenchTable(
        title="Models of the time of a mix",
        columns=(
            "penalty",
            "time of a call",
            "t, a switch",
            "c, us a GB",
            "D, MiB",
            "p",
            "Br, Bw, TB/s",
            "residual",
            "left-out error",
            "AICc above best",
        ),
        rows=rows,
        note="R, W: bytes read and written; Br, Bw: bandwidths of one direction; N: switches from "
        "writing to reading; r, w, run: bytes read, written, and of the rarer direction between "
        "two switches; t of the model with r: before 64 MiB of reads. In brackets 95 % confidence "
        "intervals. Residual: root mean square of measured against fitted times; "
        "left-out error: the same for each mix predicted from all other cases.",
        left=("penalty", "time of a call"),
    )
