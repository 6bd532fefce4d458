"""Script and style sheet of the parts of a page that can be zoomed: timeline and rooflines."""

from __future__ import annotations

import json
from pathlib import Path

from nsight_prof.reports.page.catalogue import catalogue
from nsight_prof.reports.plots.palette import families

TRACE, ROOFLINE = 'id="trace"', 'class="roofline trace"'
"""What a page with a timeline, or with a roofline that can be zoomed, has in it."""


def messages() -> tuple[str, ...]:
    """Return all that the scripts write in the language of a page: words.txt, and names of data."""
    from nsight_prof.parsers.build.bound import LABELS

    return (*_file("words.txt").splitlines(), *families().values(), *LABELS.values(), "idle")


def words(language: str) -> str:
    """Return message -> translation in JSON, as a page carries it; empty for none."""
    known = catalogue(language)
    found = {message: known[message] for message in messages() if message in known}
    return json.dumps(found, ensure_ascii=False).replace("<", "\\u003c") if found else ""


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
