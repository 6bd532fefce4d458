"""Makes sections of text that is formatted already into sections of reports.page.

Goes away with the last module that makes `reports.bench.models.Section`.
"""

from __future__ import annotations

import math

from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Section, Source
from nsight_prof.reports.html.order import sort_key
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Fact,
    Figure,
    Finding,
    Name,
    Ref,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.page import Section as PageSection

Row = tuple[int, tuple[str, ...]]


def page_section(section: Section) -> PageSection:
    """Return a section of formatted text as one of values that are shown as they are."""
    tables = (_table(f"{section.key}-{n + 1}", table) for n, table in enumerate(section.tables))
    method = Bullets(Text("How it was measured"), tuple(map(verbatim, section.method)))
    return PageSection(
        section.key,
        verbatim(section.title),
        (
            *((verbatim(section.intro),) if section.intro else ()),
            *map(_finding, section.findings),
            *(Figure(figure) for figure in section.figures),
            *tables,
            *((method,) if section.method else ()),
        ),
        numbers=section.numbers,
        facts=tuple(Fact(verbatim(what), Verbatim(value)) for what, value in section.plain),
    )


def verbatim(text: str) -> Text:
    """Return a sentence as the value of a message, so that it is shown as it is."""
    return Text("{verbatim}", verbatim=Verbatim(text))


def _finding(finding: BenchFinding) -> Finding:
    return Finding(
        "",
        verbatim(finding.sentence),
        (verbatim(finding.evidence),) if finding.evidence else (),
        disproof=verbatim(finding.limits) if finding.limits else None,
        source=tuple(map(_name, finding.cases)),
        plain=verbatim(finding.plain) if finding.plain else None,
        technical=not finding.plain,
    )


def _name(source: Source) -> Name:
    return Name(source.name, _Anchor(source.anchor) if source.anchor else None)


class _Anchor(Ref):
    """A row by the id that it has already."""

    def __init__(self, anchor: str) -> None:
        super().__init__("", anchor)

    @property
    def anchor(self) -> str:
        """The id."""
        return self.row


def _table(key: str, table: BenchTable) -> Table[Row]:
    rows = list(enumerate(table.rows))
    return Table(
        key,
        verbatim(table.title),
        [_column(table, place) for place in range(len(table.columns))],
        rows,
        note=verbatim(table.note) if table.note else None,
        lead=verbatim(table.lead) if table.lead else None,
        refs=lambda row: [_Anchor(one) for one in table.anchors[row[0]]] if table.anchors else [],
        folded=table.folded,
    )


def _column(table: BenchTable, place: int) -> Column[Row]:
    cells = [row[place] for row in table.rows]
    keys = [sort_key(cell) for cell in cells]
    one_unit = len({key.unit for key in keys if key is not None}) <= 1
    numeric = table.columns[place] not in table.left

    def cell(row: Row) -> Value:
        key = keys[row[0]]
        known = key.value if key is not None and one_unit else math.nan
        return Verbatim(row[1][place], known if numeric else None)

    return Column(verbatim(table.columns[place]), cell)
