"""A quantity with its unit and the cells that it was read from, or the reason why it is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nsight_prof.parsers.cells import known

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Ref:
    """A cell of a table of the run: `row` is its key, `column` a column or a counter's name."""

    table: str
    row: str
    column: str = ""

    @property
    def anchor(self) -> str:
        """Id of the row on every page that shows it."""
        return "-".join(
            "".join(c if c.isalnum() else "-" for c in f"{self.table}-{self.row}").split()
        )


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, mostly a 95 % confidence interval; None where an end is unknown."""

    low: float | None
    high: float | None
    unit: str = ""

    def __post_init__(self) -> None:
        """Make ends that are no finite numbers unknown."""
        object.__setattr__(self, "low", known(self.low))
        object.__setattr__(self, "high", known(self.high))


@dataclass(frozen=True)
class Number:
    """A value in the base unit `unit` (reports.page.units has those with prefixes).

    Attributes:
        value: None where unknown; NaN, NA and infinities become None.
        refs: cells that it was read or computed from.
        missing: why there is no value.
        low, high: its 95 % confidence interval.
        digits: significant digits to show; 0: as many as the place shows.
    """

    value: float | None
    unit: str = ""
    refs: tuple[Ref, ...] = ()
    missing: str = ""
    low: float | None = None
    high: float | None = None
    digits: int = 0

    def __post_init__(self) -> None:
        """Make what is no finite number unknown, with a reason."""
        for name in ("value", "low", "high"):
            object.__setattr__(self, name, known(getattr(self, name)))
        if self.value is None and not self.missing:
            object.__setattr__(self, "missing", NOT_MEASURED)

    @property
    def interval(self) -> Interval:
        """Its confidence interval."""
        return Interval(self.low, self.high, self.unit)

    def at_digits(self, digits: int) -> Number:
        """Return the same number, shown with so many significant digits wherever it stands."""
        return replace(self, digits=digits)

    def __add__(self, other: Number) -> Number:
        """Return the sum of two numbers of one unit; raises ValueError for two units."""
        return self._with(other, self._same_unit(other), lambda a, b: a + b)

    def __sub__(self, other: Number) -> Number:
        """Return the difference of two numbers of one unit; raises ValueError for two units."""
        return self._with(other, self._same_unit(other), lambda a, b: a - b)

    def share_of(self, whole: Number) -> Number:
        """Return what part of `whole` this is, unit "fraction"; raises ValueError for two units."""
        self._same_unit(whole)
        return self._with(whole, "fraction", lambda a, b: a / b if b else None)

    def times(self, base: Number) -> Number:
        """Return this over `base`, unit "x"; raises ValueError for two units."""
        self._same_unit(base)
        return self._with(base, "x", lambda a, b: a / b if b else None)

    def per(self, other: Number, unit: str) -> Number:
        """Return this over a number of another unit, in `unit`."""
        return self._with(other, unit, lambda a, b: a / b if b else None)

    def _same_unit(self, other: Number) -> str:
        if self.unit != other.unit:
            raise ValueError(f"{self.unit!r} and {other.unit!r} are different units")
        return self.unit

    def _with(self, other: Number, unit: str, made: Callable[[float, float], Any]) -> Number:
        refs = tuple(dict.fromkeys((*self.refs, *other.refs)))
        if self.value is None or other.value is None:
            return Number(None, unit, refs, self.missing or other.missing)
        return Number(made(self.value, other.value), unit, refs)
