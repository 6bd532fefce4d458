"""Script and style sheet of the timeline on a page."""

from __future__ import annotations

from pathlib import Path

TRACE = 'id="trace"'
"""What a page with a timeline has in it."""


def script() -> str:
    """Return the script that draws the parts of `trace_parts` on a page."""
    return _file("timeline.js")


def style() -> str:
    """Return the style sheet of these parts."""
    return _file("timeline.css")


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8").strip()
