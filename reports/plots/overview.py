"""First picture of a report: stages and GPUs over time, and a bar of where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from nsight_prof.reports.page.figure_models import IDLE, Lane, Overview, Span, TimePart
from nsight_prof.reports.page.formats import clock, duration
from nsight_prof.reports.page.values import Text, Word
from nsight_prof.reports.plots.palette import GRID, INK, QUIET, families, text_on
from nsight_prof.reports.plots.sheet import MARGIN, Ink, Key, Sheet, Spot, keys_height, tooltip
from nsight_prof.reports.plots.style import WIDTH, fit, style, text_width
from nsight_prof.reports.plots.words import say

LEFT = 84.0  # pixels for the names of lanes
LANE, GAP, SPAN, BAR = 30.0, 5.0, 18.0, 30.0
AXIS = 24.0
SHADES = ("#dddddd", "#bbbbbb")
TICKS, TICK = 6, 90.0
"""Times on the axis at most, and pixels that one takes."""
COLOURS = {name: colour for colour, name in families().items()}
CLOCK = "SM clock"


def plot_overview(figure: Overview, width: float = WIDTH) -> Figure:
    """Return the strip of the run over the bar of its parts, one colour per kind of work.

    It is `width` pixels wide.
    """
    with style():
        keys = _keys(figure)
        stages = SPAN * (bool(figure.spans) + bool(_narrow(figure, width)))
        strip = stages + (LANE + GAP) * (len(figure.lanes) + bool(figure.clock_hz)) + AXIS
        height = (
            2 * MARGIN
            + keys_height(keys, width)
            + (strip if figure.lanes else 0.0)
            + (BAR + 6 if figure.segments else 0.0)
        )
        sheet = Sheet(height, width)
        sheet.keys(keys)
        right = width - MARGIN
        if figure.lanes:
            _strip(sheet, figure, right)
        if figure.segments:
            _bar(sheet, figure, right)
        return sheet.figure


def _keys(figure: Overview) -> list[Key]:
    """Return a key for each kind of work that is shown, the longest first."""
    colours = {item.name: item.colour for item in figure.segments}
    for lane in figure.lanes:
        for kind in lane.busy:
            colours.setdefault(kind, COLOURS[kind])
    return [Key(name, colour) for name, colour in colours.items()]


def _strip(sheet: Sheet, figure: Overview, right: float) -> None:
    width = right - LEFT
    shades = {
        name: SHADES[index % 2]
        for index, name in enumerate(dict.fromkeys(span.name for span in figure.spans))
    }
    if figure.spans:
        _name_narrow(sheet, _narrow(figure, sheet.width), right)
        sheet.top -= SPAN
        scale = width / figure.span_ns
        for span in figure.spans:
            _span(sheet, span, scale, shades[span.name])
        for name, middle, room, is_interrupted in _with_room(figure, sheet.width):
            ink = Ink(ha="center", halo=is_interrupted)
            sheet.text(middle, sheet.top + SPAN / 2, fit(name, room), ink)
    for lane in figure.lanes:
        sheet.top -= LANE + GAP
        sheet.text(MARGIN, sheet.top + LANE / 2, lane.name)
        axes = sheet.axes(LEFT, sheet.top, width, LANE)
        _lane(axes, lane, figure)
    if figure.clock_hz:
        sheet.top -= LANE + GAP
        _clock(sheet, figure, width)
    axes = sheet.axes(LEFT, sheet.top, width, 1.0)
    _time_axis(axes, sheet, figure.span_ns, width)
    sheet.top -= AXIS


def _with_room(figure: Overview, width: float) -> Iterator[tuple[str, float, float, bool]]:
    """Runs of spans with room for their name: it, their middle, the room, whether with gaps."""
    scale = (width - MARGIN - LEFT) / figure.span_ns
    for name, alike in groupby(figure.spans, key=lambda span: span.name):
        first, *rest = alike
        last = rest[-1] if rest else first
        room = (last.end_ns - first.begin_ns) * scale - 8
        if room >= min(text_width(name), 60):
            middle = LEFT + (first.begin_ns + last.end_ns) / 2 * scale
            yield (name, middle, room, bool(rest))


def _narrow(figure: Overview, width: float) -> list[tuple[float, str]]:
    """Stages that have room for their name nowhere: the middle of the longest span, and it."""
    scale = (width - MARGIN - LEFT) / figure.span_ns if figure.spans else 0.0
    longest: dict[str, Span] = {}
    for span in sorted(figure.spans, key=lambda span: span.end_ns - span.begin_ns):
        longest[span.name] = span
    wide = {name for name, *_ in _with_room(figure, width)} if figure.spans else set()
    return sorted(
        (LEFT + (span.begin_ns + span.end_ns) / 2 * scale, name)
        for name, span in longest.items()
        if name not in wide
    )


def _name_narrow(sheet: Sheet, stages: Sequence[tuple[float, str]], right: float) -> None:
    """Write names above their spans, each beside the one before, with a line to its span."""
    if not stages:
        return
    sheet.top -= SPAN
    names = [fit(name, 120) for _, name in stages]
    lefts: list[float] = []
    for (middle, _), name in zip(stages, names, strict=True):
        free = lefts[-1] + text_width(names[len(lefts) - 1]) + 10 if lefts else LEFT
        lefts.append(max(middle - text_width(name) / 2, free))
    limit = right
    for index in reversed(range(len(names))):
        limit = lefts[index] = min(lefts[index], limit - text_width(names[index]))
        limit -= 10
    if limit + 10 < MARGIN:  # more names than a line has room for: they stay with their spans
        return
    for (middle, _), name, begin in zip(stages, names, lefts, strict=True):
        sheet.text(begin, sheet.top + SPAN / 2 + 3, name)
        at = min(max(middle, begin), begin + text_width(name))
        sheet.line([at, middle], [sheet.top + 5, sheet.top - 2], color=QUIET, linewidth=0.8)


def _span(sheet: Sheet, span: Span, scale: float, shade: str) -> None:
    at, wide = LEFT + span.begin_ns * scale, (span.end_ns - span.begin_ns) * scale
    sheet.box(at, sheet.top + 2, max(wide, 0.5), SPAN - 4, facecolor=shade, edgecolor="white",
              linewidth=0.4)  # fmt: skip
    text = tooltip(span.name, duration(span.end_ns - span.begin_ns))
    sheet.spot(Spot(at + wide / 2, sheet.top + SPAN / 2, max(wide, 2), SPAN, text))


def _lane(axes: Axes, lane: Lane, figure: Overview) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.axhspan(0, 1, color=GRID, linewidth=0)
    bins = len(next(iter(lane.busy.values())))
    edges = np.linspace(0, 1, bins + 1)
    order = [item.name for item in figure.segments]
    kinds = sorted(lane.busy, key=lambda name: order.index(name) if name in order else len(order))
    tops = np.cumsum([lane.busy[kind] for kind in kinds], axis=0)
    # Each covers the lower part of the one before: half the points of stacked shapes.
    for kind, top in zip(reversed(kinds), tops[::-1], strict=True):
        # `stairs` looks at each step for limits, which are known.
        axes.add_artist(StepPatch(top, edges, facecolor=COLOURS[kind], linewidth=0))


def _clock(sheet: Sheet, figure: Overview, width: float) -> None:
    """Draw the SM clock from 0 to the highest that there is, where launches tell it."""
    hz = np.array(figure.clock_hz)
    top = float(np.nanmax([figure.top_hz, np.nanmax(hz)]))
    axes = sheet.axes(LEFT, sheet.top, width, LANE)
    axes.set_axis_off()
    axes.set_xlim(0, len(hz))
    axes.set_ylim(0, top * 1.05)
    axes.axhline(top, color=GRID, linewidth=0.8)
    at = np.flatnonzero(~np.isnan(hz))
    axes.hlines(hz[at], at, at + 1, color=INK, linewidth=1.6)
    low, high = clock(float(np.nanmin(hz))), clock(float(np.nanmax(hz)))
    about = {"high": high, "top": clock(top)}
    words = say(
        Text("{high}, from the times of compute-bound kernels; the maximum is {top}", **about)
        if low == high
        else Text(
            "{low} to {high}, from the times of compute-bound kernels; the maximum is {top}",
            low=low.rpartition(" ")[0],
            **about,
        )
    )
    sheet.text(MARGIN, sheet.top + LANE / 2, CLOCK)
    sheet.text(LEFT + 6, sheet.top + 8, fit(words, width - 12), Ink(colour=QUIET))
    sheet.spot(Spot(LEFT + width / 2, sheet.top + LANE / 2, width, LANE, tooltip(CLOCK, words)))


def _time_axis(axes: Axes, sheet: Sheet, span_ns: float, width: float) -> None:
    axes.set_axis_off()
    step = _step(span_ns / min(TICKS, width / TICK))
    for time_ns in np.arange(0, span_ns * 1.0001, step):
        x = LEFT + width * time_ns / span_ns
        sheet.line([x, x], [sheet.top - 4, sheet.top], color=GRID, linewidth=0.8)
        words = duration(time_ns) if time_ns else "0"
        side: Literal["right", "center"] = "right" if x > sheet.width - MARGIN - 30 else "center"
        sheet.text(x, sheet.top - 12, words, Ink(colour=QUIET, ha=side))


def _step(rough: float) -> float:
    size = 10 ** np.floor(np.log10(rough))
    return float(next(m * size for m in (1, 2, 5, 10) if m * size >= rough))


def _bar(sheet: Sheet, figure: Overview, right: float) -> None:
    sheet.top -= BAR
    sheet.text(MARGIN, sheet.top + BAR / 2, figure.total_name)
    total, x = sum(item.share for item in figure.segments), LEFT
    for item in figure.segments:
        wide = (right - LEFT) * item.share / total
        _draw_part(sheet, item, x, wide, figure.total_name)
        x += wide
    sheet.top -= 6


def _draw_part(sheet: Sheet, item: TimePart, x: float, wide: float, total_name: str) -> None:
    sheet.box(x, sheet.top, wide, BAR - 4, facecolor=item.colour, edgecolor="white", linewidth=0.6)
    amount = f"{100 * item.share:.0f} %"
    ink = Ink(ha="center", colour=text_on(item.colour), bold=item.name == IDLE)
    label = f"{say(item.name)} {amount}"
    words = label if text_width(label, bold=True) + 8 <= wide else amount
    if text_width(words, bold=True) + 6 <= wide:
        sheet.text(x + wide / 2, sheet.top + BAR / 2 - 2, words, ink)
    sheet.spot(Spot(x + wide / 2, sheet.top + BAR / 2, wide, BAR,
                    tooltip(item.name, say(Text("{share} of the {total}", share=amount,
                                                total=Word(total_name))))))  # fmt: skip
