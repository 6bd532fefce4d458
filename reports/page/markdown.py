"""Writes a section as markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from nsight_prof.reports.page import frame
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.formats import escape, escape_html
from nsight_prof.reports.page.section import Block, Bullets, Figure, Finding, Section, Table
from nsight_prof.reports.page.values import Text
from nsight_prof.reports.page.writer import InMarkdown, Writer


def section_markdown(section: Section, language: str = ENGLISH, level: int = 2) -> str:
    """Return a section as markdown with a heading of `level`; pictures are SVG files beside it."""
    return _Page(section, language).section(section, level)


class InTwo(NamedTuple):
    """A section whose tables are on another page: its sentences and pictures, and its tables."""

    head: str
    tables: str


def section_in_two(section: Section, language: str = ENGLISH, level: int = 2) -> InTwo:
    """Return a section as two markdown texts; tables have all of their rows there."""
    page = _Page(section, language, all_rows=True)
    on_details = (Table, Bullets)
    head = replace(
        section, blocks=tuple(p for p in section.blocks if not isinstance(p, on_details))
    )
    tables = tuple(block for block in section.blocks if isinstance(block, on_details))
    return InTwo(page.section(head, level), "\n\n".join(page.blocks(tables, level + 1)))


class _Page:
    def __init__(self, section: Section, language: str, *, all_rows: bool = False) -> None:
        self.places = frame.Places(section)
        self.rows = {
            t.key: list(range(len(t.rows))) if all_rows else self.places.visible_rows(t)
            for t in section.tables
        }
        self.write = Writer(language, InMarkdown(), self.places.of)
        # Numbers of a table lead nowhere: its rows are what others lead to.
        self.cell = Writer(language, InMarkdown(), self.places.name)

    def section(self, section: Section, level: int) -> str:
        blocks = [f'<a id="section-{section.key}"></a>',
                  f"{'#' * level} {self.write.text(section.heading)}"]  # fmt: skip
        blocks += self.blocks(section.blocks, level + 1)
        blocks += [self.section(child, level + 1) for child in section.children]
        return "\n\n".join(blocks)

    def blocks(self, blocks: tuple[Block, ...], level: int) -> Iterator[str]:
        findings: list[str] = []
        for block in blocks:
            if isinstance(block, Finding):
                findings.append(self.finding(block, len(findings) + 1))
                continue
            if findings:
                yield "\n".join(findings)
                findings = []
            if isinstance(block, Text):
                yield self.write.text(block)
            elif isinstance(block, Bullets):
                items = "\n".join(f"- {self.write.text(item)}" for item in block.items)
                yield f"**{self.write.text(block.lead)}**\n\n{items}"
            elif isinstance(block, Figure):
                yield self.figure(block)
            else:
                yield self.table(block, level)
        if findings:
            yield "\n".join(findings)

    def finding(self, finding: Finding, number: int) -> str:
        writer = Writer(
            self.write.language, InMarkdown(), lambda value: self.places.of(value, finding)
        )
        lines = [f"{number}. **{writer.text(finding.verdict)}**"]
        below = frame.lines(finding, writer, self.write, self.places)
        lines += [f"   - {line}" for line in below]
        return "\n".join(lines)

    def figure(self, figure: Figure) -> str:
        caption = f"\n\n<sub>{self.write.text(figure.caption)}</sub>" if figure.caption else ""
        return f"![{escape(self.write.word(figure.alt))}]({figure.file}.svg){caption}"

    def table(self, table: Table[Any], level: int) -> str:
        title = self.write.text(table.title)
        blocks = [] if table.lead is None else [self.write.text(table.lead)]
        blocks.append("\n".join(self.lines(table)))
        below = [*frame.more(table, self.rows[table.key]), *frame.reasons(table, self.write)]
        below += [] if table.note is None else [table.note]
        blocks += [self.write.text(text) for text in below]
        inside = "\n\n".join(blocks)
        if table.folded:
            summary = escape_html(Writer(self.write.language).text(table.title))
            return f"<details><summary>{summary}</summary>\n\n{inside}\n\n</details>"
        return f"{'#' * level} {title}\n\n{inside}"

    def lines(self, table: Table[Any]) -> Iterator[str]:
        heads = [frame.heading(column, self.write) for column in table.columns]
        right = [table.is_numeric(index) for index in range(len(table.columns))]
        yield f"| {' | '.join(heads)} |"
        yield f"| {' | '.join('---:' if number else '---' for number in right)} |"
        rows = self.rows[table.key]
        cells = table.cells()
        for row in rows:
            texts = [
                self.cell.cell(cell, column)
                for cell, column in zip(cells[row], table.columns, strict=True)
            ]
            yield f"| {frame.mark(self.places.row(table, row))}{' | '.join(texts)} |"
