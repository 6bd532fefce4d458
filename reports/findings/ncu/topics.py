"""Tells what each result of ncu's rules is about, from topics.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.page.values import Text, Value
from nsight_prof.reports.page.writer import in_english

message: type[Text] = Text


@dataclass(frozen=True)
class Topic:
    """What a rule of ncu is about; see topics.yaml for what the fields mean."""

    key: str
    rule: str
    words: str
    about: str
    section: str
    compare: str
    bounds: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    silent: str = ""

    def fits(self, rule: str, message: str) -> bool:
        """Tell whether a result of `rule` with this message is about this topic."""
        return bool(re.fullmatch(self.rule, rule) and re.search(self.words, message))


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = packaged_yaml("nsight_prof.reports.findings.ncu", "topics.yaml")
    return loaded


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the order in which they are asked."""
    names, rows = ("bounds", "units", "causes"), _data()["topics"]
    return tuple(Topic(**row | {name: tuple(row.get(name, ())) for name in names}) for row in rows)


def topics_of(rule: str, message: str) -> tuple[Topic, ...]:
    """Return what a result is about: the first topic that fits, and others beside it.

    One rule may say several things in one message: Occupancy, before ncu 2023, names the limiter
    and the warps that are missing.
    """
    found: dict[str, Topic] = {}
    for topic in topics():
        if topic.fits(rule, message):
            found.setdefault(topic.compare, topic)
    return tuple(found.values())


def limiters_of(message: str) -> frozenset[str]:
    """Return the limiters of occupancy that a message names, as in `occupancy_limiter`."""
    return frozenset(name for words, name in _data()["limiters"].items() if words in message)


def stall_of(message: str) -> str:
    """Return the stall reason that a message is about, as in table `stalls`; "" if unknown."""
    known: dict[str, str] = _data()["stalls"]
    return next((name for name, words in known.items() if re.search(words, message)), "")


def reasons() -> dict[str, str]:
    """Return why prof may say something else: messages by their keys."""
    found: dict[str, str] = _data()["reasons"]
    return found


def reason(key: str, **values: Value) -> str:
    """Return why prof says something else."""
    return in_english(message(reasons()[key], **values))
