"""Writes a section as markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nsight_prof.reports.page import frame
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.formats import escape, escape_html
from nsight_prof.reports.page.section import Block, Bullets, Figure, Finding, Section, Table
from nsight_prof.reports.page.values import Text
from nsight_prof.reports.page.writer import InMarkdown, Markup, Writer

MARKDOWN = InMarkdown()


def section_markdown(
    section: Section, language: str = ENGLISH, level: int = 2, markup: Markup = MARKDOWN
) -> str:
    """Return a section as markdown with a heading of `level`; pictures are SVG files beside it."""
    return _Page(section, language, markup).section(section, level)


class InTwo(NamedTuple):
    """A section whose tables are on another page: its sentences and pictures, and its tables."""

    head: str
    tables: str


def section_in_two(
    section: Section, language: str = ENGLISH, level: int = 2, markup: Markup = MARKDOWN
) -> InTwo:
    """Return a section as two markdown texts; tables have all of their rows there."""
    page = _Page(section, language, markup, all_rows=True)
    on_details = (Table, Bullets)
    head = replace(
        section, blocks=tuple(p for p in section.blocks if not isinstance(p, on_details))
    )
    tables = tuple(block for block in section.blocks if isinstance(block, on_details))
    return InTwo(page.section(head, level), "\n\n".join(page.blocks(tables, level + 1)))


def table_markdown(
    table: Table[Any],
    write: Writer,
    rows: Sequence[int] | None = None,
    row_id: Callable[[int], str] | None = None,
) -> str:
    """Return a table with its footnotes, or some of its rows; `row_id` returns the id of a row."""
    rows, row_id = range(len(table.rows)) if rows is None else rows, row_id or table.row_id
    texts, footnotes = frame.written(table, rows, write)
    ids = [*map(row_id, rows), *([table.footer.id] if table.footer is not None else [])]
    heads = " | ".join(frame.heading(column, write) for column in table.columns)
    marks = " | ".join("---:" if right else "---" for right in table.numeric)
    lines = [f"| {heads} |", f"| {marks} |"]
    lines += [
        f"| {frame.mark(anchor, write)}{' | '.join(row)} |"
        for anchor, row in zip(ids, texts, strict=True)
    ]
    notes = [f"- {note}" for note in footnotes]
    return "\n".join([*lines, *([""] if notes else []), *notes])


class _Page:
    def __init__(
        self,
        section: Section,
        language: str,
        markup: Markup = MARKDOWN,
        *,
        all_rows: bool = False,
    ) -> None:
        self.places = frame.Places(section)
        self.rows = {
            t.key: list(range(len(t.rows))) if all_rows else self.places.visible_rows(t)
            for t in section.tables
        }
        self.write = Writer(language, markup, self.places.of)
        # Numbers of a table lead nowhere: its rows are what others lead to.
        self.cell = Writer(language, markup, self.places.name)

    def section(self, section: Section, level: int) -> str:
        blocks = [frame.mark(f"section-{section.key}", self.write),
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
            self.write.language, self.write.markup, lambda value: self.places.of(value, finding)
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
        rows = self.rows[table.key]
        blocks.append(
            table_markdown(table, self.cell, rows, lambda row: self.places.row(table, row))
        )
        below = [*frame.more(table, self.rows[table.key]), *frame.reasons(table, self.write)]
        below += [] if table.note is None else [table.note]
        blocks += [self.write.text(text) for text in below]
        inside = "\n\n".join(blocks)
        if table.folded:
            summary = escape_html(Writer(self.write.language).text(table.title))
            return f"<details><summary>{summary}</summary>\n\n{inside}\n\n</details>"
        return f"{'#' * level} {title}\n\n{inside}"
