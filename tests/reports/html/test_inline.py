"""Figures of a page: all of their text, no colour of their own, a spot for each bar and point."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    LineFigure,
    Panel,
    Series,
    Span,
    TimelineFigure,
    spaced,
)
from nsight_prof.reports.page.figure_models import StallBar, StallFigure
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.bench.bars import plot_bars
from nsight_prof.reports.plots.bench.lines import plot_lines
from nsight_prof.reports.plots.bench.timeline import plot_timeline
from nsight_prof.reports.plots.inline import render_inline
from nsight_prof.reports.plots.sheet import MOST, spots, wrap
from nsight_prof.reports.plots.stacks import plot_stalls
from nsight_prof.reports.plots.style import DPI, render_svg, text_width
from nsight_prof.reports.plots.words import drawn_in
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.gallery import pictures

SERIES = Series("copy", (1.0, 10.0, 1000.0), (5.0, float("nan"), 7.0), (4.0, 4.0, 6.0),
                (6.0, 8.0, 8.0))  # fmt: skip
MADE: dict[str, Callable[[], Figure]] = {
    "lines": lambda: plot_lines(LineFigure("l", "L", "", "bytes", "GB/s", (SERIES,), x_log=True)),
    "bars": lambda: plot_bars(
        BarFigure("b", "B", "", "us", (Bar("a", 3.0, 2.0, 4.0), Bar("b", 5)))
    ),
    "timeline": lambda: plot_timeline(
        TimelineFigure("t", "T", "", "time (s)", (Panel("W", (SERIES,)),), (Span(0, 9, "run"),))
    ),
    "stalls": lambda: plot_stalls(
        StallFigure(tuple("abcdefg"), tuple("ABCDEFG"), (StallBar(1, "k", 1.0, (1 / 7,) * 7),))
    ),
}


def shown(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [(element.text or "").strip() for element in root.iter("text")]


def inlined(figure: Figure, name: str = "s", alt: Words = "") -> str:
    return render_inline(figure, render_svg(figure), name, alt)


@pytest.mark.parametrize("name", MADE)
def test_a_figure_keeps_its_text_and_leaves_its_colours_to_the_page(name: str) -> None:
    figure = MADE[name]()
    svg = inlined(figure, name, "what it shows")
    texts = [t.get_text() for t in figure.findobj(Text) if t.get_text().strip()]
    assert not set(texts) - set(shown(svg))
    assert not re.search(r"#[0-9a-f]{6}\b", svg)
    assert svg == inlined(MADE[name](), name, "what it shows")


@pytest.mark.parametrize(
    ("language", "words"), [("zh", "占 warp 时间的比例"), ("ko", "워프 시간의 비율")]
)
def test_a_figure_speaks_the_language_of_its_page(language: str, words: str) -> None:
    bars = tuple(StallBar(n, "k", 1.0, (0.5, 0.5)) for n in (1, 2))
    figure = StallFigure(("long_scoreboard", "other"), ("", ""), bars)
    with drawn_in(language):
        svg = inlined(plot_stalls(figure))
    assert words in shown(svg)
    assert "Share of warp time" not in svg
    assert not [text for text in shown(svg) if "?" in text]
    assert "Share of warp time" in shown(inlined(plot_stalls(figure)))


def test_chinese_is_broken_at_letters_and_as_wide_as_high() -> None:
    with drawn_in("zh"):
        assert text_width("占比", 9.0) == pytest.approx(2 * 9.0 * DPI / 72)
        lines = wrap("占一个 warp 两条指令之间时间的比例", 100)
    assert len(lines) > 2
    assert "".join(lines).replace(" ", "") == "占一个warp两条指令之间时间的比例"
    assert all(text_width(line) <= 100 for line in lines)


def test_all_pictures_of_a_run_share_one_space_of_names(run: Run) -> None:
    drawn = [inlined(p.draw(), p.name, p.alt) for p in pictures(report_view(run))]
    ids = [name for svg in drawn for name in re.findall(r'\bid="([^"]+)"', svg)]
    used = [name for svg in drawn for name in re.findall(r'(?:url\(|href=")#([^)"]+)', svg)]
    assert len(ids) == len(set(ids))
    assert {name for name in used if not name.startswith("kernel-")} == set(ids)


def test_spots_stand_where_the_data_are_and_say_them(run: Run) -> None:
    told = {p.name: spots(p.draw()) for p in pictures(report_view(run))}
    view = report_view(run)
    assert len(told["time"]) == len(view.kernels) + bool(view.rest_kernels)
    assert len(told["throughput"]) == 4 * len(view.throughput)
    for panel in view.rooflines:
        mine = [spot for spot in told[f"roofline-{panel.key}"] if spot.kernel]
        assert len(mine) == sum(len(kernel.points) for kernel in panel.kernels)
        assert {spot.kernel for spot in mine} == {str(kernel.number) for kernel in panel.kernels}
        heights = {k.number: k.throughput for k in panel.kernels}
        ranked = sorted(mine, key=lambda spot: spot.y)
        assert [heights[int(s.kernel)] for s in ranked] == sorted(
            heights[int(s.kernel)] for s in mine
        )


def test_points_say_both_values_and_their_band() -> None:
    first, last = spots(MADE["lines"]())
    assert first.text == "copy\nGB/s: 5.000\n4.000 to 6.000\nbytes: 1.000"
    assert last.text == "copy\nGB/s: 7.000\n6.000 to 8.000\nbytes: 1,000"
    assert (first.x < last.x, first.y < last.y) == (True, True)
    assert len(spots(MADE["timeline"]())) == 3


def test_hatches_are_small_and_differ() -> None:
    svg = inlined(MADE["stalls"]())
    tiles = re.findall(r"<pattern.*?<path d=\"([^\"]+)\".*?</pattern>", svg)
    assert len(tiles) == len(set(tiles)) == 6
    assert max(map(len, tiles)) < 200


def test_long_lines_are_thinned_evenly_with_both_ends() -> None:
    kept = list(spaced(range(10_000), MOST))
    assert (kept[0], kept[-1], len(kept)) == (0, 9_999, MOST)
    steps = {b - a for a, b in zip(kept, kept[1:], strict=False)}
    assert max(steps) - min(steps) <= 1
