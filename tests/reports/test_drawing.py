"""Pictures drawn in a second process are those drawn here, also where that process dies."""

import multiprocessing
import os
from collections.abc import Callable
from functools import partial

import pytest
from matplotlib.figure import Figure

from nsight_prof.reports.page.figure_models import TimeBar
from nsight_prof.reports.plots.bars import plot_time
from nsight_prof.reports.render.drawing import begun, draw_here, drawing_in_parallel
from nsight_prof.reports.render.gallery import Picture
from nsight_prof.reports.render.style import Style

TIME = partial(plot_time, [TimeBar("1", "gemm", "gemm", 1.0, 1e6, 3)], 1e6)


def picture(name: str, draw: Callable[[], Figure] = TIME) -> Picture:
    return Picture("time", name, "Bars", "", draw)


def _die() -> Figure:
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return TIME()


def _fail() -> Figure:
    raise OSError("no space left")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def test_both_draw_the_same() -> None:
    shown = [picture("one"), picture("two")]
    here = draw_here(shown, Style(png=True))
    with drawing_in_parallel() as draw:
        beside = draw(shown, Style(png=True))
        drawn = list(beside.drawn)
    assert beside.names == here.names == ("one", "two")
    assert drawn == list(here.drawn)
    assert [list(one.files) for one in drawn] == [["one.svg", "one.png"], ["two.svg", "two.png"]]


@pytest.mark.parametrize("first", [["one", "two"], ["two"], []])
def test_pictures_that_are_begun_are_those_that_are_asked_for(first: list[str]) -> None:
    shown, style = [picture("one"), picture("two")], Style()
    with drawing_in_parallel() as draw:
        draw = begun(draw, [item for item in shown if item.name in first], style)
        twice = [list(draw(shown, style).drawn) for _ in range(2)]
    assert twice == [list(draw_here(shown, style).drawn)] * 2


def test_what_a_dead_process_leaves_is_drawn_here() -> None:
    with drawing_in_parallel() as draw:
        drawn = list(draw([picture("one"), picture("two", _die)], Style()).drawn)
    assert drawn[1].files["two.svg"] == drawn[0].files["one.svg"]


def test_an_error_is_that_of_the_picture() -> None:
    with drawing_in_parallel() as draw, pytest.raises(OSError, match="no space left"):
        list(draw([picture("one", _fail)], Style()).drawn)
