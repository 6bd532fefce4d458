"""The cases of targets that have no study: time, rates, and how near they come to the roof."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nsight_prof.parsers.cells import Row, count, known, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import (
    case_name,
    case_ref,
    cases,
    measured,
    roof_used,
    shape_text,
)
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Finding,
    Interval,
    Name,
    Number,
    Section,
    Table,
    Text,
)

KEY = "generic"
FOLD_FROM = 60
"""Cases from which a table is shown only when a reader opens it."""


def section(run: Run, covered: Collection[str] = ()) -> Section | None:
    """Return a table for each target but those that are `covered`; None where all are."""
    targets = [text(t) for t in run.bench["target"].dropna().unique() if t not in covered]
    by_target = {t: rows for t in targets if (rows := measured(cases(run, t)))}
    if not by_target:
        return None
    findings = [_finding(rows) for rows in by_target.values()]
    tables = [_table(target, rows) for target, rows in by_target.items()]
    return Section(
        KEY,
        Text("Cases of {targets}", targets=list(by_target)),
        (*findings, *tables),
        numbers={target: {"cases": len(rows)} for target, rows in by_target.items()},
    )


def _finding(rows: Sequence[Row]) -> Finding:
    """State which case is farthest from its roof; without roofs, how long the first one takes."""
    ranked = sorted(
        (row for row in rows if known(row["roof_fraction"]) is not None),
        key=lambda row: number(row["roof_fraction"]),
    )
    if not ranked:
        return _time(rows[0])
    worst, best = ranked[0], ranked[-1]
    verdict = Text(
        "{case} reaches {share} of its roof ({roof}).",
        case=_operation(best),
        share=_number(best, "roof_fraction", "fraction"),
        roof=roof_used(best),
    )
    if len(ranked) > 1:
        verdict = Text(
            "{worst} is farthest from its roof ({low} of {low_roof}); {best} reaches {high} of "
            "{high_roof}.",
            worst=_operation(worst),
            low=_number(worst, "roof_fraction", "fraction"),
            low_roof=roof_used(worst),
            best=_operation(best),
            high=_number(best, "roof_fraction", "fraction"),
            high_roof=roof_used(best),
        )
    lost = (1 - number(worst["roof_fraction"])) * number(worst["median_s"])
    return Finding(
        "roof_share",
        verdict,
        (
            Text("medians of {n} or more samples", n=min(count(row["n"]) or 0 for row in ranked)),
            Evidence(Text("roofs:"), text(worst["roof_source"])),
        ),
        gain=Number(lost, "s", (case_ref(worst),)) if lost > 0 else None,
        source=tuple({name.name: name for name in map(case_name, (worst, best))}.values()),
    )


def _time(row: Row) -> Finding:
    evidence = [
        Text(
            "median of {n} samples in {processes}",
            n=count(row["n"]) or 0,
            processes=Text("{n} process", "{n} processes", n=count(row["processes"]) or 0),
        )
    ]
    if known(row["flop_per_s"]) is not None:
        evidence.append(Text("computes at {rate}", rate=_number(row, "flop_per_s", "FLOP/s")))
    return Finding(
        "case_time",
        Text(
            "{case} takes {time}; no roof is known to hold it against.",
            case=_operation(row),
            time=_number(row, "median_s", "s"),
        ),
        tuple(evidence),
        action=Text("Measure the roofs of this GPU: {command}.", command=Name("prof run roofline")),
        source=(case_name(row),),
    )


def _operation(row: Row) -> str:
    return text(row["operation"]) or text(row["name"])


def _number(row: Row, column: str, unit: str) -> Number:
    return Number(number(row[column]), unit, (case_ref(row, column),))


def _table(target: str, rows: list[Row]) -> Table[Row]:
    """Return time, rates and share of the measured roof of each case."""

    def cell(heading: Text, column: str, unit: str) -> Column[Row]:
        def value(row: Row) -> Number | None:
            return None if known(row[column]) is None else _number(row, column, unit)

        return Column(heading, value)

    return Table(
        f"cases-{target}",
        Text("Cases of {target}", target=target),
        [
            Column(Text("Case"), _case),
            cell(Text("Median"), "median_s", "s"),
            Column(
                Text("95 % interval"),
                lambda row: Interval(number(row["ci_low_s"]), number(row["ci_high_s"]), "s"),
            ),
            Column(Text("Samples"), lambda row: count(row["n"])),
            cell(Text("Compute rate"), "flop_per_s", "FLOP/s"),
            cell(Text("Bandwidth"), "bytes_per_s", "B/s"),
            cell(Text("Peak memory"), "peak_allocated_bytes", "B"),
            cell(Text("Of the measured roof"), "roof_fraction", "fraction"),
            Column(Text("Roof"), lambda row: roof_used(row) or None),
            Column(Text("Mode, data"), lambda row: f"{text(row['mode'])}, {text(row['data'])}"),
        ],
        rows,
        note=Text(
            "Of the measured roof: of what the roofs allow at the bytes and FLOPs of the case."
        ),
        refs=lambda row: [case_ref(row)],
        folded=len(rows) > FOLD_FROM,
    )


def _case(row: Row) -> str:
    shape = shape_text(row["params"])
    return f"{_operation(row)}: {shape}" if shape else _operation(row)
