"""How well a benchmark repeats: each roof, or each case, over repeats of the whole recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench.stats import spread
from nsight_prof.parsers.cells import number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.roofs import MeasuredRoof, measured_roofs
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Finding,
    Number,
    Ref,
    Section,
    Table,
    Text,
    arranged,
)

KEY = "repeatability"
MOST_COLUMNS = 4
"""Repeats above which their values share a column."""
DIGITS = 4
"""Of measured roofs: they repeat within 0.1 %, which three digits would hide."""


@dataclass(frozen=True)
class Repeated:
    """One roof or case: its value in each repeat and how far these lie apart.

    Attributes:
        values: in base units, one per repeat.
        spread: largest minus smallest time over the median of them.
        processes: the same over the medians of single processes.
        clocks: SM clocks of the repeats in Hz.
        host: it is about the host, whose other work disturbs it.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    spread: float
    processes: float
    clocks: tuple[float, ...]
    host: bool = False

    @property
    def ref(self) -> Ref:
        """Its row in the table of this section."""
        return Ref(KEY, self.name, "spread")

    @property
    def numbers(self) -> list[Number]:
        """Its values as they are shown."""
        return [Number(value, self.unit, digits=DIGITS) for value in self.values]

    @property
    def clock_spread(self) -> Number | None:
        """How far the SM clocks lie apart; None where none is known."""
        found = [clock for clock in self.clocks if math.isfinite(clock)]
        return Number((max(found) - min(found)) / max(found), "fraction") if found else None


def section(run: Run) -> Section | None:
    """Return the repeatability of roofs, or of cases without roofs; None for a single repeat."""
    if run.bench_runs.empty or run.bench_runs["repeat"].nunique() < 2:
        return None
    roofs = [roof for roof in measured_roofs(run) if roof.case and roof.unit != "cycles"]
    every = [_of_roof(run, roof) for roof in roofs] if roofs else _of_cases(run)
    found = sorted(
        (repeated for repeated in every if len(repeated.values) > 1),
        key=lambda repeated: -repeated.spread,
    )
    if not found:
        return None
    repeats = int(run.bench_runs["repeat"].nunique())
    what = Text("roof") if roofs else Text("case")
    method = (
        Text(
            "The whole recipe ran {n} time, in fresh processes.",
            "The whole recipe ran {n} times, each in fresh processes.",
            n=repeats,
        ),
        Text(
            "The value of a repeat is the median over its processes of the median time per call; "
            "repeatability is the largest minus the smallest of these times over their median."
        ),
    )
    tables = [_table(found, what, repeats)]
    return Section(
        KEY,
        Text("Repeatability"),
        arranged((), [_finding(found, repeats)], (), tables, method),
        numbers={repeated.name: _json(repeated) for repeated in found},
    )


def _of_roof(run: Run, roof: MeasuredRoof) -> Repeated:
    rows = run.bench_runs[run.bench_runs["case_id"] == text(roof.case["case_id"])]
    times = _medians(rows)
    middle = number(roof.case["median_s"])
    rate = roof.unit != "s"
    values = tuple(roof.value * (middle / t if rate else t / middle) for t in times)
    return _repeated(roof.name, values, roof.unit, rows, host=roof.key == "host")


def _of_cases(run: Run) -> list[Repeated]:
    cases = run.bench_runs.groupby("case_id", sort=False)
    return [_repeated(str(case), _medians(rows), "s", rows) for case, rows in cases]


def _repeated(
    name: str, values: tuple[float, ...], unit: str, rows: pd.DataFrame, *, host: bool = False
) -> Repeated:
    clocks = tuple(float(c) for c in rows.groupby("repeat")["clock_hz"].median())
    processes = spread([float(t) for t in rows["median_s"]])
    return Repeated(name, values, unit, spread(_medians(rows)), processes, clocks, host)


def _medians(rows: pd.DataFrame) -> tuple[float, ...]:
    """Return the median time of each repeat, in the order of the repeats."""
    return tuple(float(t) for t in rows.groupby("repeat")["median_s"].median())


def _finding(found: Sequence[Repeated], repeats: int) -> Finding:
    """State within what all repeat; `found` is sorted, the worst first."""
    on_gpu = [repeated for repeated in found if not repeated.host] or list(found)
    worst = on_gpu[0]
    within = Number(worst.spread, "fraction", (worst.ref,))
    verdict = Text(
        "Differences above {within} are real: measured {n} times over, the results agree within "
        "that.",
        within=within,
        n=repeats,
    )
    evidence = [
        Evidence(
            Text("half of them agree within"),
            Number(float(np.median([repeated.spread for repeated in on_gpu])), "fraction"),
        ),
        Evidence(Text("the worst is {name}:", name=worst.name), worst.numbers),
    ]
    if (clocks := worst.clock_spread) is not None:
        evidence.append(Evidence(Text("its SM clocks lie apart by"), clocks))
    if host := [repeated for repeated in found if repeated.host and repeated not in on_gpu]:
        of_host = max(host, key=lambda repeated: repeated.spread)
        evidence.append(
            Evidence(
                Text("transfers and launches of the host agree within"),
                Number(of_host.spread, "fraction", (of_host.ref,)),
            )
        )
    return Finding(
        "repeatability",
        verdict,
        tuple(evidence),
        disproof=Text("A repeat on another day, or on another GPU of the kind, that differs more."),
    )


def _table(found: Sequence[Repeated], what: Text, repeats: int) -> Table[Repeated]:
    values = [Column[Repeated](Text("Repeats"), lambda repeated: repeated.numbers)]
    if repeats <= MOST_COLUMNS:
        values = [_repeat(n) for n in range(repeats)]
    return Table(
        KEY,
        Text("How far the repeats of each {what} lie apart", what=what),
        [
            Column(Text("Measured"), lambda repeated: repeated.name),
            *values,
            Column(Text("Repeatability"), lambda repeated: Number(repeated.spread, "fraction")),
            Column(
                Text("Spread of all processes"),
                lambda repeated: Number(repeated.processes, "fraction"),
            ),
            Column(Text("SM clocks apart"), lambda repeated: repeated.clock_spread),
        ],
        found,
        note=Text("The largest spread first."),
        refs=lambda repeated: [repeated.ref],
    )


def _repeat(n: int) -> Column[Repeated]:
    return Column(
        Text("Repeat {n}", n=n + 1),
        lambda repeated: repeated.numbers[n] if n < len(repeated.values) else None,
    )


def _json(repeated: Repeated) -> dict[str, object]:
    return {
        "values": list(repeated.values),
        "unit": repeated.unit,
        "repeatability": repeated.spread,
        "process_spread": repeated.processes,
    }
