"""Pictures: labels that never cover each other, the same bytes every time, no surprises."""

import itertools
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.charts import (
    IcicleFigure,
    Ridge,
    Roof,
    RooflineKernel,
    RooflinePanel,
    RooflinePoint,
    Slice,
    Stack,
    StackFigure,
)
from nsight_prof.reports.page.figure_models import (
    Lane,
    OccupancyBar,
    Overview,
    Span,
    StallBar,
    StallFigure,
    ThroughputBar,
    TimeBar,
)
from nsight_prof.reports.page.formats import briefer
from nsight_prof.reports.page.section import slug
from nsight_prof.reports.plots import palette
from nsight_prof.reports.plots.bars import plot_occupancy, plot_throughput, plot_time
from nsight_prof.reports.plots.icicle import plot_icicle
from nsight_prof.reports.plots.overview import plot_overview
from nsight_prof.reports.plots.palette import LEVEL_COLOURS, SERIES
from nsight_prof.reports.plots.placement import Anchor, Box, Placer, along, around
from nsight_prof.reports.plots.roofline.axes import ORIGINS
from nsight_prof.reports.plots.roofline.roofline import plot_roofline
from nsight_prof.reports.plots.rows import steps
from nsight_prof.reports.plots.stacks import plot_stacks, plot_stalls
from nsight_prof.reports.plots.style import (
    HATCHES,
    drawable,
    fit,
    render_png,
    render_svg,
    text_width,
)
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.gallery import NARROW, pictures

MEMORY = (
    Roof("dram", "", "DRAM", 4.79e12, "B/s", "counters", 1.9e9, ""),
    Roof("dram", "", "DRAM", 4.81e12, "B/s", "datasheet", None, ""),
    Roof("l2", "", "L2", 1.05e13, "B/s", "counters", 1.9e9, ""),
    Roof("l1", "", "L1", 3.2e13, "B/s", "counters", 1.9e9, ""),
)
COMPUTE = (
    Roof("tensor", "bf16", "Tensor bf16", 9.5e14, "FLOP/s", "counters", 1.9e9, ""),
    Roof("tensor", "fp16", "Tensor fp16", 9.5e14, "FLOP/s", "counters", 1.9e9, ""),
    Roof("tensor", "fp8", "Tensor fp8", 1.9e15, "FLOP/s", "counters", 1.9e9, ""),
    Roof("tensor", "tf32", "Tensor tf32", 4.7e14, "FLOP/s", "counters", 1.9e9, ""),
    Roof("fp32", "", "FP32", 6.4e13, "FLOP/s", "counters", 1.9e9, ""),
    Roof("fp64", "", "FP64", 3.2e13, "FLOP/s", "counters", 1.9e9, ""),
)
NASTY = "foo<int, $x_1$> 漢字 \U0001f680 `tick` | pipe\nline " + "long " * 40


def kernel(number: int, intensity: float, throughput: float, spread: float) -> RooflineKernel:
    points = tuple(
        RooflinePoint(level, intensity / spread**step, None)
        for step, level in enumerate(("dram", "l2", "l1"))
    )
    category = ("gemm", "attention", "norm", "elementwise", "copy", "?")[number % 6]
    return RooflineKernel(
        number, f"k{number}", f"kernel {number} {NASTY}", category, 0.5 / number, throughput,
        "tensor", "bf16", "dram", points,
    )  # fmt: skip


def panel(kernels: list[RooflineKernel], *, roofs: bool = True) -> RooflinePanel:
    memory, compute = (MEMORY, COMPUTE) if roofs else ((), ())
    ridges = tuple(Ridge(m.key, c.key, c.dtype, c.value / m.value) for m in memory for c in compute)
    return RooflinePanel(
        "tensor", "Roofline: Tensor Cores", memory, compute, ridges, tuple(kernels)
    )


def close(seed: int, count: int = 20) -> list[RooflineKernel]:
    """Kernels that lie nearly on one point."""
    chance = random.Random(seed)
    return [
        kernel(n, 200 * 1.05 ** chance.uniform(-1, 1), 5e14 * 1.05 ** chance.uniform(-1, 1), 1.8)
        for n in range(1, count + 1)
    ]


def far(seed: int, count: int = 20) -> list[RooflineKernel]:
    chance = random.Random(seed)
    return [
        kernel(n, 10 ** chance.uniform(-3, 4), 10 ** chance.uniform(9, 15), 3.0)
        for n in range(1, count + 1)
    ]


PANELS: dict[str, Callable[[], RooflinePanel]] = {
    **{f"close {seed}": lambda seed=seed: panel(close(seed)) for seed in range(2)},  # type: ignore[misc]
    **{f"far {seed}": lambda seed=seed: panel(far(seed)) for seed in range(2)},  # type: ignore[misc]
    "same point": lambda: panel([kernel(n, 100.0, 4e14, 1.0) for n in range(1, 21)]),
    "one kernel": lambda: panel([kernel(1, 300.0, 7e14, 2.0)]),
    "no kernel": lambda: panel([]),
    "no roofs": lambda: panel(far(1), roofs=False),
    "on the roofs": lambda: panel([kernel(n, 10.0**n, min(4.79e12 * 10**n, 9.5e14), 2.2)
                                   for n in range(-2, 4) if n]),
}  # fmt: skip


STRIP = tuple(
    Span(begin, end, name)
    for begin, end, name in (
        (0, 1, "preprocess"), (1, 3, "vision_encoder"), (3, 4, "projector"), (4, 6, "prefill"),
        (6, 96, "decode"), (96, 98, "postprocess"), (98, 100, "answer"),
    )
)  # fmt: skip


@cache
def bars(count: int = 20) -> dict[str, Figure]:
    chance = random.Random(5)
    names = [f"{NASTY} {n}" if n % 3 else f"cuBLAS GEMM {n}" for n in range(1, count + 1)]
    numbers = range(1, count + 1)
    maybe = [None, 0.0, 12.34, 55.0, 100.0]
    reasons = tuple(f"reason_{n}" for n in range(7)) + ("other",)
    stacks = tuple(
        Stack(f"batch={n}", (1e6,) * 8 if n != 3 else (),
              f"{n} ms" if n != 3 else "n/a: the target ended with exit code 1 " * 9)
        for n in range(1, 6)
    )  # fmt: skip
    shares = [[chance.random() for _ in reasons] for _ in numbers]
    strip = Overview(
        100.0, STRIP, (Lane("GPU 0", {"matrix products, convolutions": np.ones(9)}),), (), "run"
    )
    return {
        "time": plot_time(
            [TimeBar(str(n), names[n - 1], "gemm", 0.5**n, 1e9 * 0.5**n, 10**n % 977)
             for n in numbers], 2e9),
        "occupancy": plot_occupancy(
            [OccupancyBar(n, names[n - 1], 0.1, maybe[n % 5], maybe[(n + 1) % 5],
                          "registers, shared memory, blocks, warps") for n in numbers]),
        "throughput": plot_throughput(
            [ThroughputBar(n, names[n - 1], 0.1, maybe[n % 5], 3.0, None, 88.8, "l2")
             for n in numbers]),
        "stalls": plot_stalls(StallFigure(reasons, reasons, tuple(
            StallBar(n, names[n - 1], 0.1, tuple(v / sum(row) for v in row))
            for n, row in zip(numbers, shares, strict=True)))),
        "sweep": plot_stacks(
            StackFigure("sweep", "GPU time", "Bars", "GPU time", (*names[:7], "other kernels"),
                        stacks)),
        "strip": plot_overview(strip),
        "narrow strip": plot_overview(strip, NARROW),
        "icicle": plot_icicle(IcicleFigure("icicle", "GPU time", "Icicle", tuple(
            Slice(depth, at * 4.0**-depth, 4.0**-depth, NASTY, f"{NASTY} > {at}", f"stage {at % 9}")
            for depth in range(5) for at in range(4**depth)), subtitle="of each stage")),
    }  # fmt: skip


BARS = ("time", "occupancy", "throughput", "stalls", "sweep", "strip", "narrow strip", "icicle")
FIGURES: dict[str, Callable[[], Figure]] = {
    **{name: lambda make=make: plot_roofline(make()) for name, make in PANELS.items()},  # type: ignore[misc]
    **{name: lambda name=name: bars()[name] for name in BARS},  # type: ignore[misc]
}


@cache
def drawn(name: str) -> Figure:
    """Draw each figure once for all tests that only look at it."""
    return FIGURES[name]()


@cache
def boxes_of(name: str) -> list[tuple[Text, Box]]:
    """Measure the texts of each figure once."""
    return text_boxes(drawn(name))


def text_boxes(figure: Figure) -> list[tuple[Text, Box]]:
    """Measure every text as drawn: the box of its ink, turned with it."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    found = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if not text.get_visible() or not text.get_text():
            continue
        angle = text.get_rotation()
        text.set_rotation(0)
        flat = text.get_window_extent()
        text.set_rotation(angle)
        x, y = text.get_transform().transform(text.get_position())
        dx, dy = (flat.x0 + flat.x1) / 2 - x, (flat.y0 + flat.y1) / 2 - y
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        middle = (x + dx * cos - dy * sin, y + dx * sin + dy * cos)
        found.append((text, Box(*middle, flat.width, flat.height, angle)))
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_covers_another_or_leaves_the_figure(name: str) -> None:
    figure = drawn(name)
    boxes = boxes_of(name)
    width, height = figure.get_size_inches() * figure.dpi
    page = Box(width / 2, height / 2, width, height)
    assert len(boxes) > 4
    for text, box in boxes:
        assert box.inside(page), f"{text.get_text()!r} leaves the figure"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), f"{one.get_text()!r} covers {other.get_text()!r}"


@pytest.mark.parametrize("name", PANELS)
def test_labels_of_roofs_and_kernels_stay_inside_the_axes(name: str) -> None:
    made, figure = PANELS[name](), drawn(name)
    boxes = boxes_of(name)
    extent = figure.axes[0].get_window_extent()
    middle = (extent.p0 + extent.p1) / 2
    inner = Box(middle[0], middle[1], extent.width, extent.height)
    numbers = [text.get_text() for text, _ in boxes if text.get_gid() == "kernel"]
    assert sorted(numbers, key=int) == [str(k.number) for k in made.kernels]
    for text, box in boxes:
        if text.get_gid():
            assert box.inside(inner), text.get_text()


@pytest.mark.parametrize("name", PANELS)
def test_every_roof_in_sight_has_a_label_with_value_unit_and_source(name: str) -> None:
    made = PANELS[name]()
    labels = " | ".join(t.get_text() for t, _ in boxes_of(name) if t.get_gid() == "roof")
    for roof in (*made.memory_roofs, *made.compute_roofs):
        assert roof.label.split(" ")[-1] in labels
        assert ORIGINS[roof.source] in labels
    if made.memory_roofs:
        assert "DRAM 4.79 TB/s (peak of the counters; data sheet 4.81 TB/s)" in labels
        assert "Tensor bf16, fp16 950 TFLOP/s (peak of the counters, at 1.90 GHz)" in labels


def test_ink_of_labels_does_not_meet() -> None:
    """The same question asked of the pixels, for the densest picture."""
    figure = plot_roofline(PANELS["close 1"]())
    canvas = FigureCanvasAgg(figure)
    texts = [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_gid()]
    for artist in figure.findobj():
        artist.set_visible(artist is figure)
    seen = np.zeros(canvas.get_width_height()[::-1], dtype=int)
    for text in texts:
        text.set_visible(True)
        text.set_bbox(None)
        text.set_color("black")
        canvas.draw()  # type: ignore[no-untyped-call]
        ink = np.asarray(canvas.buffer_rgba())[..., 0] < 128  # type: ignore[no-untyped-call]
        assert ink.any(), text.get_text()
        seen += ink
        text.set_visible(False)
    assert seen.max() == 1


@pytest.mark.parametrize("name", PANELS)
def test_the_axes_hold_every_point_and_ridge(name: str) -> None:
    made, axes = PANELS[name](), drawn(name).axes[0]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for one in made.kernels:
        assert bottom < one.throughput < top
        assert all(left < point.intensity < right for point in one.points)
    assert all(left < ridge.intensity < right for ridge in made.ridges)


def test_one_marker_shape_and_colour_per_memory_level_and_one_hatch_per_series() -> None:
    axes = plot_roofline(panel([kernel(1, 300.0, 7e14, 2.0)])).axes[0]
    looks = {(line.get_marker(), line.get_color()) for line in axes.lines} - {("D", "white")}
    markers = {look for look in looks if look[0] in ("o", "s", "^")}  # ticks have markers, too
    assert len(markers) == 3
    assert {colour for _, colour in markers} == set(LEVEL_COLOURS.values())
    slopes = {colour for marker, colour in looks if marker == "None"}
    assert slopes >= set(LEVEL_COLOURS.values())


def test_roofs_are_those_at_the_clock_of_the_kernels() -> None:
    made = panel([replace(kernel(1, 300.0, 4e14, 2.0), clock_hz=0.95e9)])
    shown = " | ".join(t.get_text() for t in plot_roofline(made).findobj(Text))
    assert "Tensor bf16, fp16 475 TFLOP/s (peak of the counters)" in shown
    assert "DRAM 4.79 TB/s" in shown
    assert "the SM clock of these kernels" in shown


def test_many_small_kernels_have_markers_but_no_numbers() -> None:
    kernels = [replace(kernel(n, 10.0 * n, 1e13 * n, 2.0), share=0.5**n) for n in range(1, 31)]
    shown = {t.get_text() for t in plot_roofline(panel(kernels)).findobj(Text)}
    assert {str(n) for n in range(1, 15)} <= shown
    assert not {str(n) for n in range(15, 31)} & shown
    assert any(text.startswith("16 smaller kernels") for text in shown)


def test_every_stage_of_the_strip_is_named_whatever_its_width() -> None:
    texts = {text.get_text() for text in drawn("strip").texts}
    assert {span.name for span in STRIP} <= texts


def test_hatches_differ() -> None:
    assert len(set(HATCHES)) == len(set(SERIES)) == len(SERIES)


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_smaller_than_nine_points(name: str) -> None:
    assert min(float(text.get_fontsize()) for text, _ in boxes_of(name)) >= 9


def test_the_same_data_give_the_same_bytes_whatever_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = plot_roofline(PANELS["close 0"]())
    svg, png = render_svg(first), render_png(first)
    for key in ("font.size", "lines.linewidth", "axes.labelsize"):
        monkeypatch.setitem(matplotlib.rcParams, key, 30.0)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12345")
    second = plot_roofline(PANELS["close 0"]())
    assert render_svg(second) == svg
    assert render_png(second) == png
    assert b"<dc:date>" not in svg
    assert matplotlib.rcParams["font.size"] == 30.0


def test_no_window_system_is_touched() -> None:
    module = "nsight_prof.reports.render.gallery"
    code = f"import sys, {module}; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("width", [0, 12, 40, 90.5, 300, 2000])
@pytest.mark.parametrize("text", ["", "i" * 99, "cuBLAS GEMM, bf16, tile 64x8x64, TN", NASTY])
def test_a_name_is_cut_to_the_width_that_there_is(text: str, width: float) -> None:
    cut = fit(text, width)
    assert text_width(cut) <= width or cut == "…"
    bold = fit(text, width, bold=True)
    assert text_width(bold, bold=True) <= width or bold == "…"
    assert cut in briefer(text) or "…" in cut


def test_a_name_of_parts_loses_whole_ones() -> None:
    name = "cuBLAS GEMM, bf16, tile 64x8x64, 12 stages, cluster 2x1, TN"
    assert fit(name, 300) == "cuBLAS GEMM, bf16, tile 64x8x64, TN"
    assert fit(name, 150) == "cuBLAS GEMM, bf16"


def test_a_character_that_the_font_lacks_is_a_question_mark() -> None:
    assert drawable("a\n\N{DEVANAGARI LETTER A} b") == "a ? b"
    assert drawable("漢 b") == "漢 b"  # which the fonts of readers have


def test_a_label_avoids_what_is_taken() -> None:
    placer = Placer(Box(50, 50, 120, 120))
    anchors = [Anchor(50, 50, 4)]
    placed = [placer.best_of(around(anchors, 14, 11)) for _ in range(12)]
    boxes = [candidate.box for candidate in placed if candidate]
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_label_without_room_is_not_placed() -> None:
    placer = Placer(Box(5, 5, 10, 10))
    assert placer.best_of(around([Anchor(5, 5, 1)], 30, 11)) is None
    assert placer.best_of(along(((0, 0), (10, 0)), 30, 11, 0.5)) is None


def test_turned_boxes_side_by_side_do_not_overlap() -> None:
    one = Box(0, 0, 100, 10, 45)
    assert not one.overlaps(Box(12, -12, 100, 10, 45))
    assert one.overlaps(Box(3, -3, 100, 10, 45))
    assert one.overlaps(Box(0, 0, 10, 100, 45))
    assert one.crosses(((-50, 50), (50, -50)))
    assert not one.crosses(((-50, 30), (-10, 70)))


@pytest.mark.parametrize("top", [1e-3, 0.7, 1.0, 37.2, 100, 8e5])
def test_ticks_are_few_and_round(top: float) -> None:
    ticks = steps(top)
    assert 3 <= len(ticks) <= 8
    assert ticks[-1] <= top * (1 + 1e-9)


def test_a_report_has_the_pictures_that_its_data_allow(run: Run, trace_only_run: Run) -> None:
    whole = pictures(report_view(run))
    assert [p.group for p in whole if not p.stage] == [
        *("time", "roofline", "roofline", "occupancy", "throughput", "stalls")
    ]
    assert {p.stage for p in whole if p.stage} == {"prefill", "decode"}
    assert [p.name for p in pictures(report_view(trace_only_run))] == ["time"]
    for picture in whole:
        assert render_svg(picture.draw()).startswith(b"<?xml")


def test_stages_that_look_alike_get_files_of_their_own(run: Run) -> None:
    view = report_view(run)
    stages = tuple(replace(view.stages[0], stage=name) for name in ("a b", "a-b"))
    kernels = tuple(replace(k, stages=("a b", "a-b")) if k.number < 3 else k for k in view.kernels)
    found = pictures(replace(view, stages=stages, kernels=kernels))
    names = [p.name for p in found if p.stage]
    assert names == ["roofline-tensor-a-b", "roofline-tensor-a-b-2"]


def test_a_stage_name_makes_a_safe_file_name() -> None:
    assert slug("Prefill / step 1") == "prefill-step-1"
    assert slug("../..") == "x"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_on_a_part_can_be_read_on_pale_and_on_dark_pages(theme: str, root: Path) -> None:
    css = (root / "reports/render/page.css").read_text()
    themes = {"light": css[: css.index("@media")], "dark": css[css.index('[data-theme="dark"]') :]}
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", text)) for text in themes.values())
    variables = light if theme == "light" else light | dark

    def luminance(colour: str) -> float:
        value = variables[palette.COLOURS.get(colour, "paper")]
        channels = [int(value[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear))  # WCAG 2.2, relative luminance

    for colour in (*palette.SERIES, palette.GREY, palette.QUIET, "#f2f2f2"):
        low, high = sorted((luminance(colour), luminance(palette.text_on(colour))))
        assert (high + 0.05) / (low + 0.05) >= 3, colour
