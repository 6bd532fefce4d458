"""Look of all plots: colour-blind safe palette, bundled font, deterministic SVG and PNG output."""

from __future__ import annotations

import io
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unicodedata import east_asian_width

import matplotlib
from matplotlib.backends.backend_agg import get_hinting_flag
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, get_font

from nsight_prof.reports.page.formats import briefer
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.words import say

# Pixels of a GitHub page's text column; the SVG's 648 pt are shown as 864 CSS pixels there.
WIDTH = 900
DPI = 100
PNG_DPI = 160
TEXT_PT = 9.0
TITLE_PT = 11.0
LINE = 17.0  # pixels from one line of TEXT_PT to the next

HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++")


@cache
def font(size: float = TEXT_PT, *, bold: bool = False) -> FontProperties:
    """Return the bundled font, by file: the reader's fonts do not change the picture."""
    # The file decides; the weight is for SVG that keeps text as text.
    return FontProperties(fname=_font_file(bold), size=size, weight="bold" if bold else "normal")


@cache
def _font_file(bold: bool) -> str:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)


@cache
def _glyphs(bold: bool) -> frozenset[int]:
    return frozenset(get_font(_font_file(bold)).get_charmap())


def drawable(words: Words, *, bold: bool = False) -> str:
    """Return words on one line in the language that is drawn.

    A character that neither our font nor any of East Asia has becomes a question mark.
    """
    return _drawable(" ".join(say(words).split()), bold)


@cache
def _drawable(one_line: str, bold: bool) -> str:
    glyphs = _glyphs(bold)
    return "".join(c if ord(c) in glyphs or _is_wide(c) else "?" for c in one_line)


def _is_wide(character: str) -> bool:
    """Tell whether it is a letter of East Asia: those are as wide as high in every font."""
    return east_asian_width(character) in "WF"


def text_width(words: Words, size: float = TEXT_PT, bold: bool = False) -> float:
    """Return the width of a drawn text in pixels at DPI."""
    return _width(drawable(words, bold=bold), size, bold)


@cache
def _width(drawn: str, size: float, bold: bool) -> float:
    # Pairs of characters, with their kerning, make any text: to lay out each text takes ten times
    # as long.
    line = "".join(c for c in drawn if not _is_wide(c))
    pairs = zip(line, line[1:], strict=False)
    advances = (_laid_out(a + b, size, bold) - _laid_out(b, size, bold) for a, b in pairs)
    wide = (len(drawn) - len(line)) * size * DPI / 72
    return sum(advances) + _laid_out(line[-1:], size, bold) + wide


@cache
def _laid_out(text: str, size: float, bold: bool) -> float:
    """Return the width of one or two characters as Agg lays them out."""
    font = get_font(_font_file(bold))
    font.set_size(size, DPI)
    font.set_text(text, 0.0, flags=get_hinting_flag())  # type: ignore[no-untyped-call]
    return font.get_width_height()[0] / 64


def fit(words: Words, width: float, size: float = TEXT_PT, *, bold: bool = False) -> str:
    """Return words cut so that it is at most `width` pixels wide.

    A list ("cuBLAS GEMM, bf16, tile 128x8x64, 12 stages, TN") loses whole parts, the least telling
    first; other text loses its middle.
    """
    text = say(words)
    for form in briefer(text):
        if text_width(form, size, bold) <= width:
            return form
    text = briefer(text)[-1]
    lengths = range(len(text))
    longest = bisect_left(lengths, width, key=lambda n: text_width(_cut(text, n), size, bold))
    return _cut(text, max(longest - 1, 0))


def _cut(text: str, keep: int) -> str:
    tail = keep // 3
    return f"{text[: keep - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


@contextmanager
def style() -> Iterator[None]:
    """Draw with our settings only, whatever the reader's matplotlibrc says."""
    if matplotlib.rcParams["svg.hashsalt"] == "prof":  # as around all pictures of a report
        yield
        return
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.hashsalt": "prof",
                "svg.fonttype": "none",  # text that can be found, copied and read aloud
                "text.parse_math": False,
                "axes.unicode_minus": False,
                "hatch.linewidth": 0.5,
                "hatch.color": "#ffffff",
                "path.simplify": False,
            }
        )
        yield


def render_svg(figure: Figure) -> bytes:
    """Return the figure as SVG: the same bytes for the same figure."""
    return _render(figure, "svg", {"Date": None, "Creator": None})


def render_png(figure: Figure) -> bytes:
    """Return the figure as PNG: the same bytes for the same figure and library versions."""
    return _render(figure, "png", {"Software": None})


def _render(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    stream = io.BytesIO()
    dpi = PNG_DPI if kind == "png" else DPI
    with style(), warnings.catch_warnings():
        # The reader's fonts have the letters of East Asia that ours lacks: text stays text in SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=kind, dpi=dpi, metadata=metadata)
    return stream.getvalue()
