"""Which row of a page shows a number: where a sentence that tells it leads to.

It is looked for by value and unit: a row about the same kernel that shows another number is no
proof of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nsight_prof.reports.page.values import Number

TELLING = 4
"""Significant digits from which on equal values are the same number, whatever they are about."""


class Shown(NamedTuple):
    """A number that the row with the id `anchor` shows.

    `about` are keys of what the row is about: rows of the run's tables (`Ref.row`), a finding.
    """

    anchor: str
    number: Number
    about: frozenset[str] = frozenset()


class Rows:
    """Rows of a page by the numbers that they show; of several rows the first counts."""

    def __init__(self, rows: Iterable[Shown] = ()) -> None:
        self.shown = tuple(rows)
        self._at: dict[tuple[str, str], list[Shown]] = defaultdict(list)
        for row in self.shown:
            if row.number.value is not None:
                self._at[_key(row.number)].append(row)

    def find(self, number: Number, *about: Collection[str], at: Collection[str] = ()) -> str:
        """Return the id of the row that shows a number, "" for none.

        Rows whose id is in `at` go first, then those about what its cells are of, then those about
        each of `about` in turn. Last comes a row about nothing in particular, of a number of no
        single row any row, where the digits tell the number from others.
        """
        if number.value is None:
            return ""
        rows = self._at.get(_key(number), ())
        if exact := next((row.anchor for row in rows if row.anchor in at), ""):
            return exact
        row_keys = {ref.row for ref in number.refs if ref.row}
        for keys in (row_keys, *about):
            for row in rows:
                if not row.about.isdisjoint(keys):
                    return row.anchor
        any_row = (row.anchor for row in rows if not (row_keys and row.about))
        return next(any_row, "") if _is_telling(number) else ""


def _key(number: Number) -> tuple[str, str]:
    """Return what equal numbers have in common: 12 % is 0.12 and 1 ms is 1,000,000 ns."""
    value = number.value or 0.0
    if number.unit == "s":
        return "ns", f"{1e9 * value:.6g}"
    if number.unit == "fraction":
        return "%", f"{100 * value:.6g}"
    return number.unit, f"{value:.6g}"


def _is_telling(number: Number) -> bool:
    digits = f"{abs(number.value or 0.0):.6e}".partition("e")[0].replace(".", "").rstrip("0")
    return len(digits) >= TELLING
