"""The table of any benchmark target that has no section of its own: latency, rates, the roof."""

from __future__ import annotations

import math
from collections.abc import Collection

from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.bench.cases import cases, measured, params_of, shape_text
from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Section
from nsight_prof.reports.formats import byte_rate, count, flop_rate, listed, seconds, share
from nsight_prof.reports.load import Run

FOLD_FROM = 60
"""Cases from which a table is shown only when a reader opens it."""


def section(run: Run, told: Collection[str] = ()) -> Section | None:
    """Return a table for each target but those that are `told` already; None where all are."""
    targets = [text(t) for t in run.bench["target"].dropna().unique() if t not in told]
    tables, findings, numbers = [], [], {}
    for target in targets:
        rows = measured(cases(run, target))
        if not rows:
            continue
        tables.append(table(target, rows))
        findings += _findings(rows)
        numbers[target] = {"cases": len(rows)}
    if not tables:
        return None
    return Section(
        key="generic",
        title=f"Cases of {listed(targets)}",
        intro="",
        findings=tuple(findings),
        tables=tuple(tables),
        numbers=numbers,
    )


def table(target: str, rows: list[Row]) -> BenchTable:
    """Return latency, rates and fraction of the measured roof of each case."""
    return BenchTable(
        f"Cases of {target}",
        (
            "Case",
            "Median",
            "95 % interval",
            "n",
            "FLOP/s",
            "B/s",
            "Of the measured roof",
            "Roof",
            "Mode, data",
        ),
        tuple(_row(row) for row in rows),
        "Of the measured roof: of what the roofs allow at the bytes and FLOPs of the case.",
        ("Case", "Roof", "Mode, data"),
        folded=len(rows) > FOLD_FROM,
    )


def _row(row: Row) -> tuple[str, ...]:
    shape = shape_text(params_of(row) if not isinstance(row["params"], dict) else row["params"])
    name = text(row["operation"]) or text(row["name"])
    return (
        f"{name}: {shape}" if shape else name,
        seconds(row["median_s"]),
        f"{seconds(row['ci_low_s'])} to {seconds(row['ci_high_s'])}",
        count(row["n"]),
        flop_rate(row["flop_per_s"]) if known(row["flop_per_s"]) is not None else "–",
        byte_rate(row["bytes_per_s"]) if known(row["bytes_per_s"]) is not None else "–",
        share(row["roof_fraction"]) if known(row["roof_fraction"]) is not None else "–",
        text(row["roof_used"]) or "–",
        f"{text(row['mode'])}, {text(row['data'])}",
    )


def _findings(rows: list[Row]) -> list[BenchFinding]:
    """Say how near the cases come to the roof, where any roof is known."""
    known_ones = [r for r in rows if not math.isnan(number(r["roof_fraction"]))]
    if not known_ones:
        return [_fastest(row) for row in rows[:1]]
    best = max(known_ones, key=lambda r: number(r["roof_fraction"]))
    poorest = min(known_ones, key=lambda r: number(r["roof_fraction"]))
    sentence = (
        f"{_name(best)} reaches {share(best['roof_fraction'])} of its measured roof "
        f"({text(best['roof_used'])})"
    )
    if len(known_ones) > 1:
        sentence += f", {_name(poorest)} {share(poorest['roof_fraction'])}"
    evidence = f"medians of {count(best['n'])} samples; roofs: {text(best['roof_source'])}."
    return [BenchFinding(f"{sentence}.", evidence)]


def _fastest(row: Row) -> BenchFinding:
    rate = known(row["flop_per_s"])
    speed = f", {flop_rate(rate)}" if rate is not None else ""
    sentence = f"{_name(row)} takes {seconds(row['median_s'])}{speed}."
    evidence = f"median of {count(row['n'])} samples in {count(row['processes'])} processes."
    return BenchFinding(sentence, evidence)


def _name(row: Row) -> str:
    return text(row["operation"]) or text(row["name"])
