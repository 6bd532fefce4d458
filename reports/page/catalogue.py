"""Translations of messages: reports/words/<language>/*.po, read as gettext has them.

scripts/messages.py keeps these files: it finds the messages in the code, and checks them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources
from types import MappingProxyType

from nsight_prof.parsers.run.sentences import Made, Sentence

ENGLISH = "en"
NAMES = {"en": "English", "ko": "한국어", "zh": "中文"}
"""Names of the languages, each in itself."""
LANGUAGES = tuple(NAMES)
_NONE: Mapping[str, Made] = MappingProxyType({})
_SENTENCES: ContextVar[Mapping[str, Made]] = ContextVar("kept", default=_NONE)
STORED = "stored"
"""File of the messages of sentences that tables and manifests keep (parsers.run.sentences)."""


def file_in(name: str, language: str) -> str:
    """Return the name of a file in a language: "report.md" is "report.ko.md" in Korean."""
    stem, _, suffix = name.rpartition(".")
    return name if language == ENGLISH else f"{stem}.{language}.{suffix}"


def language_of(name: str) -> str:
    """Return the language of a page by its name: of "report.ko.html" Korean."""
    return next((language for language in LANGUAGES if f".{language}." in name), ENGLISH)


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Return message id -> translation; empty for English. Fuzzy and empty ones are left out.

    Korean and Chinese have no plural: the one form stands for both.
    """
    if language == ENGLISH:
        return {}
    folder = resources.files("nsight_prof.reports").joinpath("words", language)
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".po")), key=lambda f: f.name)
    return {key: text for file in files for key, text in entries(file.read_text("utf-8")) if text}


@cache
def stored_messages(language: str) -> Mapping[str, str]:
    """Return message id -> translation of sentences that tables and manifests keep."""
    if language == ENGLISH:
        return {}
    file = resources.files("nsight_prof.reports").joinpath("words", language, f"{STORED}.po")
    return {key: text for key, text in entries(file.read_text("utf-8")) if text}


def entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield (message id, translation) of a .po file that Babel or gettext wrote.

    Raises:
        ValueError: a line that such a file has not.
    """
    # Without context (msgctxt) and with one plural form this is all that the format has.
    for block in text.split("\n\n"):
        if "#, fuzzy" in block.splitlines():
            continue
        found: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if line.startswith("#") or not line:
                continue
            if not line.startswith('"'):
                key, _, line = line.partition(" ")
            found[key] = found.get(key, "") + ast.literal_eval(line)
        if found.get("msgid"):
            yield found["msgid"], found.get("msgstr", found.get("msgstr[0]", ""))


@contextmanager
def knowing(sentences: Mapping[str, Made]) -> Iterator[None]:
    """Know these sentences, of `Run.sentences`, while pages of the run are written."""
    token = _SENTENCES.set(sentences)
    try:
        yield
    finally:
        _SENTENCES.reset(token)


def made_from(words: str) -> Made | None:
    """Return what exactly these words are made of; None where they are no sentence with values."""
    return words.origin if isinstance(words, Sentence) else _SENTENCES.get().get(words)
