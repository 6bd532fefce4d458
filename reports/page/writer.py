"""Turns values into words of one language and one markup: the only place that does."""

from __future__ import annotations

import html
import string
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias
from urllib.parse import quote

from nsight_prof.reports.page import formats, units
from nsight_prof.reports.page.catalogue import ENGLISH, catalogue, made_from, stored_messages
from nsight_prof.reports.page.marks import HOLD, mark
from nsight_prof.reports.page.values import (
    Capital,
    Document,
    Interval,
    Link,
    Name,
    Number,
    Quoted,
    Said,
    Series,
    Strong,
    Text,
    Value,
    Verbatim,
    Word,
    has_words,
    placeholders,
)

NA, NONE = "n/a", "–"
"""What is not known, and what does not apply."""
IN_TEXT, IN_TABLE = 2, 3
"""Significant digits."""


@dataclass(frozen=True)
class Marks:
    """What stands between parts of a page: between sentences, items of a list and clauses."""

    sentence: str = " "
    item: str = ", "
    clause: str = ", "
    semicolon: str = "; "
    colon: str = ": "
    stop: str = ". "
    begin: str = " ("
    end: str = ")"


MARKS = {"zh": Marks("", "、", "，", "；", "：", "。", "（", "）")}
"""Marks of languages that have others: those of Chinese are as wide as a character."""
WIDE = "，、；：。！？（）"
"""Marks that hold the space beside them."""


def marks_of(language: str) -> Marks:
    """Return the marks of a language."""
    return MARKS.get(language, Marks())


def _with_marks(fixed: str, marks: Marks) -> str:
    """Return what stands between the values of a message that has no words, in other marks."""
    for name in ("begin", "end", "colon", "semicolon", "clause", "stop"):
        fixed = fixed.replace(getattr(Marks(), name), getattr(marks, name))
    return f"{fixed[:-1]}{marks.stop}" if fixed.endswith(".") else fixed


def _parted(letter: str, neighbour: str) -> bool:
    """Whether one is a Chinese character and the other a Latin letter, a digit or %."""
    return (
        "\u4e00" <= letter <= "\u9fff"
        and neighbour.isascii()
        and (neighbour.isalnum() or neighbour == "%")
    )


class Markup(Protocol):
    """How a page marks text up."""

    def escape(self, text: str) -> str:
        """Return text that shows as it stands."""

    def number(self, text: str) -> str:
        """Return a number with its unit, which stay on one line."""

    def code(self, text: str) -> str:
        """Return a proper name."""

    def link(self, label: str, target: str) -> str:
        """Return what is shown already, as a link."""

    def strong(self, text: str) -> str:
        """Return what is shown already, in bold."""

    def quote(self, text: str) -> str:
        """Return English text of others on a page in another language."""

    def anchor(self, name: str) -> str:
        """Return the id of a place."""


class Plain:
    """No markup, as in metrics.json and on a terminal."""

    def escape(self, text: str) -> str:
        """Return the text."""
        return text

    number = code = strong = quote = escape

    def link(self, label: str, _target: str) -> str:
        """Return what is shown."""
        return label

    def anchor(self, _name: str) -> str:
        """Return nothing: nothing leads there."""
        return ""


@lru_cache(formats.TEXTS)
def _escaped(text: str) -> str:
    inner = formats.escape(text)
    before = " " if text[:1].isspace() and inner else ""
    return f"{before}{inner}{' ' if text[-1:].isspace() else ''}"


class InMarkdown:
    """Markdown as GitHub reads it."""

    def escape(self, text: str) -> str:
        """Escape a part of a sentence, the spaces at its ends kept; markdown stays as it is."""
        if isinstance(text, formats.Markdown):
            return text
        return _escaped(text)

    number = quote = escape

    def code(self, text: str) -> str:
        """Return inline code."""
        return str(formats.code(text))

    def link(self, label: str, target: str) -> str:
        """Return a link."""
        return f"[{label}]({target})"

    def strong(self, text: str) -> str:
        """Return bold text."""
        return f"**{text}**"

    def anchor(self, name: str) -> str:
        """Return an element with the id: markdown has no ids of its own."""
        return f'<a id="{html.escape(name)}"></a>'


class InTemplate(InMarkdown):
    """Markdown of a part of a report, with marks for what depends on the page it is put on."""

    def link(self, label: str, target: str) -> str:
        """Return a link; where a place of the report is shows when its pages are."""
        if target.startswith("#"):
            target = mark("link", target.removeprefix("#"))
        return f"[{label}]({target})"

    def number(self, text: str) -> str:
        """Return a number with the mark of what does not part it from its unit."""
        return self.escape(text).replace(" ", HOLD)

    def anchor(self, name: str) -> str:
        """Return the mark of an id."""
        return mark("id", name)


class InHtml:
    """HTML; `report` is the file that has the places of the report, "" for the page itself."""

    def __init__(self, report: str = "") -> None:
        self._report = report

    def escape(self, text: str) -> str:
        """Escape text for an element or an attribute."""
        return html.escape(text)

    def number(self, text: str) -> str:
        """Return it with a space that does not break."""
        return html.escape(text.replace(" ", "\N{NO-BREAK SPACE}"))

    def code(self, text: str) -> str:
        """Return a code element."""
        return f"<code>{html.escape(text)}</code>"

    def link(self, label: str, target: str) -> str:
        """Return a link."""
        file = self._report if target.startswith("#") else ""
        return f'<a href="{html.escape(file + target)}">{label}</a>'

    def strong(self, text: str) -> str:
        """Return a strong element."""
        return f"<strong>{text}</strong>"

    def quote(self, text: str) -> str:
        """Return an element that tells translators and screen readers the language."""
        return f'<span lang="en">{html.escape(text)}</span>'

    def anchor(self, name: str) -> str:
        """Return an element with the id."""
        return f'<a id="{html.escape(name)}"></a>'


PLAIN = Plain()
_Composed: TypeAlias = Word | Verbatim | Quoted | Link | Document | Strong | Capital | Series


class Writer:
    """Writes values in `language` and `markup`.

    `target` returns the id of the page that a name or a number leads to, "" for none.
    """

    def __init__(
        self,
        language: str = ENGLISH,
        markup: Markup = PLAIN,
        target: Callable[[Name | Number], str] | None = None,
    ) -> None:
        self.language, self.markup = language, markup
        self.leads, self._target = target is not None, target or (lambda _: "")
        self._footnote: Callable[[str], str] = lambda _: ""
        self._known = catalogue(language)
        self._stored = stored_messages(language)

    def with_footnotes(self, footnote: Callable[[str], str]) -> Writer:
        """Return one that writes `footnote` of its reason behind a number that is missing."""
        writer = copy(self)
        writer._footnote = footnote
        return writer

    def translates(self, text: Text) -> bool:
        """Say whether the language has the text, and all texts in it."""
        is_value = text.message in {f"{{{name}}}" for name in text.values}
        if is_value and self.language != ENGLISH:
            return all(
                self.has_sentence(value.text)
                for value in text.values.values()
                if isinstance(value, Verbatim)
            )
        messages = filter(has_words, text.messages())
        return self.language == ENGLISH or all(m in self._known for m in messages)

    def word(self, word: str) -> str:
        """Return an English word or name in the language, without markup; as it is if unknown."""
        return self._known.get(word) or Writer(self.language).sentence(word)

    def has_sentence(self, words: str) -> bool:
        """Say whether words that a run keeps are a sentence that the language has."""
        return self.language == ENGLISH or bool(self._message(words) or self._message(f"{words}."))

    def sentence(self, words: str) -> str:
        """Return words that a run keeps in English: a sentence in the language, others as they are.

        A sentence is known by exactly its words, or by all but the stop at its end.
        """
        if self.language == ENGLISH:
            return self.markup.escape(words)
        if isinstance(words, Said):
            return self.text(words.text)
        if not self._message(words) and self._message(f"{words}."):
            return self._translated(f"{words}.").rstrip(".。")
        return self._translated(words)

    def _message(self, words: str) -> str:
        """Return the translated message of a sentence, "" where it is none or has none."""
        origin = made_from(words)
        if origin is None:
            return self._stored.get(words, "")
        if placeholders(origin.message) != origin.values.keys():
            return ""
        return self._stored.get(origin.message, "" if has_words(origin.message) else origin.message)

    def _translated(self, words: str) -> str:
        message, origin = self._message(words), made_from(words)
        if not message or origin is None:
            return self.markup.escape(message or words)
        specs: dict[str | None, str | None] = {}
        if origin.message in self._stored:  # that of a file might ask for any width
            specs = {name: spec for _, name, spec, _ in string.Formatter().parse(origin.message)}
        has_marks = self.language in MARKS and not has_words(message)
        pieces = []
        for fixed, name, *_ in string.Formatter().parse(message):
            fixed_text = _with_marks(fixed, self.marks) if has_marks else fixed
            pieces.append(self.markup.escape(fixed_text))
            value = "" if name is None else origin.values[name]
            if not isinstance(value, str):
                pieces.append(self.markup.escape(_formatted(value, specs.get(name) or "")))
            elif value:  # in a file that somebody changed sentences may hold each other
                inner = self.sentence if len(value) < len(words) else self.markup.escape
                pieces.append(inner(value))
        return self._put_together(pieces)

    @property
    def marks(self) -> Marks:
        """The marks of the language."""
        return marks_of(self.language)

    def joined(self, pieces: Iterable[str]) -> str:
        """Return parts that are written already, with the mark of the language between them."""
        return self.marks.semicolon.join(pieces)

    def bracketed(self, text: str, inner: str) -> str:
        """Return a text with another, both written already, in brackets behind it."""
        return f"{text}{self.marks.begin}{inner}{self.marks.end}"

    def text(self, text: Text, digits: int = IN_TEXT) -> str:
        """Return a sentence; numbers have `digits` significant digits unless they say theirs."""
        message = text.message
        if text.plural and text.values["n"] != 1:
            message = text.plural
        message = self._known.get(text.message, message)
        bare = self.language in MARKS and not has_words(message)
        pieces = []
        for fixed, name, _, _ in string.Formatter().parse(message):
            pieces.append(self.markup.escape(_with_marks(fixed, self.marks) if bare else fixed))
            if name is not None:
                pieces.append(self.value(text.values[name], digits))
        written = self._put_together(pieces)
        # A message may begin with a value that is a clause; its own first word may be code.
        return written[:1].upper() + written[1:] if _begins_with_value(message) else written

    def value(self, value: Value | None, digits: int = IN_TEXT, unit: str = "") -> str:
        """Return any value; of a number in a column with a `unit`, the digits alone."""
        if value is None:
            return self.markup.escape(NONE)
        # The most frequent first: a report writes hundreds of thousands.
        if isinstance(value, str):
            is_quantity = isinstance(value, formats.Quantity)
            return self.markup.number(value) if is_quantity else self.sentence(value)
        if isinstance(value, Name):
            return self._linked(self.markup.code(value.name), value)
        if isinstance(value, Number):
            return self._number(value, digits, unit)
        if isinstance(value, Text):
            return self.text(value, digits)
        if isinstance(value, int):
            return self.markup.escape(f"{value:,}")
        if isinstance(value, _Composed):
            return self._composed(value, digits)
        if isinstance(value, Interval):
            return self.markup.escape(self._interval(value, digits, unit))
        return self._list([self.value(item, digits) for item in value])

    def _composed(self, value: _Composed, digits: int) -> str:
        if isinstance(value, Document):
            # Pages lie in a folder of the run.
            return self.markup.link(self.markup.code(value.name), quote(f"../{value.path}"))
        if isinstance(value, Word | Verbatim | Quoted):
            return self._words(value)
        if isinstance(value, Link):
            return self.markup.link(self.value(value.label, digits), f"#{value.anchor}")
        if isinstance(value, Strong):
            return self.markup.strong(self.value(value.value, digits))
        if isinstance(value, Capital):
            text = self.value(value.value, digits)
            return text[:1].upper() + text[1:]
        items = [self.value(item, digits) for item in value.values]
        items += ["…"] if value.cut else []
        return self.marks.item.join(items) or self.markup.escape(NONE)

    def _words(self, value: Word | Verbatim | Quoted) -> str:
        if isinstance(value, Word):
            return self.markup.escape(self.word(value.text))
        if isinstance(value, Verbatim):
            return self.sentence(value.text)
        write = self.markup.escape if self.language == ENGLISH else self.markup.quote
        return write(value.text)

    def cell(self, value: Value | None, unit: str, digits: int = 0) -> str:
        """Return a cell of a table: numbers in the unit of its column, with their intervals."""
        digits = digits or IN_TABLE
        text = self.value(value, digits, unit)
        if not isinstance(value, Number) or value.low is value.high is None:
            return text
        ends = self._interval(value.interval, value.digits or digits, unit)
        bound = None in (value.low, value.high) and value.value in (value.low, value.high)
        return self.markup.escape(ends) if bound else self.bracketed(text, self.markup.escape(ends))

    def _number(self, number: Number, digits: int, unit: str) -> str:
        if number.value is None:
            return self.markup.escape(f"{NA}{self._footnote(number.missing)}")
        text = _quantity(number.value, number.unit, number.digits or digits, unit)
        return self._linked(self.markup.number(text), number)

    def _interval(self, interval: Interval, digits: int, unit: str) -> str:
        low, high = (
            "" if end is None else _quantity(end, interval.unit, digits, unit)
            for end in (interval.low, interval.high)
        )
        write = Writer(self.language)
        if not low:
            return write.text(Text("at most {high}", high=high)) if high else NA
        if not high:
            return write.text(Text("at least {low}", low=low))
        # "1.7 to 2.1 us": the unit once where it is that of both.
        number, _, name = low.rpartition(" ")
        if number and high.endswith(f" {name}"):
            low = number
        return write.text(Text("{low} to {high}", low=low, high=high))

    def _list(self, items: list[str]) -> str:
        *first, last = items
        if not first:
            return last
        message = Text("{all_but_last} and {last}", all_but_last="", last="").message
        written = {"all_but_last": self.marks.item.join(first), "last": last}
        parsed = string.Formatter().parse(self._known.get(message, message))
        pieces = [
            text for fixed, name, *_ in parsed for text in (fixed, written.get(name or "", ""))
        ]
        return self._put_together(pieces)

    def _put_together(self, pieces: Iterable[str]) -> str:
        """Return pieces of a text; in Chinese a space parts its characters from Latin letters and
        digits, and none stands beside a wide mark.
        """
        if self.language not in MARKS:
            return "".join(pieces)
        written = ""
        for piece in pieces:
            before, first = written[-1:], piece[:1]
            if before and before in WIDE:
                piece = piece.lstrip(" ")
            elif first and first in WIDE:
                written = written.rstrip(" ")
            elif _parted(before, first) or _parted(first, before):
                written += " "
            written += piece
        return written

    def _linked(self, text: str, value: Name | Number) -> str:
        anchor = self._target(value)
        return self.markup.link(text, f"#{anchor}") if anchor else text


def _formatted(value: float, spec: str) -> str:
    try:
        return format(value, spec)
    except ValueError:  # a file of a run has a fraction where a whole number was
        return str(value)


def in_english(text: Text) -> Said:
    """Return a text by its English words."""
    words = Said(Writer().text(text))
    words.text = text
    return words


def _begins_with_value(message: str) -> bool:
    """Return whether it is a sentence whose first word is a value."""
    return message.startswith("{") and message.endswith((".", "!", "?", "。"))


def _quantity(value: float, base: str, digits: int, unit: str) -> str:
    if not unit:
        return units.quantity(value, base, digits)
    return units.significant(value / units.factor(unit, base), digits)
