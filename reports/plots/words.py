"""Words of a picture in the language that is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.formats import share
from nsight_prof.reports.page.values import Text, Words
from nsight_prof.reports.page.writer import Writer

_LANGUAGE: ContextVar[str] = ContextVar("language", default=ENGLISH)


@contextmanager
def drawn_in(language: str) -> Iterator[None]:
    """Draw with the words of a language."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def say(words: Words) -> str:
    """Return words in the language that is drawn; a str that is no message stays as it is."""
    writer = Writer(_LANGUAGE.get())
    return writer.text(words) if isinstance(words, Text) else writer.word(words)


def labelled(name: Words, value: str) -> str:
    """Return "name: value" in the language that is drawn."""
    return f"{say(name)}: {value}"


def of_gpu_time(fraction: float | None) -> str:
    """Return a share of the GPU time; empty where it is not known."""
    return "" if fraction is None else say(Text("{share} of GPU time", share=share(fraction)))


def range_of(low: str, high: str) -> str:
    """Return both ends of an interval."""
    return say(Text("{low} to {high}", low=low, high=high))
