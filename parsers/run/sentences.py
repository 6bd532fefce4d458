"""Sentences that tables and the manifest keep in English, and what they are made of.

Whoever writes them keeps message and values of their sentences, too, so that a report says them in
other languages: nobody reads words back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter

Value: TypeAlias = str | int | float


@dataclass(frozen=True)
class Made:
    """What a sentence is made of: `message.format(**values)` are its English words.

    Units stand in the message. A value that is itself a sentence is there by its words.
    """

    message: str
    values: dict[str, Value]


Sentences: TypeAlias = dict[str, Made]
_found: ContextVar[Sentences | None] = ContextVar("found", default=None)


class Sentence(str):
    """English words, as any str, that know what they are made of."""

    origin: Made

    def __new__(cls, message: str, values: Mapping[str, Value]) -> Sentence:
        """Make the words; without values the message is all there is to them."""
        sentence = super().__new__(cls, message.format(**values) if values else message)
        sentence.origin = Made(message, dict(values))
        return sentence

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return what copies and other processes make it of."""
        return self.origin.message, self.origin.values


def stored(message: str, /, **values: Any) -> str:
    """Return an English `Sentence` that a table or the manifest keeps, and that reports translate.

    `message` is a literal with placeholders as `str.format` has them, "{share:.0%} of {total:,}
    launches", which scripts/messages.py finds. A value is a number, a text, or another sentence.
    """
    return _noted(Sentence(message, {name: _as_json(value) for name, value in values.items()}))


def _noted(sentence: Sentence) -> Sentence:
    if (found := _found.get()) is not None:
        found |= made_of([sentence])
    return sentence


def joined(between: str, sentences: Iterable[str]) -> str:
    """Return sentences as one, with a mark between them; empty ones are left out."""
    given = {f"s{n}": sentence for n, sentence in enumerate(filter(None, sentences))}
    if len(given) < 2:
        return next(iter(given.values()), "")
    return _noted(Sentence(between.join(f"{{{name}}}" for name in given), given))


def made_of(texts: Iterable[str]) -> Sentences:
    """Return what those of some texts that are sentences with values are made of."""
    found: Sentences = {}
    for text in texts:
        if isinstance(text, Sentence) and text.origin.values:
            values = text.origin.values.values()
            found |= made_of(value for value in values if isinstance(value, str))
            found[str(text)] = text.origin
    return found


def _as_json(value: Any) -> Value:
    if isinstance(value, Sentence):
        return value
    value = value.item() if hasattr(value, "item") else value  # of numpy
    return value if isinstance(value, (int, float)) else str(value)


def keep(sentences: Sentences) -> None:
    """Add what was read back to the sentences that are made meanwhile (`sentences_made`)."""
    if (found := _found.get()) is not None:
        found |= sentences


def made_meanwhile(texts: Iterable[str]) -> Sentences:
    """Return those of the sentences that are made meanwhile whose words are among some texts."""
    known, found = _found.get() or {}, Sentences()
    for text in texts:
        if text in known:
            found[text] = known[text]
            found |= made_meanwhile(v for v in known[text].values.values() if isinstance(v, str))
    return found


@contextmanager
def sentences_made() -> Iterator[Sentences]:
    """Give the sentences with values that are made within."""
    found: Sentences = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def as_json(sentences: Sentences) -> dict[str, Any]:
    """Return sentences for a file of JSON, by their words."""
    return {words: asdict(origin) for words, origin in sorted(sentences.items())}


def valid(data: Any) -> Sentences:
    """Return sentences as JSON has them; raises ValueError where it has something else."""
    return _sentences().validate_python(data)


@cache
def _sentences() -> TypeAdapter[Sentences]:
    return TypeAdapter(Sentences)
