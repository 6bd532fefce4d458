"""What a page says: numbers with the cells that they are from, sentences with their values.

A quantity keeps its unit and its cells, or the reason why it is missing. The English message of a
sentence is the message id of its translations.
"""

from __future__ import annotations

import copy
import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from nsight_prof.parsers.cells import known
from nsight_prof.reports.page import units

NOT_MEASURED = "not measured"
INPUT_DIGITS = 4
"""Digits of the inputs of a formula, whose result has two."""


@dataclass(frozen=True)
class Ref:
    """A cell of a table of the run: `row` is its key, `column` a column or a counter's name."""

    table: str
    row: str
    column: str = ""

    @property
    def anchor(self) -> str:
        """Id of the row on every page that shows it."""
        return place_id(f"{self.table}-{self.row}")


def place_id(name: str) -> str:
    """Return the id of a place with this name, another one per name: `aten::add` and `aten::add_`
    are two. What a link may not hold stands there by its code, a space as a plus.
    """
    return "".join(
        c if c.isalnum() or c in "-_.:/" else "+" if c == " " else f"~{ord(c):x}~" for c in name
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
        formula: how it is worked out, with its inputs; None where it is read as it is.
    """

    value: float | None
    unit: str = ""
    refs: tuple[Ref, ...] = ()
    missing: str = ""
    low: float | None = None
    high: float | None = None
    digits: int = 0
    formula: Text | None = field(default=None, compare=False)

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

    def by(self, formula: Text) -> Number:
        """Return the same number with how it is worked out."""
        return replace(self, formula=formula)

    def __add__(self, number: Number) -> Number:
        """Return the sum of two numbers of one unit; raises ValueError for two units."""
        sums = self.formula if self.formula and self.formula.message == "{a} + {b}" else None
        return self._with(number, self._same_unit(number), lambda a, b: a + b).by(
            Text("{a} + {b}", a=sums or self._input, b=number._input)
        )

    def __sub__(self, number: Number) -> Number:
        """Return the difference of two numbers of one unit; raises ValueError for two units."""
        return self._with(number, self._same_unit(number), lambda a, b: a - b).by(
            Text("{a} - {b}", a=self._input, b=number._input)
        )

    def share_of(self, total: Number) -> Number:
        """Return what part of `total` this is, unit "fraction"; raises ValueError for two units."""
        self._same_unit(total)
        return self._ratio(total, "fraction")

    def times(self, base: Number) -> Number:
        """Return this over `base`, unit "x"; raises ValueError for two units."""
        self._same_unit(base)
        return self._ratio(base, "x")

    def per(self, number: Number, unit: str) -> Number:
        """Return this over a number of another unit, in `unit`."""
        return self._ratio(number, unit)

    def _ratio(self, base: Number, unit: str) -> Number:
        return self._with(base, unit, lambda a, b: a / b if b else None).by(
            Text("{a} / {b}", a=self._input, b=base._input)
        )

    @property
    def _input(self) -> Number:
        return self if self.digits else self.at_digits(INPUT_DIGITS)

    def _same_unit(self, number: Number) -> str:
        if self.unit != number.unit:
            raise ValueError(f"{self.unit!r} and {number.unit!r} are different units")
        return self.unit

    def _with(self, number: Number, unit: str, combine: Callable[[float, float], Any]) -> Number:
        refs = tuple(dict.fromkeys((*self.refs, *number.refs)))
        if self.value is None or number.value is None:
            return Number(None, unit, refs, self.missing or number.missing)
        return Number(combine(self.value, number.value), unit, refs)


@dataclass(frozen=True)
class Name:
    """A proper name, of a kernel, a case or a counter: never translated, set as code.

    It links to its row wherever the page shows `ref`.
    """

    name: str
    ref: Ref | None = None


@dataclass(frozen=True, init=False)
class Text:
    """An English `message` with named placeholders, and their values.

    `Text("{n} case was noisy", "{n} cases were noisy", n=3)`: of a message with a plural, the value
    `n` says which is meant. An `int` is a count; other numbers are a `Number`, with their unit.
    Messages are literals, so that scripts/messages.py finds them.
    """

    message: str
    plural: str
    values: Mapping[str, Value]

    def __init__(self, message: str, plural: str = "", /, **values: Value) -> None:
        """Raise ValueError where the values are not those of the placeholders."""
        wanted = placeholders(message) | placeholders(plural)
        if wanted != set(values):
            raise ValueError(f"{message!r} takes {sorted(wanted)}, not {sorted(values)}")
        object.__setattr__(self, "message", message)
        object.__setattr__(self, "plural", plural)
        object.__setattr__(self, "values", values)

    def __hash__(self) -> int:
        """Hash the message: values may be unhashable."""
        return hash((self.message, self.plural))

    def with_values(self, change: Callable[[Value], Value]) -> Text:
        """Return the same sentence with its values changed."""
        changed = copy.copy(self)
        values = {name: change(value) for name, value in self.values.items()}
        object.__setattr__(changed, "values", values)
        return changed

    def messages(self) -> Iterator[str]:
        """Yield the message ids of this text and of the texts inside of it."""
        yield self.message
        for value in self.values.values():
            inside = value if isinstance(value, (list, tuple)) else (value,)
            for item in inside:
                if isinstance(item, Text):
                    yield from item.messages()


class Said(str):
    """English words of a text, as data has them; pages say the text in their language."""

    text: Text


@dataclass(frozen=True)
class Verbatim:
    """Text of others, as a tool's or a user's: shown as it is in every language.

    `sort` is the number behind it, for tables.
    """

    text: str
    sort: float | None = None


@dataclass(frozen=True)
class Quoted:
    """Sentences of another program, in English: pages in other languages say so to browsers."""

    text: str


@dataclass(frozen=True)
class Document:
    """A file of the run, which its name leads to: `path` is relative to the run."""

    name: str
    path: str


@dataclass(frozen=True)
class Word:
    """A fixed word of data, as the label of a counter: translated where the language has it."""

    text: str


@dataclass(frozen=True)
class Link:
    """What leads to the place of the report that has the id `anchor`."""

    label: Value
    anchor: str


@dataclass(frozen=True)
class Strong:
    """A value in bold."""

    value: Value


@dataclass(frozen=True)
class Capital:
    """A value that begins with a capital letter, as a cell does."""

    value: Value


@dataclass(frozen=True)
class Series:
    """Values one behind the other, with commas between them; `cut`: there are more."""

    values: Sequence[Value]
    cut: bool = False


Value: TypeAlias = (
    int | str | Number | Interval | Name | Text | Verbatim | Quoted | Document | Word
    | Link | Strong | Capital | Series | Sequence["Value"]
)  # fmt: skip
"""What a placeholder or a cell can hold; several are shown as a list. A str is no sentence."""


Confidence: TypeAlias = Literal["", "high", "medium", "low"]
"""How sure a finding is; "" where that is not graded."""

Words: TypeAlias = str | Text
"""Words of a picture: a message, or a str: a name, or a message without values."""


def placeholders(message: str) -> set[str]:
    """Return the names of the values that a message takes."""
    return {name for _, name, _, _ in string.Formatter().parse(message) if name}


def has_words(message: str) -> bool:
    """Say whether a message has letters of its own, which a language must translate."""
    return any(c.isalpha() for fixed, *_ in string.Formatter().parse(message) for c in fixed)


def adding_up(total: Number, *summands: Number, digits: int = 0) -> tuple[Number, ...]:
    """Return a total and its parts, of one unit, rounded so that they add up as they are shown.

    `digits` are those of the total; 0: as in tables (reports.page.units.places).
    """
    if not total.value:
        return (total, *summands)
    step, _, decimals = units.places(total.value, total.unit, digits)
    grain = step / 10**decimals
    rounded = units.parts_of(total.value, [summand.value for summand in summands], grain)
    rounded_total = round(total.value / grain) * grain
    return tuple(
        replace(number, value=value, digits=_digits(value, step, decimals))
        for number, value in zip((total, *summands), (rounded_total, *rounded), strict=True)
    )


def _digits(value: float | None, step: float, decimals: int) -> int:
    """Return the significant digits of a value that is shown with so many decimals."""
    if not value:
        return 1
    return max(1, math.floor(math.log10(abs(value) / step) + 1e-9) + 1 + decimals)
