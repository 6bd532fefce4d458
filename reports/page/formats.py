"""Turns plain numbers and names into the text of reports: fixed digits, units, escaped markdown.

Every number of a report passes through here, so that "12.3 us" looks the same in a table, a plot
and a sentence. Nothing depends on the locale. Unknown (None, NaN, NA, infinite) is always `NA`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

from nsight_prof.parsers.printable import printable
from nsight_prof.reports.page import units

NA = "n/a"
DIGITS = 3
WIDTH_OF_FAULT = 80
"""Characters of a value that an error shows."""
TEXTS = 1 << 14
"""Texts whose markup is kept: names of counters come back for each kernel, in each language."""
MANY = 10
"""Ratio from which on a change in per cent is hard to read."""

MEASURED = {*units.LADDERS, "FLOP/B", "%", "fraction", "x", "count"}
"""Base units of what is measured; a whole number of anything else is a count of it."""
# Characters that start or end markup somewhere in GitHub's markdown, tables included.
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#])")
_HTML_MARKUP = re.compile(r"[\\`*_{}\[\]|~#&<>\"'$]")


class Markdown(str):
    """Text that is markdown already: it is written as it stands."""


class Quantity(str):
    """A number with its unit, which stay on one line."""


def known(value: Any) -> float | None:
    """Return `value` as a float, or None where it is unknown (None, NA, NaN, infinite, text)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def significant(value: Any, digits: int = DIGITS) -> str:
    """Return `value` with `digits` significant digits, without an exponent in [1e-4, 1e9)."""
    number = known(value)
    return NA if number is None else units.significant(number, digits)


def quantity(value: Any, unit: str, digits: int = DIGITS) -> str:
    """Return `value` in the way of its base unit; an unlisted unit stands behind the number."""
    number = known(value)
    if number is None:
        return NA
    if number.is_integer() and unit not in MEASURED:
        return f"{number:,.0f} {unit}".rstrip()
    return units.quantity(number, unit, digits)


def _in(unit: str, meaning: str, digits: int = DIGITS) -> Callable[[Any], str]:
    """Return what writes values of a base unit; `meaning` is its line in docs/templates.md."""

    def write(value: Any) -> str:
        return quantity(value, unit, digits)

    write.__doc__ = meaning
    return write


duration = _in("ns", 'Return nanoseconds as "12.3 us".')
seconds = _in("s", 'Return seconds as "41.2 s".')
data_size = _in("B", 'Return bytes as "3.21 MB" (decimal prefixes, as data sheets use them).')
byte_rate = _in("B/s", 'Return bytes per second as "3.21 TB/s".')
flop_count = _in("FLOP", 'Return floating-point operations as "1.12 TFLOP".')
flop_rate = _in("FLOP/s", 'Return floating-point operations a second as "786 TFLOP/s".')
clock = _in("Hz", 'Return hertz as "1.98 GHz".')
intensity = _in("FLOP/B", 'Return FLOP per byte as "381 FLOP/B".')
percent = _in("%", 'Return a value that is in percent already: 31.24 as "31.2 %".')
share = _in("fraction", 'Return a fraction as percent: 0.3124 as "31.2 %".')
rounded_share = _in("fraction", 'Return a fraction as per cent of two digits: 0.4781 as "48 %".', 2)
count = _in("count", 'Return a whole number with thousands separated: "12,345".')
speedup = _in("x", 'Return a ratio as "1.27x".')


def counted(value: Any, noun: str) -> str:
    """Return a number of things: "1 call", "1,264 calls", "2 launch shapes"."""
    text = count(value)
    more = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{text} {noun if text == '1' else more}"


def listed(names: list[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(p for p in (", ".join(names[:-1]), *names[-1:]) if p)


def difference(value: Any) -> str:
    """Return a signed fraction as "+3.1 %"."""
    number = known(value)
    return NA if number is None else f"{100 * number:+.1f} %"


def change(ratio: Any, work: Any = 1) -> str:
    """Return a ratio as its change, per unit where `work` grew too: "+3.1 %", from ten on "12x"."""
    number, units_of_work = known(ratio), known(work)
    if number is None or not units_of_work:
        return NA
    each = number / units_of_work
    return speedup(each) if each >= MANY else difference(each - 1)


def adding_up(values: Sequence[Any], total: Any, unit: str = "ns") -> list[str]:
    """Return parts of a total in its unit with equal decimals, so that they add up as shown.

    Of a total without parts: `[total] | adding_up(total)`.
    """
    known_total = known(total)
    if not known_total:
        return [quantity(value, unit) for value in values]
    step, name, decimals = units.places(known_total, unit)
    grain = step / 10**decimals
    rounded = units.parts_of(known_total, [known(value) for value in values], grain)
    return [
        NA if value is None else f"{value / step + 0.0:,.{decimals}f} {name}" for value in rounded
    ]


def countdown(values: Sequence[Any], total: Any, count: int = 99) -> list[tuple[str, str]]:
    """Return each part and what is left of a time after it; those after `count` are one part."""
    remaining, rows, rounded = known(total) or 0.0, [], _shown_values(values, total, "ns")
    for value in [*rounded[:count], *([sum(rounded[count:])] if rounded[count:] else [])]:
        remaining -= value
        rows.append((adding_up([value], total)[0], adding_up([remaining], total)[0]))
    return rows


def together(values: Sequence[Any], total: Any, unit: str = "ns") -> str:
    """Return parts of a total together: the sum of what `countdown` shows of each."""
    return adding_up([sum(_shown_values(values, total, unit))], total, unit)[0]


def _shown_values(values: Sequence[Any], total: Any, unit: str) -> list[float]:
    """Return parts of a total, rounded so that they and the rest add up to it."""
    known_total = known(total) or 0.0
    step, _, decimals = units.places(known_total, unit)
    rest = max(0.0, known_total - sum(values))
    rounded = units.parts_of(known_total, [*values, rest], step / 10**decimals)
    return [value or 0.0 for value in rounded[:-1]]


def exact(value: Any, unit: str = "") -> str:
    """Return the full-precision number as a counter gave it: "4067203.88 ns"."""
    number = known(value)
    if number is None:
        return NA
    text = str(int(number)) if number.is_integer() and abs(number) < 1e18 else repr(number)
    return f"{text} {unit}".rstrip()


def or_na(text: Any) -> str:
    """Return a text, or "n/a" where it is empty or unknown."""
    return NA if text is None or str(text) in ("", "<NA>", "nan", "None") else str(text)


def shorten(text: str, width: int) -> str:
    """Return `text` cut to `width` characters with an ellipsis in the middle, ends kept."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


_LEAST_TELLING = (re.compile(r"\d+ stages"), re.compile(r"cluster .*"), re.compile(r"[TN]{2,3}"))


def briefer(text: str) -> list[str]:
    """Return ever shorter forms of a readable name, each without one more of its parts.

    "cuBLAS GEMM, bf16, tile 128x8x64, 12 stages, cluster 2x1, TN" loses stages, cluster and layout
    first, then its last parts; the first, what the kernel is, stays.
    """
    phrases = text.split(", ")
    forms = [text]
    for pattern in _LEAST_TELLING:
        if specific := [phrase for phrase in phrases[1:] if not pattern.fullmatch(phrase)]:
            phrases = [phrases[0], *specific]
            forms.append(", ".join(phrases))
    forms += [", ".join(phrases[:keep]) for keep in range(len(phrases) - 1, 0, -1)]
    return list(dict.fromkeys(forms))


def brief(text: str, width: int = 44) -> str:
    """Return a readable kernel name of about `width` characters, in whole parts where it has any.

    Where it stands a number tells the kernels apart.
    """
    forms = briefer(text)
    return next((form for form in forms if len(form) <= width), shorten(forms[-1], width + 3))


def flat(text: Any) -> str:
    """Return one line: white space is one space, control characters are shown as escapes."""
    return _flat(str(text))


@lru_cache(TEXTS)
def _flat(text: str) -> str:
    return printable(" ".join(text.split()))


def escape(text: Any) -> Markdown:
    """Return `text` so that markdown shows it as it stands, in a paragraph or a table cell.

    Angle brackets and ampersands become entities (a name like `foo<int>` would vanish as HTML);
    pipes, backticks, underscores and other markup get a backslash; white space becomes one space.
    """
    return _escaped(str(text))


@lru_cache(TEXTS)
def _escaped(text: str) -> Markdown:
    entities = flat(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # GitHub pairs dollar signs to formulas and does not honour a backslash before them.
    return Markdown(_MARKUP.sub(r"\\\1", entities).replace("$", "<span>$</span>"))


def escape_html(text: Any) -> Markdown:
    """Return `text` for the inside of an HTML element within markdown (a <summary>, say)."""
    return Markdown(_HTML_MARKUP.sub(lambda match: f"&#{ord(match[0])};", flat(text)))


def fenced(text: Any, language: str = "text") -> Markdown:
    """Return a fenced code block; the fence is longer than any run of backticks inside."""
    body = printable(str(text).replace("\r\n", "\n").replace("\r", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}{language}\n{body}\n{fence}")


def code(text: Any) -> Markdown:
    """Return `text` as inline code; <code> where a backtick or a pipe would end it or its cell."""
    return _code(str(text))


@lru_cache(TEXTS)
def _code(text: str) -> Markdown:
    line = flat(text)
    if line and not re.search(r"[`|]", line):
        return Markdown(f"`{line}`")
    return Markdown(f"<code>{escape_html(line)}</code>")


def markdown(text: Any) -> Markdown:
    """Return `text`, which is markdown already, as it stands."""
    return Markdown(text)


def template_text(value: Any) -> str:
    """Return what a template writes: text escaped, markdown as it is, whole numbers as digits.

    Raises:
        TypeError: a fraction without a format, or nothing at all; both are faults of a template.
    """
    if isinstance(value, Markdown):
        return value
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    what = shorten(repr(value), WIDTH_OF_FAULT)
    raise TypeError(
        f"{what} has no format: send it through a filter of docs/templates.md in prof's repository"
    )


def _of_quantities(write: Callable[..., str]) -> Callable[..., Quantity]:
    """Return a filter whose numbers stay with their units."""

    @wraps(write)
    def filter_(*given: Any) -> Quantity:
        return Quantity(write(*given))

    return filter_


_QUANTITIES: dict[str, Callable[..., str]] = {
    **{"significant": significant, "duration": duration, "seconds": seconds},
    **{"data_size": data_size, "byte_rate": byte_rate, "flop_count": flop_count},
    **{"flop_rate": flop_rate, "clock": clock, "intensity": intensity, "percent": percent},
    **{"share": share, "rounded_share": rounded_share, "count": count, "speedup": speedup},
    **{"difference": difference, "change": change, "quantity": quantity, "exact": exact},
}
_TEXTS: tuple[Callable[..., Any], ...] = (
    *(adding_up, countdown, or_na, shorten, brief),
    *(escape, escape_html, fenced, code, markdown),
)
FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _of_quantities(write) for name, write in _QUANTITIES.items()},
    **{write.__name__: write for write in _TEXTS},
}
