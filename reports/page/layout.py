"""What of long lists stands on the first page of a report; the details have all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Layout:
    """How much of a list report.md shows.

    A table of more than `longest` rows shows its first `rows` there and all of them in details.md.
    The first `findings` findings stand in full, the others in details.md.
    """

    longest: int
    rows: int
    findings: int

    def cut(self, rows: Sequence[T]) -> bool:
        """Return whether report.md shows only the first of these rows."""
        return len(rows) > self.longest

    def first(self, rows: Sequence[T]) -> Sequence[T]:
        """Return the rows that report.md shows."""
        return rows[: self.rows] if self.cut(rows) else rows

    def in_full(self, findings: Sequence[T]) -> Sequence[T]:
        """Return the findings that report.md explains."""
        return findings[: self.findings]

    def in_details(self, findings: Sequence[T]) -> Sequence[T]:
        """Return the findings that details.md explains."""
        return findings[self.findings :]


LAYOUTS = (Layout(15, 10, 3), Layout(10, 6, 2), Layout(6, 4, 1))
"""The first of which the page has no more than LINES is taken: stages, kinds, causes of idle time
and evidence grow with a run, each by itself."""
LINES = 400
