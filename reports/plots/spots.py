"""What a figure tells where a reader points at it: places of a figure with text and a link.

Pictures in files (SVG, PNG) do not have them; the figures of an HTML page do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from matplotlib.figure import Figure

from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.words import say

MOST = 240
"""Spots that one line of a figure has at most: nearer than that no pointer can tell them apart."""

T = TypeVar("T")


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


def thinned(items: Sequence[T], limit: int = MOST) -> Iterable[T]:
    """Return at most `limit` items, spread evenly, the first and the last among them."""
    if len(items) <= limit:
        return items
    return [items[round(n * (len(items) - 1) / (limit - 1))] for n in range(limit)]
