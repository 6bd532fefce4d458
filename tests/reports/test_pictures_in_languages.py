"""Pictures and headings of recorded runs in other languages: no English sentence is in them."""

import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from pathlib import Path

import pandas as pd
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
PROGRAM, BENCH = "h200-top-kernels", "h200-roofline"
SENTENCE = re.compile(r"(?:\b[A-Za-z][a-z']*[ ,:;]+){3,}[a-z']{2,}")
"""Four words of English on end: three are in names, too, as in `PyTorch random exponential`."""
NAMES = {
    "kernels": ("short_name", "name"),  # names of kernels
    "host_ranges": ("nvtx_range", "thread"),  # names that the program gives
    "bench": ("name", "operation"),  # names of cases
    "measured_roofs": ("name", "operation"),  # those of the cases that they are from
}
"""Table -> columns with names, which no language changes."""


def english(words: str, names: Sequence[str]) -> list[str]:
    if any(name.startswith(words) for name in names):  # a name cut to the room of a picture
        return []
    for name in names:
        words = words.replace(name, "\N{HORIZONTAL ELLIPSIS}")
    return [found[0] for found in SENTENCE.finditer(words)]


def names_of(run: Run) -> list[str]:
    frames: list[tuple[pd.DataFrame, tuple[str, ...]]] = [
        (getattr(run, table), columns) for table, columns in NAMES.items()
    ]
    cells = {
        str(cell)
        for frame, columns in frames
        for column in set(columns) & set(frame.columns)
        for cell in frame[column].dropna().unique()
    }
    return sorted(filter(lambda cell: " " in cell, cells), key=len, reverse=True)


def pictures_of(run: Run) -> list[gallery.Picture]:
    if run.is_bench:
        return gallery.bench_pictures(bench_report(run).sections)
    view = report_view(run)
    first = overview(run, view, copies_and_graphs(run, read_trace(run)[0]))
    return [*gallery.overview_pictures(first), *gallery.pictures(view)]


def words_in(picture: gallery.Picture) -> Iterator[str]:
    """Yield what a picture says: its name, its texts and its tooltips."""
    yield say(picture.alt)
    figure = picture.draw()
    yield from (text.get_text() for text in figure.findobj(Written))
    yield from (line for spot in spots(figure) for line in spot.text.splitlines())


@pytest.mark.parametrize("name", [PROGRAM, BENCH])
@pytest.mark.parametrize("language", OTHERS)
def test_pictures_say_no_sentence_in_english(
    language: str, name: str, recorded_run_of: Callable[[str], Run]
) -> None:
    run = recorded_run_of(name)
    names = names_of(run)
    with drawn_in(language):
        said = {(p.name, words) for p in pictures_of(run) for words in words_in(p)}
    assert said
    assert {(where, words) for where, words in said if english(words, names)} == set()


@pytest.mark.parametrize("recipe", ["top-kernels", "roofline"])
@pytest.mark.parametrize("language", OTHERS)
def test_headings_and_still_pictures_say_no_sentence_in_english(
    language: str,
    recipe: str,
    replay: Callable[[str], Path],
    recorded_run_of: Callable[[str], Run],
) -> None:
    folder, names = replay(recipe) / "report", names_of(recorded_run_of(f"h200-{recipe}"))
    page = (folder / f"report.{language}.html").read_text("utf-8")
    headings = re.findall(r"<h\d[^>]*>(.*?)</h\d>", page)
    assert len(headings) > 5
    stills = [path.read_text("utf-8") for path in folder.rglob(f"*.{language}.svg")]
    written = [
        re.sub("<[^>]*>", "", words)
        for still in (page, *stills)
        for words in re.findall(r"<(?:title|text)\b[^>]*>(.*?)</|aria-label=\"(.*?)\"", still)
        for words in words
    ]
    found = [unescape(re.sub("<[^>]*>", "", words)) for words in (*headings, *written)]
    assert [words for words in found if english(words, names)] == []
