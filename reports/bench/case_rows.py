"""Leads from the findings of a section to the rows of its tables that show their cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import Row, text
from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Source

USUAL = ("cold", "normal")
"""Mode and data of a case that its name need not tell."""


def sources(rows: Iterable[Row]) -> tuple[Source, ...]:
    """Return the cases of rows of table `bench`, each once, not yet with the row that shows it."""
    named = {case_anchor(row): Source(_name(row), case_anchor(row)) for row in rows}
    return tuple(named.values())


def case_anchor(row: Row) -> str:
    """Return the id of the table row of a case: letters and digits of its `case_id`, and dashes."""
    return "case-" + "".join(c if c.isalnum() else "-" for c in text(row["case_id"]))


def _name(row: Row) -> str:
    state = text(row["mode"]), text(row["data"])
    return "|".join((text(row["name"]), *(() if state == USUAL else state)))


def placed(
    findings: Sequence[BenchFinding], tables: Sequence[BenchTable]
) -> tuple[tuple[BenchFinding, ...], tuple[BenchTable, ...]]:
    """Return findings whose cases lead to a row each, and tables with the ids of these rows alone.

    Tables come with the ids of all cases of each row. A case that several rows show is led to the
    one of its own, else to that of the first table; one that no row shows keeps its name without a
    link. Cases that share a row are told together.
    """
    wanted = {case.anchor for finding in findings for case in finding.cases}
    home: dict[str, tuple[bool, int, int]] = {}
    for place, table in enumerate(tables):
        for number, ids in enumerate(table.anchors):
            for anchor in wanted.intersection(ids):
                row = (len(ids) > 1, place, number)
                home[anchor] = min(home.get(anchor, row), row)
    first: dict[tuple[bool, int, int], str] = {}
    for anchor in sorted(home):
        first.setdefault(home[anchor], anchor)
    of_row = {(place, number): anchor for (_, place, number), anchor in first.items()}
    kept = tuple(
        replace(
            table,
            anchors=tuple(
                (of_row[place, number],) if (place, number) in of_row else ()
                for number in range(len(table.rows))
            ),
        )
        for place, table in enumerate(tables)
    )
    led = {anchor: first[row] for anchor, row in home.items()}
    return tuple(replace(f, cases=_merged(f.cases, led)) for f in findings), kept


def _merged(cases: Sequence[Source], led: dict[str, str]) -> tuple[Source, ...]:
    rows: dict[str, list[str]] = {}
    for case in cases:
        rows.setdefault(led.get(case.anchor, f" {case.name}"), []).append(case.name)
    return tuple(
        Source(_together(names), "" if anchor.startswith(" ") else anchor)
        for anchor, names in rows.items()
    )


def _together(names: Sequence[str]) -> str:
    """Return names, what is before their last stroke once where it is the same."""
    shapes = {name.rpartition("/")[0] for name in names}
    if len(names) == 1 or len(shapes) > 1:
        return ", ".join(names)
    return f"{shapes.pop()}/{', '.join(name.rpartition('/')[2] for name in names)}"
