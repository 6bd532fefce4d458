"""Turns numbers as ncu and nsys print them, in any locale, into floats.

ncu groups digits as the locale says, also with `--print-units base` (2025.3.1: «4,067,203.88»),
and prints integers, or 2 or 6 decimals, never 3: a separator before exactly three last digits is a
group, everything else is a decimal mark. One file has one locale, so the marks are found from all
its numbers together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from nsight_prof.parsers.errors import ArtifactUnreadable

# Space, no-break spaces, apostrophes: groups only, in no locale a decimal mark.
_SPACES = " \u00a0\u202f\u2009'\u2019"
_PLAIN = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
_NUMBER = re.compile(rf"^[+-]?[\d.,{_SPACES}]*\d[\d.,{_SPACES}]*([eE][+-]?\d+)?$")
# Most numbers of a file are like these, and neither form can be read in two ways.
_DIGITS = re.compile(r"[+-]?[0-9]+")
_POINT = re.compile(r"[+-]?[0-9]+\.(?:[0-9]{1,2}|[0-9]{4,})")
_GROUPED = re.compile(r"^[1-9]\d{0,2}(,\d{2})*(,\d{3})$|^[1-9]\d{0,2}(,\d{3})+$")
_NAN = {"nan", "-nan", "+nan", "nan(ind)", "-nan(ind)"}
_INFINITE = {"inf", "+inf", "-inf", "infinity", "-infinity"}
UNAVAILABLE = {"", "n/a", "no data", "(!)", "-"}


@dataclass(frozen=True)
class Marks:
    """How a file writes numbers: the decimal mark; the other mark, if any, groups digits."""

    decimal: str = "."

    def simple(self, text: str) -> float | None:
        """Return the number if it is written as most are: digits, and a point before some."""
        if _DIGITS.fullmatch(text) or (self.decimal == "." and _POINT.fullmatch(text)):
            return float(text)
        return None

    def parse(self, text: str) -> float | None:
        """Return the number, or None where `text` is no number; nan and inf are numbers."""
        text = text.strip()
        if (number := self.simple(text)) is not None:
            return number
        if text.lower() in _NAN:
            return math.nan
        if text.lower() in _INFINITE:
            return float(text)
        if not _NUMBER.match(text):
            return None
        for space in _SPACES:
            text = text.replace(space, "")
        group = "," if self.decimal == "." else "."
        integer, mark, rest = text.partition(self.decimal)
        if not _is_whole(integer, group) or group in rest:
            return None
        digits = integer.replace(group, "") + ("." if mark else "") + rest
        return float(digits) if _PLAIN.match(digits) else None


def find_marks(texts: Iterable[str], where: str) -> Marks:
    """Return the marks that fit every number of a file.

    Raises:
        ArtifactUnreadable: two numbers contradict each other, or nothing tells whether 1.234 is
            a thousand or a little more than one.
    """
    found: dict[str, str] = {}
    ambiguous = ""
    for text in texts:
        if "," not in text and "." not in text:
            continue
        if _POINT.fullmatch(text):
            found.setdefault(".", text)
            continue
        if not _NUMBER.match(text.strip()):
            continue
        decimal = decimal_mark(text)
        if decimal:
            found.setdefault(decimal, text)
        elif "." in text:
            ambiguous = ambiguous or text
    if len(found) > 1:
        raise _mixed(where, *found.values())
    if not found and ambiguous:
        raise _mixed(where, ambiguous)
    return Marks(next(iter(found), "."))


def is_unavailable(text: str) -> bool:
    """Return whether ncu says that it has no value: n/a, no data, (!)."""
    if text[:1].isdigit():
        return False
    return text.replace("(!)", "").strip().lower() in UNAVAILABLE


def decimal_mark(text: str) -> str:
    """Return the decimal mark that the number `text` proves, or "" where it proves none."""
    text = re.split("[eE]", text.strip().lstrip("+-"))[0]
    for space in _SPACES:
        text = text.replace(space, "")
    dot, comma = text.rfind("."), text.rfind(",")
    if dot >= 0 and comma >= 0:
        return "." if dot > comma else ","
    mark = "." if dot >= 0 else ","
    if text.count(mark) > 1:
        group_mark = "," if mark == "." else "."
        return group_mark if _is_whole(text, mark) else ""
    if _GROUPED.match(text.replace(mark, ",")):
        return ""
    return mark


def _is_whole(text: str, group: str) -> bool:
    digits = text.lstrip("+-")
    return group not in digits or bool(_GROUPED.match(digits.replace(group, ",")))


def _mixed(where: str, *examples: str) -> ArtifactUnreadable:
    quoted = " and ".join(repr(example) for example in examples)
    return ArtifactUnreadable(
        f"{where}: cannot tell the decimal mark from {quoted}",
        "export again with the C locale: LC_ALL=C ncu --import FILE.ncu-rep --csv --page raw",
    )
