"""A sentence with its values: the English message is the message id of its translations."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nsight_prof.reports.page.number import Interval, Number, Ref


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

    def messages(self) -> Iterator[str]:
        """Yield the message ids of this text and of the texts inside of it."""
        yield self.message
        for value in self.values.values():
            inside = value if isinstance(value, (list, tuple)) else (value,)
            for one in inside:
                if isinstance(one, Text):
                    yield from one.messages()


@dataclass(frozen=True)
class Verbatim:
    """Text of others, as a tool's or a user's: shown as it is in every language.

    `sort` is the number behind it, for tables.
    """

    text: str
    sort: float | None = None


Value: TypeAlias = int | str | Number | Interval | Name | Text | Verbatim | Sequence["Value"]
"""What a placeholder or a cell can hold; several are shown as a list. A str is no sentence."""


def placeholders(message: str) -> set[str]:
    """Return the names of the values that a message takes."""
    return {name for _, name, _, _ in string.Formatter().parse(message) if name}
