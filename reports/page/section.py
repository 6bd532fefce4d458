"""The parts of a page: tables over domain rows, findings, figures, and sections of them.

A column says what it shows of a row. A finding has its verdict first, then what it rests on and
what to do about it. A section has its parts in the order in which they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from nsight_prof.reports.page.values import (
    Confidence,
    Link,
    Name,
    Number,
    Ref,
    Text,
    Value,
    Verbatim,
)

if TYPE_CHECKING:
    from nsight_prof.reports.page.charts import Chart

Row = TypeVar("Row")
Json: TypeAlias = Any
"""What metrics.json can say: None, bool, int, float, str, lists and dictionaries of them."""
FOLD_ABOVE = 20
"""Rows above which a table shows its first ones only."""
FOLDED_TO = 10


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: `cell` returns what it shows of a row; None where it does not apply.

    Attributes:
        heading: what it is, without the unit.
        unit: of all its numbers, as "TB/s"; stands in the heading. Empty: each has its own.
        digits: significant digits; 0: those of tables.
        sort: the number that a row is sorted by, where the cell is none itself.
        right: whether it stands at the right; None: if it holds numbers.
    """

    heading: Text
    cell: Callable[[Row], Value | None]
    unit: str = ""
    digits: int = 0
    sort: Callable[[Row], float | None] | None = None
    right: bool | None = None


@dataclass(frozen=True)
class Footer:
    """The last row of a table, and the id of its place."""

    cells: Sequence[Value | None]
    id: str = ""


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table over `rows`, which are domain objects.

    Attributes:
        key: its id on the page and in metrics.json, unlike that of any other table of the report.
        note: stands below; `lead` above: what a reader must know first.
        refs: what a row shows of the run's tables: findings lead there.
        called: what sentences call a row, where its key says it to the program alone.
        folded: only the title is shown until a reader opens it.
        preview: rows that a page shows of details, with those that findings lead to. 0: all rows,
            of a long table the first `FOLDED_TO`.
        ids: the ids of a row on the page, with spaces between them, where `refs` do not say it.
        footer: a row for what is not shown, or for all: it stays last however they are sorted.
        footnotes: letters in its cells lead to the reasons why numbers are missing.
        cards: on a narrow page each row is a block of its own, whose cells have their headings.
    """

    key: str
    title: Text
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    note: Text | None = None
    lead: Text | None = None
    refs: Callable[[Row], Sequence[Ref]] | None = None
    folded: bool = False
    preview: int = 0
    ids: Callable[[Row], str] | None = None
    footer: Footer | None = None
    footnotes: bool = False
    called: Callable[[Row], Text] | None = None
    cards: bool = False

    def row_id(self, row: int) -> str:
        """Return the ids of a row with spaces between them, "" for none."""
        return "" if self.ids is None else self.ids(self.rows[row])

    @property
    def first_rows(self) -> int:
        """How many rows a page shows, unless findings lead to further ones."""
        if self.preview:
            return min(self.preview, len(self.rows))
        return FOLDED_TO if len(self.rows) > FOLD_ABOVE else len(self.rows)

    @cached_property
    def cells(self) -> list[list[Value | None]]:
        """All cells, row by row."""
        # Each page in each language asks for them several times.
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    @cached_property
    def wordless(self) -> dict[type, list[list[str]]] | None:
        """The texts of all cells by markup, once written, where they are so in every language."""
        is_wordless = all(isinstance(cell, (str, Name)) for row in self.cells for cell in row)
        return {} if is_wordless else None

    @cached_property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers: it stands at the right."""
        columns = zip(self.columns, zip(*self.cells, strict=True), strict=False)
        found = [_is_numeric(cells) if column.right is None else column.right
                 for column, cells in columns]  # fmt: skip
        return found or [bool(column.right) for column in self.columns]


def _is_numeric(column: Sequence[Value | None]) -> bool:
    cells = [cell for cell in column if cell is not None]
    return bool(cells) and all(
        sort_value(cell) is not None or (isinstance(cell, Number) and cell.value is None)
        for cell in cells
    )


def sort_value(cell: Value | None) -> float | None:
    """Return what a cell is sorted by: the number itself; None for what is no number."""
    if isinstance(cell, Number):
        return cell.value
    if isinstance(cell, Link):
        return sort_value(cell.label)
    if isinstance(cell, Verbatim):
        return cell.sort
    return float(cell) if isinstance(cell, int) else None


@dataclass(frozen=True)
class Evidence:
    """One number that a finding rests on, and what it is.

    `threshold` is the limit that it is held to, `source` whose number or limit it is.
    """

    label: Text
    value: Value
    threshold: Text | None = None
    source: Text | None = None


@dataclass(frozen=True)
class OpenQuestion:
    """What the measurements do not tell, with the reason.

    `lay_text` is the same for readers who do not know GPUs; None where it is nothing to them.
    """

    text: Text
    lay_text: Text | None = None


@dataclass(frozen=True)
class Basis:
    """What numbers rest on and how far they may be off, for who asks how sure they are.

    `lay_text` is the same for readers who do not know GPUs; None where it is nothing to them.
    """

    text: Text
    lay_text: Text | None = None


@dataclass(frozen=True)
class Choice:
    """What the owner of a program may choose, at a price: no repair. What it gains and costs.

    Where the gain is GPU time, it is a number in ns. `saves` is the part of the time for the same
    work that it saves at most, 0 to 1, by which choices are ranked. `findings` are the ranks and
    anchors of those that offer it.
    """

    do: Text
    gains: Text | Number | Link
    costs: Text
    saves: float = 0.0
    findings: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Finding:
    """One thing that the measurements support.

    Attributes:
        rule: key of the rule that found it.
        verdict: the sentence that a reader takes away.
        evidence: numbers, or sentences about them.
        action: what to do.
        disproof: where it ends, or what would disprove it.
        gain: what the action saves: a time, or a part of the run (unit "fraction").
        confidence: how sure it is; "" where that is not graded.
        source: the cases or kernels whose numbers the verdict tells.
        lay_verdict: the verdict for readers who do not know GPUs, where it takes other words.
        technical: it is nothing to these readers.
        offers: what it gives the owner to choose.
    """

    rule: str
    verdict: Text
    evidence: tuple[Evidence | Text, ...] = ()
    action: Text | None = None
    disproof: Text | None = None
    gain: Number | None = None
    confidence: Confidence = ""
    source: tuple[Name, ...] = ()
    lay_verdict: Text | None = None
    technical: bool = False
    offers: Choice | None = None


def slug(text: str) -> str:
    """Return a text as part of a file name: lower case letters, digits and dashes."""
    dashed = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return "-".join(word for word in dashed.split("-") if word) or "x"


@dataclass(frozen=True)
class Figure:
    """A picture: `chart` holds its numbers, its name and the words for who cannot see it."""

    chart: Chart
    caption: Text | None = None

    @property
    def file(self) -> str:
        """File name without its suffix: lower case letters, digits and dashes."""
        return slug(self.chart.name)

    @property
    def alt(self) -> str:
        """What the picture shows, for who cannot see it."""
        return self.chart.alt


@dataclass(frozen=True)
class Bullets:
    """A list of sentences under a line of its own, as the method of a measurement."""

    lead: Text
    items: tuple[Text, ...]


@dataclass(frozen=True)
class Fact:
    """What a summary tells in a table: a label and its value."""

    label: Text
    value: Value


Block: TypeAlias = Text | Finding | Table[Any] | Figure | Bullets


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
        key: its id, and its place in metrics.json.
        blocks: sentences, findings, figures and tables in the order in which they are read.
        numbers: for metrics.json, in base units.
        facts: for readers who do not know GPUs: what, and how fast.
        basis: how sure its numbers are; the first screen tells it, not the section.
    """

    key: str
    heading: Text
    blocks: tuple[Block, ...] = ()
    children: tuple[Section, ...] = ()
    numbers: Mapping[str, Json] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    basis: tuple[Basis, ...] = ()

    def all_blocks(self) -> Iterator[Block]:
        """Yield its parts, then those of its children."""
        yield from self.blocks
        for child in self.children:
            yield from child.all_blocks()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those of children included."""
        return tuple(block for block in self.all_blocks() if isinstance(block, Finding))

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        """All tables, those of children included."""
        return tuple(block for block in self.all_blocks() if isinstance(block, Table))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, those of children included."""
        return tuple(block for block in self.all_blocks() if isinstance(block, Figure))


def leading_figure(sections: Sequence[Section]) -> tuple[Figure | None, tuple[Section, ...]]:
    """Return the first figure, and the sections without it: a page shows it under its verdict."""
    for index, section in enumerate(sections):
        for block in section.blocks:
            if isinstance(block, Figure):
                blocks = tuple(item for item in section.blocks if item is not block)
                without = replace(section, blocks=blocks)
                return block, (*sections[:index], without, *sections[index + 1 :])
    return None, tuple(sections)


def arranged(
    intro: Iterable[Text],
    findings: Iterable[Finding | None],
    charts: Iterable[Chart | None],
    tables: Iterable[Table[Any] | None],
    method: Sequence[Text],
) -> tuple[Block, ...]:
    """Return the parts of a section in the order of all pages.

    What is None is left out, and a table without rows.
    """
    return (
        *intro,
        *(finding for finding in findings if finding is not None),
        *(Figure(chart) for chart in charts if chart is not None),
        *(table for table in tables if table is not None and table.rows),
        Bullets(Text("How it was measured"), tuple(method)),
    )
