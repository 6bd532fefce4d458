"""Figures of measured cases: text that stays inside and apart, axes that hold the data."""

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    HeatFigure,
    HeatRow,
    LineFigure,
    Panel,
    Series,
    Span,
    TimelineFigure,
)
from nsight_prof.reports.plots.bench.bars import plot_bars
from nsight_prof.reports.plots.bench.lines import (
    byte_text,
    number_text,
    plot_lines,
    scale,
    spread,
    stacked,
)
from nsight_prof.reports.plots.bench.timeline import plot_timeline
from nsight_prof.reports.plots.heat import plot_heat
from nsight_prof.reports.plots.style import render_svg
from nsight_prof.reports.render.gallery import NARROW

X = tuple(2.0**power for power in range(13, 30))
MIB = 2.0**20


def line(label: str, factor: float, **look: object) -> Series:
    y = tuple(factor * (9 if x < 48 * MIB else 5) for x in X)
    return Series(label, X, y, tuple(v * 0.98 for v in y), tuple(v * 1.02 for v in y), **look)  # type: ignore[arg-type]


SWEEP = LineFigure(
    "sweep", "Bandwidth of the L2 by footprint", "alt", "Footprint", "Bandwidth (TB/s)",
    tuple(line(f"variant {n}", 1 - n / 100) for n in range(8)), x_log=True, x_bytes=True,
    marks=((60 * MIB, "L2 capacity"), (50 * MIB, "half a partition"), (70 * MIB, "more")),
    levels=((4.8, "datasheet 4.80 TB/s"),), subtitle="One point a footprint. " * 9,
)  # fmt: skip
STAIRS = LineFigure(
    "stairs", "Latency", "alt", "M",
    panels=(
        Panel("us", (Series("measured", (1.0, 64.0, 65.0), (3.0, 3.0, 5.0), style="steps"),)),
        Panel("TFLOP/s", (Series("measured", (1.0, 64.0, 65.0), (1.0, 60.0, 40.0)),
                          Series("fit", (1.0, 64.0), (2.0, 58.0), style="points")), "Rate"),
    ),
)  # fmt: skip
BARS = BarFigure(
    "bars", "Roofs", "alt", "TFLOP/s",
    (Bar("bf16", 800.0, 790.0, 810.0, "burst", "800 TFLOP/s"),
     Bar("a long name " * 9, 700.0, None, None, "steady", "700 TFLOP/s, " + "words " * 40),
     Bar("unknown", math.nan, None, None, "steady", "n/a")),
    levels=((989.0, "datasheet"), (980.0, "counters")),
)  # fmt: skip
TIMES = tuple(float(n) for n in range(90))
TIMELINE = TimelineFigure(
    "timeline", "The GPU meanwhile", "alt", "Seconds",
    (
        Panel("Power, W", (Series("GPU 0", TIMES, tuple(300 + t for t in TIMES)),),
              levels=((700.0, "power limit 700 W"),)),
        Panel("Requests", (Series("running", TIMES, tuple(t % 9 for t in TIMES)),
                           Series("waiting", TIMES, (math.nan,) * 45 + TIMES[:45]))),
        Panel("Never seen", (Series("GPU 0", TIMES, (math.nan,) * 90),)),
    ),
    (Span(0, 60, "start engine", "starts"), Span(60, 61, "warm-up", "too long for a second"),
     *(Span(61 + 4 * n, 64 + 4 * n, "batch", str(4**n)) for n in range(7))),
    subtitle="What went on is shaded. " * 9,
)  # fmt: skip
HEAT = HeatFigure(
    "heat", "Own time of each rank", "alt", "Step", "Own time (ms)", tuple(range(0, 400, 2)),
    tuple(HeatRow(f"rank {n}", (math.nan, *(abs(math.sin(n * t)) for t in range(199))))
          for n in range(4)),
    subtitle="Darker: the rank itself needed longer. " * 5,
)  # fmt: skip
PARETO = LineFigure(
    "pareto", "Throughput against interactivity", "alt", "tokens/s per user", "tokens/s",
    tuple(Series(f"length {n}", (100.0, 99.0, 98.9, 98.8, 60.0), (10.0 * n, 20.0, 21.0, 22.0, 90.0),
                 texts=("1", "2", "4", "8", "1024")) for n in range(1, 4)),
)  # fmt: skip
SHORT = Series("ends early", X[:2], (1.0, 1.0))
FIGURES = {
    "sweep": lambda: plot_lines(SWEEP),
    "legend": lambda: plot_lines(replace(SWEEP, series=(*SWEEP.series, SHORT))),
    "narrow": lambda: plot_lines(PARETO, NARROW),
    "narrow, long title": lambda: plot_lines(replace(PARETO, title="Throughput " * 9), NARROW),
    "stairs": lambda: plot_lines(STAIRS),
    "pareto": lambda: plot_lines(PARETO),
    "one point": lambda: plot_lines(replace(SWEEP, series=(Series("p", (1.0,), (1.0,)),))),
    "nothing": lambda: plot_lines(replace(SWEEP, series=(), marks=(), levels=())),
    "bars": lambda: plot_bars(BARS),
    "timeline": lambda: plot_timeline(TIMELINE),
    "no spans": lambda: plot_timeline(replace(TIMELINE, spans=())),
    "no time": lambda: plot_timeline(replace(TIMELINE, spans=(), panels=())),
    "heat": lambda: plot_heat(HEAT),
    "heat of many ranks": lambda: plot_heat(replace(HEAT, rows=HEAT.rows * 16)),
    "one bar": lambda: plot_bars(BarFigure("b", "t", "a", "v", (Bar("x", 0.0),))),
}  # fmt: skip


@cache
def drawn(name: str) -> tuple[Figure, list[tuple[Text, tuple[float, float, float, float]]]]:
    """Draw each figure and measure its texts once."""
    figure = FIGURES[name]()
    return figure, texts(figure)


def texts(figure: Figure) -> list[tuple[Text, tuple[float, float, float, float]]]:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    found = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text() and text.get_visible():
            box = text.get_window_extent(renderer)
            found.append((text, (box.x0, box.y0, box.x1, box.y1)))
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_all_text_lies_inside(name: str) -> None:
    figure, found = drawn(name)
    width, height = figure.get_size_inches() * figure.dpi
    for text, (left, bottom, right, top) in found:
        assert left >= -1, text.get_text()
        assert bottom >= -1, text.get_text()
        assert right <= width + 1, text.get_text()
        assert top <= height + 1, text.get_text()


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_covers_another(name: str) -> None:
    _, found = drawn(name)
    for (a, one), (b, other) in itertools.combinations(found, 2):
        apart = one[2] <= other[0] + 1 or other[2] <= one[0] + 1
        apart = apart or one[3] <= other[1] + 3 or other[3] <= one[1] + 3
        assert apart, (a.get_text(), b.get_text())


def test_lines_that_end_together_are_named_there() -> None:
    named = [text.get_text() for text, _ in texts(plot_lines(SWEEP)) if text.get_gid() == "name"]
    assert sorted(named) == [f"variant {n}" for n in range(8)]


@pytest.mark.parametrize("name", ["sweep", "bars", "timeline", "heat"])
def test_the_same_figure_gives_the_same_bytes(name: str) -> None:
    assert render_svg(FIGURES[name]()) == render_svg(FIGURES[name]())


def test_points_that_a_logarithmic_axis_cannot_show_are_left_out() -> None:
    odd = Series("odd", (0.0, 1e6, 1e7), (1.0, math.nan, 2.0))
    plot_lines(replace(SWEEP, series=(odd,), y_log=True))


@pytest.mark.parametrize(
    ("value", "text"),
    [(48 * MIB, "48 MiB"), (1024.0, "1 KiB"), (512.0, "512 B"), (2.0**30, "1 GiB")],
)
def test_bytes_have_binary_prefixes(value: float, text: str) -> None:
    assert byte_text(value) == text


@pytest.mark.parametrize(
    ("values", "in_bytes"),
    [((9.1e-3, 9.4e-3), False), ((8.63e-3, 8.77e-3), False), ((20e6, 24e6), True)],
)
def test_values_near_each_other_have_ticks_on_a_logarithmic_axis(
    values: tuple[float, float], in_bytes: bool
) -> None:
    assert len(scale(values, log=True, in_bytes=in_bytes, max_ticks=4).ticks) >= 2


def test_ticks_are_short() -> None:
    assert [number_text(v) for v in (0.0, 0.5, 1200.0, 2.5)] == ["0", "0.5", "1,200", "2.5"]


FINITE = st.floats(1e-6, 1e12)


@settings(max_examples=200, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=20), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_and_few_ticks(
    values: list[float], log: bool, in_bytes: bool
) -> None:
    axis = scale(values, log=log, in_bytes=in_bytes, zero=not log)
    assert axis.low < axis.high
    assert all(0 <= axis.fraction(value) <= 1 for value in values)
    assert len(axis.ticks) <= 10
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 400), min_size=1, max_size=12))
def test_names_keep_apart_and_inside(wanted: list[float]) -> None:
    places = spread(wanted, 0, 400, 15)
    assert all(-1e-6 <= place <= 400 + 1e-6 for place in places)
    ordered = sorted(places)
    assert all(b - a >= 15 - 1e-6 for a, b in itertools.pairwise(ordered))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 800), st.floats(5, 300)), min_size=1, max_size=8))
def test_texts_in_a_strip_do_not_touch(marks: list[tuple[float, float]]) -> None:
    widths = [width for _, width in marks]
    places = stacked([centre for centre, _ in marks], widths, 0, 800)
    boxes = [(c - w / 2, c + w / 2, row) for (c, row), w in zip(places, widths, strict=True)]
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] != other[2] or one[1] <= other[0] or other[1] <= one[0]
