"""Tables over domain rows: a column says what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nsight_prof.reports.page.number import Number, Ref
from nsight_prof.reports.page.text import Text, Value, Verbatim

Row = TypeVar("Row")

FOLD_ABOVE = 30
"""Rows above which a table shows its first ones only."""
FOLDED_TO = 10


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: `cell` returns what it shows of a row; None where it does not apply.

    Attributes:
        heading: what it is, without the unit.
        unit: of all its numbers, as "TB/s"; stands in the heading. Empty: each has its own.
        digits: significant digits; 0: those of tables.
    """

    heading: Text
    cell: Callable[[Row], Value | None]
    unit: str = ""
    digits: int = 0


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table over `rows`, which are domain objects.

    Attributes:
        key: its id on the page and in metrics.json, unlike that of any other table of the report.
        note: stands below; `lead` above: what a reader must know first.
        refs: what a row shows of the run's tables: findings lead there.
        folded: only the title is shown until a reader opens it.
        preview: rows that a page shows of details, with those that findings lead to. 0: all rows,
            of a long table the first `FOLDED_TO`.
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

    @property
    def first_rows(self) -> int:
        """How many rows a page shows, unless findings lead to further ones."""
        if self.preview:
            return min(self.preview, len(self.rows))
        return FOLDED_TO if len(self.rows) > FOLD_ABOVE else len(self.rows)

    def cells(self) -> list[list[Value | None]]:
        """Return all cells, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def is_numeric(self, column: int) -> bool:
        """Say whether a column holds numbers: it stands at the right."""
        cells = [cell for row in self.cells() if (cell := row[column]) is not None]
        return bool(cells) and all(sort_value(cell) is not None or _missing(cell) for cell in cells)

    def row_anchors(self) -> list[list[str]]:
        """Return the ids of the rows' refs, row by row."""
        if self.refs is None:
            return [[] for _ in self.rows]
        return [[ref.anchor for ref in self.refs(row)] for row in self.rows]


def sort_value(cell: Value | None) -> float | None:
    """Return what a cell is sorted by: the number itself; None for what is no number."""
    if isinstance(cell, Number):
        return cell.value
    if isinstance(cell, Verbatim):
        return cell.sort
    return float(cell) if isinstance(cell, int) else None


def _missing(cell: Value) -> bool:
    return isinstance(cell, Number) and cell.value is None
