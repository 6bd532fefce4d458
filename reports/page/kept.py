"""What sentences that runs keep in English are made of, while their pages are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from nsight_prof.parsers.sentences import Made, Sentence

_NONE: Mapping[str, Made] = MappingProxyType({})
_KEPT: ContextVar[Mapping[str, Made]] = ContextVar("kept", default=_NONE)


@contextmanager
def knowing(sentences: Mapping[str, Made]) -> Iterator[None]:
    """Know these sentences, of `Run.sentences`, while pages of the run are written."""
    token = _KEPT.set(sentences)
    try:
        yield
    finally:
        _KEPT.reset(token)


def made_from(words: str) -> Made | None:
    """Return what exactly these words are made of; None where they are no sentence with values."""
    return words.made if isinstance(words, Sentence) else _KEPT.get().get(words)
