"""Script and style sheet of the parts of a page that can be zoomed: timeline and rooflines."""

from __future__ import annotations

import json
from pathlib import Path

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.reports.page.catalogue import catalogue
from nsight_prof.reports.plots.palette import families

TRACE, ROOFLINE = 'id="trace"', 'class="roofline trace"'
"""What a page with a timeline, or with a roofline that can be zoomed, has in it."""

WORDS = (
    "All kinds",
    "All memory levels",
    "All stages",
    "Arithmetic intensity at the memory level (FLOP/B); throughput in FLOP/s",
    (
        "Drag to move, Ctrl and the wheel or + and − to zoom, double click to look closer, click "
        "a kernel for its details."
    ),
    (
        "Drag to move, Ctrl and the wheel or + and − to zoom, double click to look closer, click "
        "a point for its kernel."
    ),
    "Earlier",
    "FLOP/B at the memory level; FLOP/s",
    "Find kernels by name",
    (
        "Idle time is strong where the next call came late, faint where the work was queued; "
        "calls that wait are yellow."
    ),
    "Its launches in the timeline",
    "Its point on the roofline",
    "Kernel before",
    "Kernel {n}",
    (
        "Keys: arrows, + −, n and p for kernels, Enter for its details, l for its launches, Home "
        "for all, Escape for no filter."
    ),
    "Keys: arrows, + −, n and p for launches, f to fill, Home for the whole run.",
    "Later",
    "Launch before",
    "Launches",
    "Launches in the timeline",
    "Marks are as large as their share of GPU time.",
    "NVTX ranges and kernels: arrow keys move, Enter zooms or goes to the kernel",
    "Next kernel",
    "Next launch",
    "Only {name}",
    "Roofs at {clock}, the SM clock of these kernels.",
    "Shorter launches are added up in bins ({bins}); table launches has each of them.",
    "Show the whole run",
    (
        "Timeline: arrow keys move, plus and minus zoom, up and down choose a row, n and p an "
        "event, Enter goes to its kernel"
    ),
    "Whole",
    "Whole roofline",
    "Whole run",
    "Zoom in",
    "Zoom out",
    "bound by {what}",
    "idle before them {time}",
    "its details",
    "its launches",
    "its point on the roofline",
    "kernel {n}",
    "kernels and copies {time}",
    "none",
    "of all",
    "stage {name}",
    "{n} begin within {time}, busy {busy}",
    "{n} launches",
    "{n} launches, {time}",
    "{n} of {total} kernels",
    "{part} % of what the roofs allow there",
    "{part} of GPU time",
    "{time}, from {start}",
    (
        "{title}: arrow keys move, plus and minus zoom, n and p choose a kernel, Enter goes to "
        "its details, l to its launches"
    ),
    "● DRAM, ■ L2, ▲ L1, ◇ ridge point.",
)
"""Messages of the scripts, and what the data of a roofline adds to a kernel."""


def messages() -> tuple[str, ...]:
    """Return all that the scripts write in the language of a page."""
    return (*WORDS, *families().values(), *LABELS.values(), "idle")


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
