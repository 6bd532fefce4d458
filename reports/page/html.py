"""Writes a section as HTML: tables sort by the numbers themselves, figures stand on the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from nsight_prof.reports.page import frame
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.section import (
    Block,
    Bullets,
    Figure,
    Finding,
    Section,
    Table,
    sort_value,
)
from nsight_prof.reports.page.values import Number, Text, Value
from nsight_prof.reports.page.writer import InHtml, Writer, punctuated

BROAD = 8
"""Tables with more columns are set tighter on paper."""
LONG = 24
"""Columns with longer texts are not squeezed to one word per line."""
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
    html = punctuated(page.section(section, level), language)
    return Fragment(html, tuple(page.headings))


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
        every = range(len(table.rows))
        if len(table.rows) == table.first_rows:
            yield self.grid(table, every)
            return
        yield self.grid(table, range(table.first_rows), ids=False)
        title = self.write.text(Text("All {n} rows", n=len(table.rows)))
        full = self.grid(table, every)
        yield f"<details><summary>{title}</summary>{full}</details>"

    def grid(self, table: Table[Any], rows: range, *, ids: bool = True) -> str:
        cells = table.cells()
        cell_texts = [self.cells(table, cells[row]) for row in rows]
        columns = range(len(table.columns))
        right = [table.is_numeric(index) for index in columns]
        sortable = len(rows) >= LEAST_ROWS
        kinds = [
            name for name, on in (("sortable", sortable), ("broad", len(columns) > BROAD)) if on
        ]
        heads = []
        for index, column in enumerate(table.columns):
            long = any(len(self.plain.value(cells[row][index])) > LONG for row in rows)
            mixed = len({c.unit for row in cells if isinstance(c := row[index], Number)}) > 1
            marks = [m for m, on in (("n", right[index]), ("w", long), ("mixed", mixed)) if on]
            text = frame.heading(column, self.write)
            tag = "th" if text else "td"  # an empty heading names nothing
            heads.append(f"<{tag}{_class(marks)}>{text}</{tag}>")
        lines = []
        for row, texts in zip(rows, cell_texts, strict=True):
            mark = frame.mark(self.places.row(table, row)) if ids else ""
            tds = [
                f"<td{_class(['n'] if number else [])}{_sort(cell)}>{text}</td>"
                for number, cell, text in zip(right, cells[row], texts, strict=True)
            ]
            tds[0] = tds[0].replace(">", f">{mark}", 1)
            lines.append(f"<tr>{''.join(tds)}</tr>")
        body = "\n".join(lines)
        return (
            f'<div class="wide"><table{_class(kinds)}>\n<thead><tr>{"".join(heads)}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )

    def cells(self, table: Table[Any], row: list[Value | None]) -> list[str]:
        return [
            self.cell.cell(cell, column) for cell, column in zip(row, table.columns, strict=True)
        ]


def _class(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _sort(cell: Value | None) -> str:
    value = None if cell is None else sort_value(cell)
    return "" if value is None or math.isnan(value) else f' data-v="{value:.9g}"'
