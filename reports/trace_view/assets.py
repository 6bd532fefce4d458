"""Script and style sheet of the parts of a page that can be zoomed: timeline and rooflines."""

from __future__ import annotations

from pathlib import Path

TRACE, ROOFLINE = 'id="trace"', 'class="roofline trace"'
"""What a page with a timeline, or with a roofline that can be zoomed, has in it."""


def are_in(html: str) -> bool:
    """Return whether a page has such parts."""
    return TRACE in html or ROOFLINE in html


def script() -> str:
    """Return the script that draws these parts on a page."""
    return "\n".join(map(_file, ("parts.js", "timeline.js", "roofline.js")))


def style() -> str:
    """Return the style sheet of these parts."""
    return _file("timeline.css")


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8").strip()
