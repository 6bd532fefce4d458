"""Says sentences in one language, by key or by their English."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from nsight_prof.reports.language.catalogue import ENGLISH, catalogue
from nsight_prof.reports.view_models import Fact, GlossaryEntry

REASONS = ("why",)
"""Placeholders with a sentence of their own, which is marked where it stays English."""
RECOGNISED = ("sentences", "advice")
_ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_TOUCHING = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[\u4e00-\u9fff])")
_PLURAL = "(s)"
_VALUES = {"part": r"\S+ %|n/a", "base": r"[^;]+?"}
"""How the value of a placeholder looks where it is not any text."""


@dataclass(frozen=True)
class Pattern:
    """An English sentence of the catalogue, and how it is recognised with its values."""

    section: str
    key: str
    expression: re.Pattern[str]


class Words:
    """The words of one language. English sentences pass, some of them in plainer words."""

    def __init__(self, language: str) -> None:
        """Read the catalogue; raises UsageError where there is none."""
        self.language = language
        self._own = catalogue(language)
        self._english = catalogue(ENGLISH)

    @property
    def page(self) -> Mapping[str, str]:
        """Return the fixed words of a page, by key."""
        return self._own["page"]

    def say(self, key: str, **values: str) -> str:
        """Return the sentence `key` of the summary with its values."""
        return self._spaced(self._own["summary"][key].format(**values))

    def word(self, section: str, key: str, default: str = "") -> str:
        """Return the word for a key, as for a category; English, marked, where there is none."""
        if key in self._own[section]:
            return self._own[section][key]
        english = self._english[section].get(key)
        return default if english is None else self.marked(english)

    def of(self, text: str) -> str:
        """Return English sentences in this language; one that is not known is marked."""
        if not text:
            return text
        if (known := self._recognised(text)) is not None:
            return known
        parts = _ENDS.split(text)
        own = [self._recognised(part) for part in parts]
        if all(one is None for one in own):
            return self.marked(text)
        said = [
            self.marked(part) if one is None else one for part, one in zip(parts, own, strict=True)
        ]
        return self._own["page"]["between"].join(said)

    def quoted(self, text: str) -> str:
        """Return what a user wrote: as it is, unless it is the question of a bundled recipe."""
        questions = self._english["questions"]
        key = next((key for key, question in questions.items() if question == text), None)
        return text if key is None else self._own["questions"][key]

    def fact(self, fact: Fact) -> Fact:
        """Return a row of a table in this language."""
        return Fact(self.of(fact.label), self.shown(fact.value))

    def shown(self, value: str) -> str:
        """Return a value that is formatted already; as it is where no catalogue has it."""
        return self._recognised(value) or value

    def marked(self, text: str) -> str:
        """Return an English text with the mark that says so; in English as it is."""
        return self._own["page"]["untranslated"].format(text=text)

    def listed(self, parts: Iterable[str]) -> str:
        """Return "a, b and c"."""
        *most, last = parts
        head = self._own["page"]["comma"].join(most)
        return self._spaced(f"{head}{self._own['page']['and']}{last}" if head else last)

    def terms(self, entries: Iterable[GlossaryEntry]) -> tuple[GlossaryEntry, ...]:
        """Return the entries of the English glossary in this language."""
        names, meanings = self._own["terms"], self._own["meanings"]
        return tuple(
            GlossaryEntry(names.get(e.term, e.term), meanings[e.term])
            if e.term in meanings
            else GlossaryEntry(e.term, self.marked(e.meaning))
            for e in entries
        )

    def recognise(self, text: str) -> tuple[str, dict[str, str]]:
        """Return key and values (in this language) of an English text; "" where it is unknown."""
        for pattern in _patterns():
            if found := pattern.expression.fullmatch(text):
                values = found.groupdict().items()
                return pattern.key, {name: self._value(name, value) for name, value in values}
        return "", {}

    @staticmethod
    def sentences(text: str) -> list[str]:
        """Return the sentences of an English text."""
        return _ENDS.split(text)

    def _spaced(self, text: str) -> str:
        """Return Chinese with a space between its characters and Latin letters or digits."""
        return _TOUCHING.sub(" ", text) if self.language == "zh" else text

    def _recognised(self, text: str) -> str | None:
        """Return a whole English text in this language; None where no catalogue has it."""
        for pattern in _patterns():
            found = pattern.expression.fullmatch(text)
            own = self._own[self._section(pattern)].get(pattern.key) if found else None
            if found and own is not None:
                values = {name: self._value(name, v) for name, v in found.groupdict().items()}
                return self._spaced(own.format(**values))
        return None

    def _section(self, pattern: Pattern) -> str:
        """Return where its text stands: English says some sentences in plainer words."""
        plainer = self.language == ENGLISH and pattern.section == "sentences"
        return "plainer" if plainer else pattern.section

    def _value(self, name: str, value: str) -> str:
        if name in REASONS:
            return self._recognised(value) or self.marked(value)
        key = next((k for k, word in self._english["words"].items() if word == value), None)
        return value if key is None else self._own["words"][key]


@cache
def words_of(language: str) -> Words:
    """Return the words of a language; raises UsageError where there is no such catalogue."""
    return Words(language)


def placeholders(text: str) -> set[str]:
    """Return the names of the values that a sentence takes."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@cache
def _patterns() -> tuple[Pattern, ...]:
    """Return the English sentences, those of most fixed text first: they tell the most."""
    found = [
        (len(re.sub(r"\{\w+\}", "", text)), Pattern(section, key, _expression(text)))
        for section in RECOGNISED
        for key, text in catalogue(ENGLISH)[section].items()
    ]
    return tuple(pattern for _, pattern in sorted(found, key=lambda item: -item[0]))


def _expression(text: str) -> re.Pattern[str]:
    made = ""
    for fixed, name, _, _ in string.Formatter().parse(text):
        made += re.escape(fixed).replace(re.escape(_PLURAL), "s?")
        if name:
            again = f"(?P<{name}>" in made
            made += f"(?P={name})" if again else f"(?P<{name}>{_VALUES.get(name, '.+?')})"
    return re.compile(made, re.DOTALL)
