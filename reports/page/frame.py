"""What all renderers of a section say: fixed words, and which rows of a table are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import ascii_lowercase
from typing import Any

from nsight_prof.reports.page.rows import Rows, Shown
from nsight_prof.reports.page.section import Column, Evidence, Finding, Section, Table
from nsight_prof.reports.page.values import NOT_MEASURED, Link, Name, Number, Ref, Text, Value
from nsight_prof.reports.page.writer import NA, WIDE, Writer

OPERANDS = 3
"""Rows that a derived number names of those that it is worked out from."""
LEVELS = {"high": Text("high"), "medium": Text("medium"), "low": Text("low")}


def lines(finding: Finding, write: Writer, evidence: Writer, places: Places) -> Iterator[str]:
    """Yield what stands below the verdict of a finding, one line for each matter.

    `write` leads to the evidence of the finding, `evidence` from there to the rows of tables.
    """
    items = (
        mark(places.marked(anchor), write) + _evidence(item, evidence)
        for anchor, item in places.evidence(finding).items()
    )
    gain = "" if finding.gain is None else evidence.value(finding.gain)
    sure = write.text(LEVELS[finding.confidence]) if finding.confidence else ""
    matters = (
        (Text("Do: "), write.text(finding.action) if finding.action else ""),
        (Text("Saves: "), gain),
        (Text("Confidence: "), sure),
        (Text("Evidence: "), write.joined(items)),
        (Text("Found in: "), write.joined(evidence.value(item) for item in finding.source)),
        (Text("Limits: "), write.text(finding.disproof) if finding.disproof else ""),
    )
    yield from (f"{write.text(label)}{words}" for label, words in matters if words)


def written(
    table: Table[Any], rows: Sequence[int], write: Writer
) -> tuple[list[list[str]], list[str]]:
    """Return the cells of rows and footer, and the footnotes: letters with their reasons."""
    letters_of: dict[str, str] = {}

    def footnote(reason: str) -> str:
        if reason == NOT_MEASURED:
            return ""
        return f" ({letters_of.setdefault(reason, letters(len(letters_of)))})"

    if table.footnotes:
        write = write.with_footnotes(footnote)
    once = None if write.leads or table.footer or len(rows) < len(table.rows) else table.wordless
    if once and type(write.markup) in once:
        return once[type(write.markup)], []
    cells = [table.cells[row] for row in rows]
    cells += [list(table.footer.cells)] if table.footer is not None else []
    texts = [
        [
            write.cell(value, column.unit, column.digits)
            for value, column in zip(row, table.columns, strict=True)
        ]
        for row in cells
    ]
    if once is not None:
        once[type(write.markup)] = texts
    notes = [
        f"{write.bracketed(NA, letter)}{write.marks.colon}{write.markup.escape(write.word(reason))}"
        for reason, letter in letters_of.items()
    ]
    return texts, notes


def letters(number: int) -> str:
    """Return a, b, … z, aa, ab, … for 0, 1, …"""
    tens, last = divmod(number, len(ascii_lowercase))
    return (letters(tens - 1) if tens else "") + ascii_lowercase[last]


def mark(anchors: str, write: Writer) -> str:
    """Return ids of the page, which have spaces between them; nothing for ""."""
    return "".join(map(write.markup.anchor, anchors.split()))


def _evidence(item: Evidence | Text, write: Writer) -> str:
    if isinstance(item, Text):
        return write.text(item)
    label = write.text(item.label)
    # A wide mark holds its space.
    return f"{label}{'' if label.endswith(tuple(WIDE)) else ' '}{write.value(item.value)}"


def heading(column: Column[Any], write: Writer) -> str:
    """Return the heading of a column with its unit behind it."""
    name = write.text(column.heading)
    return f"{name}{write.marks.clause}{write.markup.escape(column.unit)}" if column.unit else name


def more(table: Table[Any], rows: Sequence[int]) -> list[Text]:
    """Return what to say below a table that a page shows in part."""
    n = len(table.rows) - len(rows)
    return [Text("{n} more rows are in report.html and metrics.json.", n=n)] if n else []


def sentence_values(finding: Finding) -> list[Value]:
    """Return the values of the sentences of a finding: its verdict, action and disproof."""
    return inside((finding.verdict, finding.action or "", finding.disproof or ""))


def derived(finding: Finding, find: Callable[[Number], str]) -> list[Number]:
    """Return the numbers of a finding's sentences for which `find` knows no row, but their cells.

    Each stands there once.
    """
    found = (
        n
        for n in sentence_values(finding)
        if isinstance(n, Number) and n.value is not None and n.refs
    )
    return list(dict.fromkeys(number for number in found if not find(number)))


def rests(finding: Finding) -> list[Value]:
    """Return the values that a finding rests on: of its evidence, cases or kernels, and gain."""
    given = [item.value if isinstance(item, Evidence) else item for item in finding.evidence]
    return inside((*given, *finding.source, "" if finding.gain is None else finding.gain))


def numbers(value: Value | None) -> Iterator[Number]:
    """Yield the numbers of a value, those of texts and lists in it too; a count is a number."""
    for inner in inside(value):
        if isinstance(inner, Number):
            yield inner
        elif isinstance(inner, int):
            yield Number(inner, "count")


def inside(value: Value | None) -> list[Value]:
    """Return a value, or those in a text or a list, however deep; none of None."""
    if isinstance(value, Text):
        return [inner for item in value.values.values() for inner in inside(item)]
    if isinstance(value, (list, tuple)):
        return [inner for item in value for inner in inside(item)]
    return [] if value is None else [value]


class Places:
    """Ids of a section's page: of the rows of its tables and of the evidence of its findings.

    Only what a finding leads to gets an id: thousands of them would make a page too large.
    """

    def __init__(self, section: Section) -> None:
        self._of: dict[tuple[str, int], str] = {}
        self._names: dict[str, str] = {}
        self._called: dict[str, Text] = {}
        rows = [row for table in section.tables for row in self._rows(table)]
        self._tables = Rows(rows)
        self._evidence = {
            id(finding): {
                f"evidence-{section.key}-{n}-{m}": row
                for m, row in enumerate((*finding.evidence, *self._worked_out(finding)), 1)
            }
            for n, finding in enumerate(section.findings, 1)
        }
        self._all = Rows([*rows, *self._from_evidence()])
        self.wanted = frozenset(self._wanted(section))

    def _rows(self, table: Table[Any]) -> Iterator[Shown]:
        every = [[] for _ in table.rows] if table.refs is None else map(table.refs, table.rows)
        for n, (refs, cells) in enumerate(zip(every, table.cells, strict=True)):
            free = (ref.anchor for ref in refs if ref.anchor not in self._names)
            row = self._of[table.key, n] = next(free, f"row-{table.key}-{n + 1}")
            for ref in refs:
                self._names.setdefault(ref.anchor, row)
                if table.called is not None:
                    self._called[ref.anchor] = table.called(table.rows[n])
            about = frozenset(ref.row for ref in refs)
            for value in cells:
                yield from (Shown(row, number, about) for number in numbers(value))

    def _from_evidence(self) -> Iterator[Shown]:
        for items in self._evidence.values():
            for anchor, item in items.items():
                found = numbers(item if isinstance(item, Text) else item.value)
                yield from (Shown(anchor, number, frozenset(items)) for number in found)

    def _worked_out(self, finding: Finding) -> Iterator[Text]:
        """Yield what the numbers of the sentences are made of that have no row of their own."""
        in_evidence = {"evidence"}
        basis = Rows(
            Shown("-", n, frozenset(in_evidence)) for item in rests(finding) for n in numbers(item)
        )
        for number in derived(
            finding, lambda item: self._tables.find(item) or basis.find(item, in_evidence)
        ):
            rows = {r.row: self._row_name(r) for r in number.refs if r.anchor in self._names}
            if rows:
                names: list[Value] = [*list(rows.values())[:OPERANDS]]
                if len(rows) > OPERANDS:
                    names.append(Text("{n} more", n=len(rows) - OPERANDS))
                worked_out = Text("{number} from {rows}", number=number, rows=names)
                read = {r.column: Name(f"{r.table}.{r.column}") for r in number.refs if r.column}
                if how := number.formula or [*read.values()]:
                    worked_out = Text("{worked_out}: {formula}", worked_out=worked_out, formula=how)
                yield worked_out

    def _row_name(self, ref: Ref) -> Name | Link:
        called = self._called.get(ref.anchor)
        return Name(ref.row, ref) if called is None else Link(called, self._names[ref.anchor])

    def _wanted(self, section: Section) -> Iterator[str]:
        for finding in section.findings:
            yield from (self._anchor(value, finding) for value in sentence_values(finding))
            values = inside([t for t in self.evidence(finding).values() if isinstance(t, Text)])
            yield from (self._anchor(value) for value in (*rests(finding), *values))
        for block in (*section.all_blocks(), *(item.text for item in section.basis)):
            if isinstance(block, Text):
                yield from (self._anchor(value) for value in inside(block))
            elif isinstance(block, Table):
                cells = (cell for row in block.cells for cell in row)
                yield from (cell.anchor for cell in cells if isinstance(cell, Link))

    def _anchor(self, value: Value, finding: Finding | None = None) -> str:
        if isinstance(value, Link):
            return value.anchor
        if isinstance(value, Name):
            return self._names.get(value.ref.anchor, "") if value.ref is not None else ""
        if not isinstance(value, Number):
            return ""
        row = self._tables.find(value)
        return row or (self._all.find(value, self.evidence(finding)) if finding else "")

    def of(self, value: Value, finding: Finding | None = None) -> str:
        """Return the id of what a value rests on, "" for none: a row, or evidence of `finding`."""
        return self.marked(self._anchor(value, finding))

    def linked(self, text: Text, finding: Finding | None = None) -> Text:
        """Return a sentence, as of a finding, whose numbers lead to their rows from anywhere."""

        def link(value: Value) -> Value:
            if isinstance(value, Text):
                return value.with_values(link)
            if isinstance(value, list | tuple):
                return [link(item) for item in value]
            anchor = self.of(value, finding)
            return Link(value, anchor) if anchor else value

        return text.with_values(link)

    def marked(self, anchor: str) -> str:
        """Return the id of a place that something leads to, "" for another."""
        return anchor if anchor in self.wanted else ""

    def name(self, value: Value) -> str:
        """Return the id of the row that a name stands for, "" for a number."""
        return self.of(value) if isinstance(value, Name) else ""

    def evidence(self, finding: Finding) -> dict[str, Evidence | Text]:
        """Return the evidence of a finding by its ids, and what its numbers are made of."""
        return self._evidence[id(finding)]

    def row(self, table: Table[Any], row: int) -> str:
        """Return the id of a row of a table that a finding leads to, else ""."""
        return self.marked(self._of[table.key, row])

    def visible_rows(self, table: Table[Any]) -> list[int]:
        """Return the rows that a page shows of a long table: the first, and what is led to."""
        first = table.first_rows
        return [n for n in range(len(table.rows)) if n < first or self.row(table, n)]


def reasons(table: Table[Any], write: Writer) -> list[Text]:
    """Return why values of a table are missing, each reason once."""
    cells = (cell for row in table.cells for cell in row)
    found = (cell.missing for cell in cells if isinstance(cell, Number) and cell.value is None)
    joined = write.joined(map(write.word, dict.fromkeys(found)))
    return [Text("n/a: {reasons}.", reasons=joined)] if joined else []
