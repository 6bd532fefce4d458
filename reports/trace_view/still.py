"""Still pictures of timeline and tree as SVG: for markdown, for paper, and where no script runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np

from nsight_prof.parsers.nsys.bins import Array, coverage
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.formats import duration, share
from nsight_prof.reports.page.values import Series, Text, Value, Word
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.plots.palette import COLOURS, families
from nsight_prof.reports.trace_view.models import (
    CALLS,
    IDLE,
    IDLE_NODE,
    KERNEL,
    KERNELS,
    Item,
    Label,
    Node,
    Row,
)

WIDTH, GUTTER, COLUMN = 900, 150, 2
HEIGHTS = {KERNELS: 26, IDLE: 10, CALLS: 12}
"""Height of a row by its kind, in pixels; of all others OTHER."""
OTHER, GROUP, AXIS, GAP = 16, 20, 22, 3
MOST_ROWS = 24
LEVEL, DEEPEST = 22, 9
LETTER = 6.7
"""Mean width of a letter of TEXT pixels; names are cut to fit by it."""
TEXT = 11
WIDE = TEXT / LETTER
"""Width of a Chinese or Korean character, in letters."""
_HEX = {name: colour for colour, name in reversed(COLOURS.items())}
_VARIABLE = {name: f"var(--{name})" for name in _HEX}
_TICKS = 8
FAMILIES = {COLOURS[colour]: name for colour, name in families().items()}
"""What a kernel of each colour does."""


class _Shape(NamedTuple):
    """What stands before a colour, it, and after; `words`, cut to `letters` (0: whole), and after.

    A colour is a CSS variable of the page, without --.
    """

    before: str
    colour: str
    after: str
    words: Value = ""
    letters: int = 0
    end: str = ""


@dataclass(frozen=True)
class Still:
    """A picture that can be written in each language; `alt` is its name for who cannot see it."""

    shapes: Sequence[_Shape]
    height: float
    alt: Value

    def file(self, language: str = ENGLISH) -> str:
        """Return the picture as a file, in the colours of a light page."""
        alt, drawn = escape(Writer(language).value(self.alt)), self._drawn(_HEX, language)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {self._view} '
            f'font-family="DejaVu Sans, Verdana, sans-serif"><title>{alt}</title>'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{drawn}</svg>\n'
        )

    def inline(self, language: str = ENGLISH) -> str:
        """Return the picture as an element of a page, in the page's colours."""
        alt = escape(Writer(language).value(self.alt))
        return (
            f'<svg role="img" aria-label="{alt}" {self._view}>'
            f"{self._drawn(_VARIABLE, language)}</svg>"
        )

    @property
    def _view(self) -> str:
        height = _short(self.height)
        return f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'

    def _drawn(self, fills: Mapping[str, str], language: str) -> str:
        write = Writer(language)
        return "".join(
            f"{shape.before}{fills[shape.colour]}{shape.after}"
            f"{escape(_cut(write.value(shape.words), shape.letters))}{shape.end}"
            for shape in self.shapes
        )


class Pen:
    """Draws the shapes of a picture, with words that are written later."""

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []

    def path(self, shapes: str, colour: str) -> None:
        """Add a filled path."""
        self._shapes.append(_Shape('<path style="fill:', colour, f'" d="{shapes}"/>'))

    def box(self, x: float, y: float, width: float, height: float, fill: str, title: Value) -> None:
        """Add a box with a border of the page's colour; `title` is what it tells."""
        rectangle = (
            f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
        )
        self._shapes += [
            _Shape('<rect style="fill:', fill, ";stroke:"),
            _Shape("", "paper", f'" {rectangle}><title>', title, end="</title></rect>"),
        ]

    def text(
        self, x: float, y: float, words: Value, room: float, colour: str = "ink",
        bold: bool = False, anchor: str = "",
    ) -> None:  # fmt: skip
        """Add words, cut to `room` pixels; nothing where not three letters fit."""
        letters = int(room / LETTER)
        if letters < 3:
            return
        look = ";font-weight:bold" if bold else ""
        look += f";text-anchor:{anchor}" if anchor else ""
        begin, after = (
            f'<text style="font-size:{TEXT}px;fill:',
            f'{look}" x="{_short(x)}" y="{_short(y)}">',
        )
        self._shapes.append(_Shape(begin, colour, after, words, letters, "</text>"))

    def done(self, height: float, alt: Value) -> Still:
        """Return the picture."""
        return Still(tuple(self._shapes), height, alt)


def _cut(words: str, letters: int) -> str:
    """Return words cut to the room of so many Latin letters; 0: whole."""
    ends = [*accumulate(WIDE if east_asian_width(c) in "WF" else 1 for c in words)]
    if not letters or not ends or ends[-1] <= letters:
        return words
    return f"{words[: bisect_right(ends, letters - 1)]}…"


def timeline_svg(
    rows: Sequence[Row], items: Sequence[Item], span: tuple[int, int], alt: Label, note: Label = ""
) -> Still:
    """Return the timeline of the whole run (`span`: its first and last ns).

    `note` says what it lacks.
    """
    pen = Pen()
    first_rows = rows[:MOST_ROWS]
    colours = [item.colour for item in items]
    kinds = list(dict.fromkeys(colours))
    of_item = np.array([kinds.index(colour) for colour in colours], np.int64)
    y = float(_axis(pen, span))
    group: Label = ""
    for row in first_rows:
        if row.group != group:
            group = row.group
            pen.text(0, y + 14, group, WIDTH, bold=True)
            y += GROUP
        height = HEIGHTS.get(row.kind, OTHER)
        pen.text(0, y + height / 2 + 4, row.name, GUTTER - 6, "quiet")
        if any(colours[code] for code in np.unique(row.segments.item).tolist()):
            _bars(pen, row, kinds, of_item, span, y, height)
        else:
            _boxes(pen, row, items, span, y, height)
        y += height + GAP
    if len(rows) > len(first_rows):
        more = Text("{n} more rows", n=len(rows) - len(first_rows))
        pen.text(0, y + 12, more, WIDTH, "quiet")
        y += GROUP
    if note:
        pen.text(0, y + 12, note, WIDTH, "quiet")
        y += GROUP
    y = _legend(pen, legend(rows, items), y + 6)
    return pen.done(y, alt)


def legend(rows: Sequence[Row], items: Sequence[Item]) -> list[tuple[str, str]]:
    """Return colour and name of each family of kernels that the rows have."""
    found = {
        items[code].colour
        for row in rows
        if row.kind == KERNELS
        for code in np.unique(row.segments.item).tolist()
    }
    return [(colour, name) for colour, name in FAMILIES.items() if colour in found]


def _axis(pen: Pen, span: tuple[int, int]) -> int:
    """Write round times above the rows."""
    length = max(span[1] - span[0], 1)
    power = 10.0 ** math.floor(math.log10(length / _TICKS))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= length / _TICKS)
    for number in range(int(length / step) + 1):
        x = GUTTER + number * step / length * (WIDTH - GUTTER)
        anchor = "start" if not number else "end" if x > WIDTH - 40 else "middle"
        pen.text(x, 13, duration(number * step) if number else "0 ms", 100, "quiet", anchor=anchor)
    return AXIS


def _bars(
    pen: Pen, row: Row, kinds: Sequence[str], of_item: Array, span: tuple[int, int], y: float,
    height: float,
) -> None:  # fmt: skip
    """Draw the busy part of each column of pixels, kinds upon each other."""
    columns = (WIDTH - GUTTER) // COLUMN
    edges = np.linspace(span[0], span[1], columns + 1)
    busy = coverage(row.segments, of_item, edges) / max(edges[1] - edges[0], 1)
    busy /= np.maximum(busy.sum(axis=0), 1)
    tops = np.round(np.cumsum(busy, axis=0) * height * 2) / 2
    below = np.zeros(columns)
    for number, top in enumerate(tops):
        if kinds[number]:
            pen.path("".join(_stack(below, top, y + height)), kinds[number])
        below = top


def _stack(below: Array, top: Array, floor: float) -> Iterator[str]:
    """Give one box for each run of columns of the same height."""
    changes = np.flatnonzero((np.diff(below) != 0) | (np.diff(top) != 0)) + 1
    first = np.concatenate([[0], changes])
    last = np.append(changes, len(top))
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        tall = float(top[low] - below[low])
        if tall > 0:
            x, wide = GUTTER + low * COLUMN, (high - low) * COLUMN
            yield f"M{x} {_short(floor - float(top[low]))}h{wide}v{_short(tall)}h-{wide}z"


def _boxes(
    pen: Pen, row: Row, items: Sequence[Item], span: tuple[int, int], y: float, height: float
) -> None:
    """Draw stages, steps and ranges as boxes with their names; those below a pixel as one."""
    scale = (WIDTH - GUTTER) / max(span[1] - span[0], 1)
    begins, lengths = row.segments.start - span[0], row.segments.duration
    lefts = GUTTER + np.maximum(begins, 0) * scale
    rights = np.minimum(GUTTER + (begins + lengths) * scale, WIDTH)
    farthest = np.maximum.accumulate(rights)
    reached, at = -1.0, 0
    thin: list[str] = []
    while True:
        # Of a million ranges hundreds reach a new pixel: the next is looked up, but for rounding.
        at = max(at, int(np.searchsorted(farthest, reached + 1 - 1e-6)))
        while at < len(rights) and rights[at] - reached < 1:
            at += 1
        if at == len(rights):
            break
        x, end = float(lefts[at]), float(rights[at])
        length, code = int(lengths[at]), int(row.segments.item[at])
        at += 1
        x = max(x, reached)
        reached = max(end, x + 1)
        if reached - x < 3:
            thin.append(
                f"M{_short(x)} {_short(y)}h{_short(reached - x)}v{height}h-{_short(reached - x)}z"
            )
            continue
        tip = Text("{name}: {time}", name=items[code].name, time=duration(length))
        pen.box(x, y, reached - x, height, "grid", tip)
        pen.text(x + 3, y + height / 2 + 4, items[code].name, reached - x - 5)
    pen.path("".join(thin), "rest")


def _legend(pen: Pen, entries: Sequence[tuple[str, str]], y: float) -> float:
    x = float(GUTTER)
    for colour, name in entries:
        wide = 22 + len(name) * LETTER
        if x + wide > WIDTH:
            x, y = float(GUTTER), y + 18
        pen.path(f"M{_short(x)} {_short(y)}h10v10h-10z", colour)
        pen.text(x + 14, y + 9, Word(name), wide)
        x += wide + 6
    return y + 18


def tree_svg(root: Node, alt: Label) -> Still:
    """Return the tree as an icicle: a range above what is in it, as wide as its time."""
    pen = Pen()
    depth = _draw(pen, root, 0.0, float(WIDTH), 0, root.total_ns)
    y = (depth + 1.0) * (LEVEL + 1) + 8
    colours = {node.colour for node in _leaves(root)}
    y = _legend(pen, [(c, name) for c, name in FAMILIES.items() if c in colours], y)
    return pen.done(y, alt)


def _draw(pen: Pen, node: Node, x: float, width: float, depth: int, total_ns: int) -> int:
    y = depth * (LEVEL + 1)
    fill = node.colour or ("faint" if node.kind == IDLE_NODE else "grid")
    pen.box(x, y, width, LEVEL, fill, tooltip(node, total_ns))
    ink = "paper" if fill == "blue" else "ink"
    name: Value = node.name
    if total_ns:
        name = Text("{name} {share}", name=name, share=share(node.total_ns / total_ns))
    pen.text(x + 4, y + 15, name, width - 6, ink)
    deepest = depth
    if depth >= DEEPEST:
        return deepest
    for child in node.children:
        wide = width * child.total_ns / max(node.total_ns, 1)
        if wide >= 1:
            deepest = max(deepest, _draw(pen, child, x, wide, depth + 1, total_ns))
        x += wide
    return deepest


def tooltip(node: Node, total_ns: int) -> Series:
    """Return what a node says when it is pointed at: time, launches and idle time."""
    time = duration(node.total_ns)
    lines = [Text("{name}: {time}", name=node.name, time=time)]
    if total_ns:
        of_all = share(node.total_ns / total_ns)
        lines = [Text("{name}: {time} ({share})", name=node.name, time=time, share=of_all)]
    if node.launches:
        lines.append(Text("{n} launches", n=node.launches))
    if node.busy_ns:
        lines.append(Text("kernels and copies {time}", time=duration(node.busy_ns)))
    if node.idle_ns and node.kind != IDLE_NODE:
        lines.append(Text("idle {time}", time=duration(node.idle_ns)))
    return Series(lines)


def _leaves(node: Node) -> Iterator[Node]:
    if node.kind == KERNEL:
        yield node
    for child in node.children:
        yield from _leaves(child)


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
