"""What all renderers of a section say: fixed words, and which rows of a table are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nsight_prof.reports.page.section import Column, Evidence, Finding, Section, Table
from nsight_prof.reports.page.values import Name, Number, Text, Value
from nsight_prof.reports.page.writer import Writer

LEVELS = {"high": Text("high"), "medium": Text("medium"), "low": Text("low")}


def lines(finding: Finding, write: Writer) -> Iterator[str]:
    """Yield what stands below the verdict of a finding, one line for each matter."""
    gain = "" if finding.gain is None else write.value(finding.gain)
    sure = write.text(LEVELS[finding.confidence]) if finding.confidence else ""
    matters = (
        (Text("Do: "), write.text(finding.action) if finding.action else ""),
        (Text("Saves: "), gain),
        (Text("Confidence: "), sure),
        (Text("Evidence: "), "; ".join(_evidence(one, write) for one in finding.evidence)),
        (Text("Found in: "), "; ".join(write.value(one) for one in finding.source)),
        (Text("Limits: "), write.text(finding.disproof) if finding.disproof else ""),
    )
    yield from (f"{write.text(label)}{words}" for label, words in matters if words)


def _evidence(one: Evidence | Text, write: Writer) -> str:
    if isinstance(one, Text):
        return write.text(one)
    return f"{write.text(one.label)} {write.value(one.value)}"


def heading(column: Column[Any], write: Writer) -> str:
    """Return the heading of a column with its unit behind it."""
    name = write.text(column.heading)
    return f"{name}, {write.markup.escape(column.unit)}" if column.unit else name


def more(table: Table[Any], shown: Sequence[int]) -> list[Text]:
    """Return what to say below a table that a page shows in part."""
    left = len(table.rows) - len(shown)
    return [Text("{n} more rows are in report.html and metrics.json.", n=left)] if left else []


def wanted(section: Section) -> frozenset[str]:
    """Return the ids of rows that the findings of a section lead to."""
    found = set()
    for finding in section.findings:
        for value in values(finding):
            refs = value.refs if isinstance(value, Number) else ()
            if isinstance(value, Name) and value.ref is not None:
                refs = (value.ref,)
            found |= {ref.anchor for ref in refs}
    return frozenset(found)


def values(finding: Finding) -> list[Value]:
    """Return all values of a finding, those of its texts included."""
    given: list[Value | None] = [finding.verdict, finding.action, finding.disproof, finding.gain]
    given += [one if isinstance(one, Text) else one.value for one in finding.evidence]
    return [inner for one in (*given, *finding.source) if one is not None for inner in _inside(one)]


def _inside(value: Value) -> list[Value]:
    if isinstance(value, Text):
        return [inner for one in value.values.values() for inner in _inside(one)]
    if isinstance(value, (list, tuple)):
        return [inner for one in value for inner in _inside(one)]
    return [value]


def shown_rows(table: Table[Any], wanted: frozenset[str]) -> list[int]:
    """Return the rows that a page shows of a long table: the first, and what findings lead to."""
    anchors, first = table.row_anchors(), table.first_rows
    return [n for n in range(len(table.rows)) if n < first or wanted.intersection(anchors[n])]


def shown_by_table(section: Section, wanted: frozenset[str]) -> dict[str, list[int]]:
    """Return the rows that a page shows of each table; what findings lead to stands in one."""
    shown, remaining = {}, wanted
    for table in section.tables:
        shown[table.key] = shown_rows(table, remaining)
        anchors = table.row_anchors()
        remaining = remaining.difference(*(anchors[row] for row in shown[table.key]))
    return shown


def row_ids(table: Table[Any], wanted: frozenset[str], rows: list[int]) -> dict[int, list[str]]:
    """Return the ids that each of the `rows` gets: only what is led to, for small pages."""
    anchors = table.row_anchors()
    return {n: [a for a in dict.fromkeys(anchors[n]) if a in wanted] for n in rows}


def reasons(table: Table[Any]) -> list[Text]:
    """Return why values of a table are missing, each reason once."""
    cells = (cell for row in table.cells() for cell in row)
    found = (cell.missing for cell in cells if isinstance(cell, Number) and cell.value is None)
    why = "; ".join(dict.fromkeys(found))
    return [Text("n/a: {reasons}.", reasons=why)] if why else []
