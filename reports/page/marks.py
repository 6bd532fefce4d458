"""Marks in the text of a template for what is known only when the page is: links, ids and tables.

Templates write each once, for markdown and HTML: where a link leads depends on the page that has
its place, and a table is lines of markdown or an HTML table. `filled` puts the words in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

# No text that a page shows has control characters (parsers.printable).
OPEN, CLOSE, BETWEEN = "\x02", "\x03", "\x04"
HOLD = "\x1f"
"""The space between a number and its unit, which stay on one line; to Python it is white space."""
Kind: TypeAlias = Literal["id", "link", "table"]


def mark(kind: Kind, name: str) -> str:
    """Return what stands for an id, for the target of a link to an id, or for a table."""
    return f"{OPEN}{kind}{BETWEEN}{name}{CLOSE}"


def marks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of each mark of a text."""
    for piece in text.split(OPEN)[1:]:
        kind, _, name = piece.partition(CLOSE)[0].partition(BETWEEN)
        yield kind, name


def filled(text: str, words: Mapping[str, Callable[[str], str]]) -> str:
    """Return a text with the words for each kind of mark in the place of its marks."""
    before, *pieces = text.split(OPEN)
    written = [before]
    for piece in pieces:
        what, _, after = piece.partition(CLOSE)
        kind, _, name = what.partition(BETWEEN)
        written += [words[kind](name), after]
    return "".join(written)
