"""Pictures and headings of recorded runs in other languages: no English sentence is in them."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from matplotlib.text import Text as Written

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.catalogue import ENGLISH, LANGUAGES
from nsight_prof.reports.plots.sheet import spots
from nsight_prof.reports.plots.words import drawn_in, say
from nsight_prof.reports.profile.overview import overview
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render import gallery
from nsight_prof.reports.studies.registry import bench_report
from nsight_prof.reports.trace_view.tracks import copies_and_graphs, read_trace

OTHERS = [language for language in LANGUAGES if language != ENGLISH]
RUNS = ("top-kernels", "roofline")
SENTENCE = re.compile(r"(?:\b[A-Za-z][a-z']*[ ,:;]+){3,}[a-z']{2,}")
"""Four words of English on end: three are also in names, as in PyTorch random exponential."""
ALLOWED = {
    "of its recipe": "the question of a recipe of the user's own is shown as it is",
}
NAMES = {
    "kernels": ("short_name", "name"),
    "host_ranges": ("nvtx_range", "thread"),
    "bench": ("name", "operation"),
    "measured_roofs": ("name", "label"),
}
"""Columns of tables whose cells are names, which no language changes."""


def english(words: str, names: Iterator[str] | list[str]) -> list[str]:
    for name in names:
        words = words.replace(name, "\u2026")
    return SENTENCE.findall(words) and [found[0] for found in SENTENCE.finditer(words)]


@cache
def names_of(run: Run) -> list[str]:
    found: set[str] = set()
    for table, columns in NAMES.items():
        frame = getattr(run, table)
        for column in set(columns) & set(frame.columns):
            found |= {str(cell) for cell in frame[column].dropna().unique() if " " in str(cell)}
    return sorted(found, key=len, reverse=True)
