"""How well a benchmark repeats: each roof, or each case, over repeats of the whole recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench_stats import spread
from nsight_prof.reports.bench.cases import value_text
from nsight_prof.reports.bench.models import Bar, BarFigure, BenchFinding, BenchTable, Section
from nsight_prof.reports.bench.roofs import MeasuredRoof, measured_roofs
from nsight_prof.reports.cells import known, number, text
from nsight_prof.reports.formats import clock, count, counted, share, significant
from nsight_prof.reports.load import Run

SHOWN = 40
"""Bars of the figure, and cases in the table; of roofs the table has all."""


@dataclass(frozen=True)
class Repeated:
    """One roof or case: its value in each repeat and how far these lie apart.

    `spread` is largest minus smallest time over the median of them; `processes` the same over the
    medians of single processes. `clocks` are the SM clocks of the repeats in Hz. `host`: it is
    about the host, whose other work disturbs it.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    spread: float
    processes: float
    clocks: tuple[float, ...]
    host: bool = False


def section(run: Run) -> Section | None:
    """Return the repeatability of roofs, or of cases without roofs; None for a single repeat."""
    if run.bench_runs.empty or run.bench_runs["repeat"].nunique() < 2:
        return None
    roofs = [roof for roof in measured_roofs(run) if roof.case and roof.unit != "cycles"]
    found = [_of_roof(run, roof) for roof in roofs] if roofs else _of_cases(run)
    found = [one for one in found if len(one.values) > 1]
    if not found:
        return None
    what = "roof" if roofs else "case"
    repeats = int(run.bench_runs["repeat"].nunique())
    found.sort(key=lambda one: -one.spread)
    shown = found[:SHOWN]
    return Section(
        key="repeatability",
        title="Repeatability",
        intro=f"The whole recipe ran {counted(repeats, 'time')}, each time in fresh processes.",
        findings=(_finding(found, what, repeats),),
        tables=(_table(found if roofs else shown, what, repeats),),
        figures=(_figure(shown, what, len(found)),),
        method=(
            "A repeat's value is that of the median over its processes of the median time of a "
            "call. Repeatability is the largest minus the smallest such time over their median.",
        ),
        numbers={one.name: _numbers(one) for one in found},
    )


def _of_roof(run: Run, roof: MeasuredRoof) -> Repeated:
    rows = run.bench_runs[run.bench_runs["case_id"] == text(roof.case["case_id"])]
    times = _medians(rows)
    middle = number(roof.case["median_s"])
    rate = roof.unit != "s"
    values = tuple(roof.value * (middle / t if rate else t / middle) for t in times)
    return Repeated(roof.name, values, roof.unit, spread(times), _processes(rows), _clocks(rows),
                    roof.key == "host")  # fmt: skip


def _of_cases(run: Run) -> list[Repeated]:
    return [
        Repeated(str(case), (times := _medians(rows)), "s", spread(times), _processes(rows),
                 _clocks(rows))
        for case, rows in run.bench_runs.groupby("case_id", sort=False)
    ]  # fmt: skip


def _medians(rows: pd.DataFrame) -> tuple[float, ...]:
    """Return the median time of each repeat, in the order of the repeats."""
    return tuple(float(t) for t in rows.groupby("repeat")["median_s"].median())


def _clocks(rows: pd.DataFrame) -> tuple[float, ...]:
    return tuple(float(c) for c in rows.groupby("repeat")["clock_hz"].median())


def _processes(rows: pd.DataFrame) -> float:
    return spread([float(t) for t in rows["median_s"]])


def _finding(found: list[Repeated], what: str, repeats: int) -> BenchFinding:
    """Say within what all repeat; `found` is sorted, the worst first."""
    own = [one for one in found if not one.host] or found
    worst = own[0]
    half = share(float(np.median([one.spread for one in own])))
    sentence = (
        f"All {len(own)} {what}s repeat within {share(worst.spread)} over {repeats} repeats, half "
        f"of them within {half}; the worst is {worst.name}"
    )
    if len(own) == 1:
        sentence = f"The {what} {worst.name} repeats within {share(worst.spread)}"
    if len(own) < len(found):
        host = max(one.spread for one in found if one.host)
        sentence += f". Transfers and launches of the host repeat within {share(host)}"
    said = "the results of the GPU alone" if len(own) < len(found) else "the results"
    moved = _clock_words(worst)
    evidence = f"{worst.name} was {_listed(worst)} in turn{moved}."
    return BenchFinding(
        f"{sentence}.",
        evidence,
        "Would be disproved by a repeat on another day, or on another GPU of the kind, that lies "
        "outside of this spread.",
        f"Measured {repeats} times over, {said} agree within {share(worst.spread)}.",
    )


def _clock_words(one: Repeated) -> str:
    if not one.clocks or any(math.isnan(c) for c in one.clocks):
        return ""
    low, high = min(one.clocks), max(one.clocks)
    if low == high:
        return f", at {clock(low)} each time"
    return f", at SM clocks that lie {share((high - low) / high)} apart"


def _listed(one: Repeated) -> str:
    return ", ".join(value_text(value, one.unit) for value in one.values)


def _table(shown: list[Repeated], what: str, repeats: int) -> BenchTable:
    heads = (
        what.capitalize(),
        *(("Repeats",) if repeats > 4 else tuple(f"Repeat {n + 1}" for n in range(repeats))),
        "Repeatability",
        "Spread of all processes",
        "SM clocks apart",
    )
    return BenchTable(
        f"Repeatability of each {what}",
        heads,
        tuple(_row(one, repeats) for one in shown),
        "The largest spread first.",
        (what.capitalize(),),
    )


def _row(one: Repeated, repeats: int) -> tuple[str, ...]:
    values = [value_text(value, one.unit) for value in one.values]
    values += ["–"] * (repeats - len(values))
    cells = [", ".join(values)] if repeats > 4 else values
    clocks = [c for c in one.clocks if known(c) is not None]
    apart = share((max(clocks) - min(clocks)) / max(clocks)) if clocks else "–"
    return (one.name, *cells, share(one.spread), share(one.processes), apart)


def _figure(shown: list[Repeated], what: str, everything: int) -> BarFigure:
    return BarFigure(
        "repeatability",
        f"How far the repeats of each {what} lie apart",
        f"Bars: largest minus smallest of the repeats over their median, for each {what}",
        "Largest minus smallest over the median (%)",
        tuple(
            Bar(one.name, 100 * one.spread, text=f"{significant(100 * one.spread, 2)} %")
            for one in shown
        ),
        subtitle=f"The {count(len(shown))} with the largest spread."
        if len(shown) < everything
        else "",
    )


def _numbers(one: Repeated) -> dict[str, object]:
    return {
        "values": list(one.values),
        "unit": one.unit,
        "repeatability": one.spread,
        "process_spread": one.processes,
    }
