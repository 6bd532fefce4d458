"""Writes a section as HTML: tables sort by the numbers themselves, figures stand on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from nsight_prof.reports.page import frame
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.section import (
    Block,
    Bullets,
    Column,
    Figure,
    Finding,
    Footer,
    Section,
    Table,
    sort_value,
)
from nsight_prof.reports.page.values import Link, Number, Strong, Text
from nsight_prof.reports.page.writer import InHtml, Writer

LONG = 24
"""Columns with longer texts are not squeezed to one word per line."""
HTML = Writer(markup=InHtml())
LEAST_ROWS = 3
"""Shorter tables are read at a glance: nothing is to be sorted."""


class Heading(NamedTuple):
    """A heading of the page: its level 1 to 6, its text, and its id."""

    level: int
    text: str
    id: str


@dataclass(frozen=True)
class Fragment:
    """The HTML of a section, and its headings in order."""

    html: str
    headings: tuple[Heading, ...]


def section_html(
    section: Section, pictures: Mapping[str, str], language: str = ENGLISH, level: int = 2
) -> Fragment:
    """Return a section as HTML with a heading of `level`.

    `pictures` are SVG elements by the file name of the figure.
    """
    page = _Page(section, pictures, language)
    return Fragment(page.section(section, level), tuple(page.headings))


class _Page:
    def __init__(self, section: Section, pictures: Mapping[str, str], language: str) -> None:
        self.pictures = pictures
        self.places = frame.Places(section)
        self.plain = Writer(language)
        self.write = Writer(language, InHtml(), self.places.of)
        # Numbers of a table lead nowhere: its rows are what others lead to.
        self.cell = Writer(language, InHtml(), self.places.name)
        self.headings: list[Heading] = []

    def section(self, section: Section, level: int) -> str:
        title = self.heading(section.heading, level, f"section-{section.key}")
        content = "\n".join(self.blocks(section.blocks, level + 1))
        children = "\n".join(self.section(child, level + 1) for child in section.children)
        return f"<section>\n{title}\n{content}\n{children}\n</section>"

    def heading(self, text: Text, level: int, name: str) -> str:
        self.headings.append(Heading(level, self.plain.text(text), name))
        return f'<h{level} id="{escape(name)}">{self.write.text(text)}</h{level}>'

    def blocks(self, blocks: tuple[Block, ...], level: int) -> Iterator[str]:
        findings: list[str] = []
        for block in (*blocks, None):
            if isinstance(block, Finding):
                findings.append(self.finding(block))
                continue
            if findings:
                yield f"<ol>{''.join(findings)}</ol>"
                findings = []
            if block is not None:
                yield self.block(block, level)

    def block(self, block: Text | Table[Any] | Figure | Bullets, level: int) -> str:
        if isinstance(block, Text):
            return f"<p>{self.write.text(block)}</p>"
        if isinstance(block, Bullets):
            items = "".join(f"<li>{self.write.text(item)}</li>" for item in block.items)
            return f"<p><strong>{self.write.text(block.lead)}</strong></p>\n<ul>{items}</ul>"
        if isinstance(block, Figure):
            caption = block.caption and self.write.text(block.caption)
            below = f"<figcaption>{caption}</figcaption>" if caption else ""
            return f"<figure>{self.pictures[block.file]}{below}</figure>"
        return self.table(block, level)

    def finding(self, finding: Finding) -> str:
        writer = Writer(self.plain.language, InHtml(), lambda value: self.places.of(value, finding))
        below = frame.lines(finding, writer, self.write, self.places)
        lines = "".join(f"<li>{line}</li>" for line in below)
        below_it = f"<ul>{lines}</ul>" if lines else ""
        return f"<li><strong>{writer.text(finding.verdict)}</strong>{below_it}</li>"

    def table(self, table: Table[Any], level: int) -> str:
        lead = [table.lead] if table.lead is not None else []
        below = [
            *frame.reasons(table, self.write),
            *([table.note] if table.note is not None else []),
        ]
        inside = "\n".join(
            (
                *(f"<p>{self.write.text(text)}</p>" for text in lead),
                *self.rows(table),
                *(f"<p>{self.write.text(text)}</p>" for text in below),
            )
        )
        name = f"table-{table.key}"
        if table.folded:
            title = self.write.text(table.title)
            return f'<details id="{escape(name)}"><summary>{title}</summary>{inside}</details>'
        return f"{self.heading(table.title, level, name)}\n{inside}"

    def rows(self, table: Table[Any]) -> Iterator[str]:
        """Yield the table, or its first rows and all of them to be unfolded."""
        full = table_html(table, self.cell, row_id=lambda row: self.places.row(table, row))
        if len(table.rows) == table.first_rows:
            yield full
            return
        yield table_html(table, self.cell, range(table.first_rows), lambda _: "")
        title = self.write.text(Text("All {n} rows", n=len(table.rows)))
        yield f"<details><summary>{title}</summary>{full}</details>"


def table_html(
    table: Table[Any],
    write: Writer,
    rows: Sequence[int] | None = None,
    row_id: Callable[[int], str] | None = None,
) -> str:
    """Return a table with its footnotes, or some of its rows; `row_id` returns the id of a row."""
    rows, row_id = range(len(table.rows)) if rows is None else rows, row_id or table.row_id
    texts, footnotes = frame.written(table, rows, write)
    columns = range(len(table.columns))
    labels = [_label(table, column, write) for column in table.columns]
    lines = [
        _row(table, row, cells, labels, row_id(row))
        for row, cells in zip(rows, texts, strict=False)
    ]
    lines += [_footer(table, table.footer, texts[-1], labels)] if table.footer is not None else []
    heads = "".join(_head(table, rows, index, write) for index in columns)
    is_headed = any(column.heading.message for column in table.columns)
    kinds = [("sortable", is_headed and len(lines) >= LEAST_ROWS), ("facts", not is_headed),
             ("cards", table.cards)]  # fmt: skip
    body = "\n".join(lines)
    notes = "".join(f"<li>{note}</li>" for note in footnotes)
    return (
        f'<div class="wide"><table{_class(kinds)}>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>{f'<ul>{notes}</ul>' if notes else ''}"
    )


def _head(table: Table[Any], rows: Sequence[int], index: int, write: Writer) -> str:
    column, unmarked = table.columns[index], Writer(write.language)
    cells = [row[index] for row in table.cells]
    unlinked = (cell.label if isinstance(cell, Link) else cell for cell in cells)
    units = {cell.unit for cell in unlinked if isinstance(cell, Number)}
    is_long = any(len(unmarked.value(cells[row])) > LONG for row in rows)
    is_mixed = len(units) > 1 and column.sort is None
    kinds = [("n", table.numeric[index]), ("w", is_long), ("mixed", is_mixed)]
    text = frame.heading(column, write)
    tag = "th" if text else "td"  # an empty heading names nothing
    return f"<{tag}{_class(kinds)}>{text}</{tag}>"


def _label(table: Table[Any], column: Column[Any], write: Writer) -> str:
    """Return the attribute with the heading of a cell, where a narrow page shows it there."""
    text = Writer(write.language).text(column.heading) if table.cards else ""
    return f' data-label="{escape(text)}"' if text else ""


def _row(
    table: Table[Any], row: int, texts: Sequence[str], labels: Sequence[str], row_id: str
) -> str:
    cells = []
    for index, (column, cell, text, label) in enumerate(
        zip(table.columns, table.cells[row], texts, labels, strict=True)
    ):
        value = sort_value(cell) if column.sort is None else column.sort(table.rows[row])
        key = "" if value is None or math.isnan(value) else f' data-v="{value:.9g}"'
        number = _class([("n", table.numeric[index])])
        cells.append(
            f"<td{number}{key}{label}>{'' if index else frame.mark(row_id, HTML)}{text}</td>"
        )
    return f"<tr>{''.join(cells)}</tr>"


def _footer(table: Table[Any], footer: Footer, texts: Sequence[str], labels: Sequence[str]) -> str:
    """Return the row that stays last."""
    cells = [
        f"<td{_class([('n', number)])}{label}>"
        f"{'' if index else frame.mark(footer.id, HTML)}{text}</td>"
        for index, (number, text, label) in enumerate(
            zip(table.numeric, texts, labels, strict=True)
        )
    ]
    kinds = [("rest", True), ("total", isinstance(footer.cells[0], Strong))]
    return f"<tr{_class(kinds)}>{''.join(cells)}</tr>"


def _class(names: Sequence[tuple[str, bool]]) -> str:
    """Return the attribute with those of the names that apply."""
    classes = [name for name, applies in names if applies]
    return f' class="{" ".join(classes)}"' if classes else ""
