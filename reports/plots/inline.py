"""Figures as SVG within an HTML page: text as text, colours of the page, spots that tell numbers.

Colours become CSS variables, so that a dark page has dark figures. Text stays text, which can be
found and read aloud; each text is held to the width that it was laid out with, since the reader's
font is not ours. Names of parts get a prefix: all figures of a page share one space of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.figure import Figure

from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.palette import COLOURS
from nsight_prof.reports.plots.sheet import PT, Spot, spots
from nsight_prof.reports.plots.style import DPI, text_width
from nsight_prof.reports.plots.words import say

_VARIABLES = {colour.lower(): f"var(--{name})" for colour, name in COLOURS.items()}
_HASH = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+\.\d+")
_USED = re.compile(r'(url\(#|href="#)([\w-]+)')
_SIZE = re.compile(r"(\d+(?:\.\d+)?)px")
_LINE = re.compile(r"M (\S+) (\S+) L (\S+) (\S+)")
LINES = {
    "-": "M 0 2 h 4",
    "|": "M 2 0 v 4",
    "/": "M -1 1 l 2 -2 M 0 4 l 4 -4 M 3 5 l 2 -2",
    "\\": "M -1 3 l 2 2 M 0 0 l 4 4 M 3 -1 l 2 2",
}
"""What one tile of 4 x 4 points has of a hatch with lines in one direction."""
DOTS = "M 0 0 h 0 M 4 0 h 0 M 2 4 h 0 M 0 8 h 0 M 4 8 h 0"
_DROPPED = {"metadata", "style"}
# What every shape has unless it says otherwise; templates/report.html.j2's style sheet sets it.
_USUAL = {"stroke-linecap": ("square", "butt"), "stroke-linejoin": ("miter", "round")}


def render_inline(figure: Figure, svg: bytes, prefix: str, alt: Words) -> str:
    """Return the figure, drawn already as `svg`, as an <svg> element with its spots.

    `prefix` sets the names of its parts apart from those of other figures, and `alt` is its name
    for who cannot see it.
    """
    root = ElementTree.fromstring(svg)
    elements = [text for child in root for text in _written(child)]
    body = "".join(elements)
    names = dict.fromkeys(found[2] for found in _USED.finditer(body))
    used = {name: f"{prefix}-{n}" for n, name in enumerate(names)}
    ids = {old: f' id="{new}"' for old, new in used.items()}
    body = re.sub(r' id="([^"]+)"', lambda found: ids.get(found[1], ""), body)
    body = _USED.sub(lambda found: found[1] + used[found[2]], body)
    width, height = figure.get_size_inches() * DPI
    places = spots(figure)
    tooltips = "".join(_spot(spot, height) for spot in places)
    role = "group" if any(spot.kernel for spot in places) else "img"  # an image may hold no links
    return (
        f'<svg role="{role}" aria-label="{escape(say(alt))}" viewBox="{root.get("viewBox")}" '
        f'width="{_short(width)}" height="{_short(height)}">{body}'
        f'<g class="spots">{tooltips}</g></svg>'
    )


def _written(element: Element) -> Iterator[str]:
    """Yield an element and what is in it, without groups that say nothing."""
    tag = element.tag.rpartition("}")[2]
    if tag in _DROPPED:
        return
    if tag == "text":
        yield _text(element)
        return
    if tag == "pattern":
        yield _tile(element)
        return
    attributes = dict(_attributes(element))
    inner = [line for child in element for line in _written(child)]
    if tag in ("g", "defs") and not inner:
        return
    if tag == "g" and not set(attributes) - {"id"}:
        yield from inner
        return
    attribute_text = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    yield (
        f"<{tag}{attribute_text}>" + "".join(inner) + f"</{tag}>"
        if inner
        else f"<{tag}{attribute_text}/>"
    )


def _tile(pattern: Element) -> str:
    """Return a hatch as its smallest tile: matplotlib's repeats it hundreds of times.

    All hatches of the figures have a period of 4 points (dots: 8 from top to bottom).
    """
    paths = [" ".join(child.get("d", "").split()) for child in pattern]
    dotted = any(" C " in path for path in paths)
    drawn = DOTS if dotted else " ".join(_directions(paths))
    ground = _style(f"fill:{pattern[0].get('fill', 'none')}")
    width = "1" if dotted else "0.5"
    return (
        f'<pattern id="{escape(pattern.get("id", ""))}" patternUnits="userSpaceOnUse" width="4" '
        f'height="{8 if dotted else 4}"><rect width="4" height="8" style="{ground}"/><path '
        f'd="{drawn}" style="stroke:var(--paper);stroke-width:{width};stroke-linecap:round"/>'
        "</pattern>"
    )


def _directions(paths: Iterable[str]) -> list[str]:
    """Return the lines of a tile in each direction that a hatch has."""
    found = {}
    for path in paths:
        for line in _LINE.finditer(path):
            x0, y0, x1, y1 = map(float, line.groups())
            across, up = x1 - x0, y0 - y1
            key = "-" if not up else "|" if not across else "/" if across * up > 0 else "\\"
            found[key] = LINES[key]
    return list(found.values())


def _attributes(element: Element) -> Iterable[tuple[str, str]]:
    for key, value in element.attrib.items():
        name = key.rpartition("}")[2]
        if name == "d":
            value = _NUMBER.sub(_rounded, " ".join(value.split()))
        elif name in ("style", "fill"):
            # Only a style can name a variable of the page everywhere.
            name, value = "style", _style(value if name == "style" else f"fill:{value}")
        elif name in ("x", "y", "width", "height", "transform"):
            value = _NUMBER.sub(_rounded, value)
        if value:
            yield name, value


def _style(text: str) -> str:
    """Return a style without what all shapes of the page have, and without spaces."""
    pairs = [setting.split(":", 1) for setting in text.split(";") if ":" in setting]
    settings = [(key.strip(), value.strip()) for key, value in pairs]
    css = ";".join(f"{k}:{v}" for k, v in settings if v not in _USUAL.get(k, ()))
    return _HASH.sub(lambda found: _VARIABLES.get(found[0].lower(), found[0]), css)


def _text(element: Element) -> str:
    """Return a text held to its width; matplotlib's list of fonts gives way to the page's."""
    given = element.get("style", "")
    pairs = dict(
        setting.split(":", 1) for setting in given.replace(" ", "").split(";") if ":" in setting
    )
    bold = "bold" in given or re.search(r"\b700\b", given) is not None
    found = _SIZE.search(given)
    size = float(found[1]) if found else 9.0
    words = element.text or ""
    look = f"font-size:{_short(size)}px" + (";font-weight:bold" if bold else "")
    look += "".join(
        f";{_style(f'{key}:{pairs[key]}')}" for key in ("text-anchor", "fill") if key in pairs
    )
    position = "".join(f' {key}="{_short(float(element.get(key, 0)))}"' for key in ("x", "y"))
    turn = _NUMBER.sub(_rounded, element.get("transform", ""))
    turned = f' transform="{turn}"' if turn and not turn.startswith("rotate(-0 ") else ""
    width = text_width(words, size, bold) / PT
    length = f' textLength="{_short(width)}"' if len(words) > 1 else ""
    return f'<text style="{look}"{position}{turned}{length}>{escape(words)}</text>'


def _spot(spot: Spot, height: float) -> str:
    """Return a place that can be pointed at; `height` is that of the figure in pixels."""
    x, y = spot.x / PT, (height - spot.y) / PT
    wide, high = spot.width / PT, spot.height / PT
    title = f"<title>{escape(spot.text)}</title>"
    if spot.round:
        shape = f'<circle cx="{_short(x)}" cy="{_short(y)}" r="{_short(wide / 2)}">{title}</circle>'
    else:
        corner = f'x="{_short(x - wide / 2)}" y="{_short(y - high / 2)}"'
        shape = f'<rect {corner} width="{_short(wide)}" height="{_short(high)}">{title}</rect>'
    return f'<a href="#kernel-{spot.kernel}" tabindex="-1">{shape}</a>' if spot.kernel else shape


def _rounded(found: re.Match[str]) -> str:
    return _short(float(found[0]))


def _short(value: float) -> str:
    """Return a place in points of the figure: a hundredth of a pixel is seen by nobody."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
