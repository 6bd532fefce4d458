"""A figure in pixels, laid out from the top, and what it tells where a reader points at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from nsight_prof.reports.page.formats import NA, share
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.palette import INK, QUIET
from nsight_prof.reports.plots.style import (
    DPI,
    LINE,
    TEXT_PT,
    TITLE_PT,
    WIDTH,
    drawable,
    fit,
    font,
    text_width,
)
from nsight_prof.reports.plots.words import say

MOST = 240
"""Spots that one line of a figure has at most: nearer than that no pointer can tell them apart."""


@dataclass(frozen=True)
class Spot:
    """A place of a figure: (x, y) is its middle in pixels of the sheet, y counts upwards.

    `text` has one line per fact, the first says what it is. `kernel` is the number of the kernel
    whose details it leads to, empty where there is none.
    """

    x: float
    y: float
    width: float
    height: float
    text: str
    kernel: str = ""
    round: bool = False


_SPOTS: WeakKeyDictionary[Figure, list[Spot]] = WeakKeyDictionary()


def add_spot(figure: Figure, spot: Spot) -> None:
    """Note a spot of `figure`; later ones lie on top of earlier ones."""
    _SPOTS.setdefault(figure, []).append(spot)


def spots(figure: Figure) -> tuple[Spot, ...]:
    """Return the spots of `figure` in the order in which they were added."""
    return tuple(_SPOTS.get(figure, ()))


def tooltip(*lines: Words) -> str:
    """Return the text of a spot from its lines; empty ones are left out."""
    return "\n".join(" ".join(line.split()) for line in map(say, lines) if line.strip())


MARGIN = 14.0
PT = DPI / 72  # pixels a point


@dataclass(frozen=True)
class Key:
    """One entry of a key: a marker (matplotlib's letter), a bar (`hatch`) or a line (`dashes`)."""

    text: Words
    colour: str
    marker: str = ""
    size: float = 7.0
    hatch: str = ""
    dashes: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Entry:
    """One kernel in the list below a plot."""

    number: int
    label: Words
    share: float | None
    colour: str


@dataclass(frozen=True)
class Ink:
    """How a line of text is written; `role` says what it is for to who looks through a figure."""

    colour: str = INK
    ha: Literal["left", "center", "right"] = "left"
    bold: bool = False
    size: float = TEXT_PT
    rotation: float = 0.0
    halo: bool = False
    role: str = ""


PLAIN = Ink()


class Sheet:
    """A white figure of `width` x `height` pixels at DPI; y counts upwards from the bottom."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.height, self.width = height, width
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        self.top = height - MARGIN

    def text(self, x: float, y: float, text: Words, ink: Ink = PLAIN) -> Text:
        """Write one line; y is the middle of its height."""
        artist = self.figure.text(
            x / self.width,
            y / self.height,
            drawable(text, bold=ink.bold),
            fontproperties=font(ink.size, bold=ink.bold),
            color=ink.colour,
            ha=ink.ha,
            va="center",
            rotation=ink.rotation,
            rotation_mode="anchor",
            zorder=10,
            gid=ink.role or None,
        )
        if ink.halo:
            artist.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8})
        return artist

    def marker(self, x: float, y: float, key: Key) -> None:
        """Draw one marker of `key.size` points."""
        self.line([x], [y], marker=key.marker, markersize=key.size, color=key.colour,
                   markeredgecolor=INK, markeredgewidth=0.6, linestyle="none")  # fmt: skip

    def line(self, xs: Sequence[float], ys: Sequence[float], **look: object) -> None:
        """Draw a line in pixels."""
        artist = Line2D(
            [x / self.width for x in xs], [y / self.height for y in ys],
            transform=self.figure.transFigure, **look,  # type: ignore[arg-type]
        )  # fmt: skip
        self.figure.add_artist(artist)

    def box(self, x: float, y: float, width: float, height: float, **look: object) -> None:
        """Draw a rectangle with its lower left corner at (x, y)."""
        patch = Rectangle(
            (x / self.width, y / self.height), width / self.width, height / self.height,
            transform=self.figure.transFigure, **look,  # type: ignore[arg-type]
        )  # fmt: skip
        self.figure.add_artist(patch)

    def spot(self, spot: Spot) -> None:
        """Say what an HTML page tells where a reader points at this place."""
        add_spot(self.figure, spot)

    def title(self, title: Words, subtitle: Words = "") -> None:
        """Write the head of the plot; each line is cut to the width."""
        title = fit(title, self.width - 2 * MARGIN, TITLE_PT, bold=True)
        self.text(MARGIN, self.top - 8, title, Ink(size=TITLE_PT, bold=True))
        self.top -= 22
        for line in wrap(subtitle, self.width - 2 * MARGIN):
            self.text(MARGIN, self.top - 8, line, Ink(colour=QUIET))
            self.top -= LINE
        self.top -= 4

    def keys(self, keys: Sequence[Key]) -> None:
        """Write a key from left to right, in as many rows as it takes."""
        if not keys:
            return
        for x, row, key in flow(keys, self.width):
            y = self.top - 8 - LINE * row
            symbol = _symbol_width(key)
            self._symbol(x, y, symbol, key)
            self.text(x + symbol + 5, y, key.text)
        self.top -= keys_height(keys, self.width)

    def _symbol(self, x: float, y: float, width: float, key: Key) -> None:
        if key.dashes is not None:
            style = (0, key.dashes) if key.dashes else "-"
            self.line([x, x + width], [y, y], color=key.colour, linestyle=style, linewidth=1.5)
        elif key.marker:
            self.marker(x + width / 2, y, key)
        else:
            self.box(x, y - 5, width, 10, facecolor=key.colour, hatch=key.hatch,
                     edgecolor="white" if key.hatch else "none", linewidth=0)  # fmt: skip

    def axes(self, x0: float, bottom: float, width: float, height: float) -> Axes:
        """Return axes at this place in pixels, without frame above and right."""
        rectangle = (
            x0 / self.width,
            bottom / self.height,
            width / self.width,
            height / self.height,
        )
        axes = self.figure.add_axes(rectangle)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        return axes

    def entries(self, entries: Sequence[Entry], columns: int = 2) -> None:
        """List kernels: number, colour, short name, share of GPU time."""
        width = (self.width - 2 * MARGIN) / columns
        rows = -(-len(entries) // columns)
        for index, entry in enumerate(entries):
            x = MARGIN + width * (index // rows)
            y, end = self.top - 8 - LINE * (index % rows), x + width - 18
            amount = say(NA) if entry.share is None else share(entry.share)
            self.text(x + 20, y, str(entry.number), Ink(bold=True, ha="right"))
            self.box(x + 26, y - 5, 10, 10, facecolor=entry.colour, linewidth=0)
            self.text(x + 42, y, fit(entry.label, width - 18 - 42 - text_width(amount) - 8))
            self.text(end, y, amount, Ink(ha="right", colour=QUIET))
        self.top -= LINE * rows


def wrap(words: Words, width: float) -> list[str]:
    """Return words broken at spaces, Chinese at each letter, into lines of `width` pixels."""
    lines = [""]
    for piece in _pieces(say(words)):
        if lines[-1] and text_width((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else fit(piece.rstrip(), width) + " " * piece.endswith(" ")
    return [line.rstrip() for line in lines if line]


def _pieces(text: str) -> Iterator[str]:
    """Yield the pieces that a line can be broken between, each with the space behind it."""
    for word in text.split():
        begin = 0
        for at, letter in enumerate(word, 1):
            if "\u3000" <= letter <= "\u9fff":  # Chinese, and its punctuation
                yield from filter(None, (word[begin : at - 1], word[at - 1 : at]))
                begin = at
        yield f"{word[begin:]} "


def _symbol_width(key: Key) -> float:
    return 26.0 if key.dashes is not None else max(key.size * PT, 12.0)


def flow(keys: Sequence[Key], full: float = WIDTH) -> list[tuple[float, int, Key]]:
    """Return (x, row, key) for keys written from left to right in as many rows as it takes."""
    places, x, row = [], MARGIN, 0
    for key in keys:
        width = _symbol_width(key) + 5 + text_width(key.text)
        if x > MARGIN and x + width > full - MARGIN:
            x, row = MARGIN, row + 1
        places.append((x, row, key))
        x += width + 16
    return places


def keys_height(keys: Sequence[Key], full: float = WIDTH) -> float:
    """Return the pixels that `Sheet.keys` takes for `keys`."""
    return LINE * (flow(keys, full)[-1][1] + 1) + 4 if keys else 0.0


def headed(
    title: Words, subtitle: Words, body: float, *keys: Sequence[Key], width: float = WIDTH
) -> Sheet:
    """Return a sheet with title and keys written, and with `body` pixels below them."""
    head = 26 + LINE * len(wrap(subtitle, width - 2 * MARGIN))
    head += sum(keys_height(row, width) for row in keys)
    sheet = Sheet(MARGIN + head + body + MARGIN, width)
    sheet.title(title, subtitle)
    for row in keys:
        sheet.keys(row)
    return sheet
