"""One row per kernel: share of GPU time, occupancy, and per cent of each roof that it reached."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.reports.page.figure_models import OccupancyBar, ThroughputBar, TimeBar
from nsight_prof.reports.page.formats import NA, duration, percent, share
from nsight_prof.reports.page.values import Text, Word, Words
from nsight_prof.reports.plots.palette import BLUE, INK, QUIET, VERMILLION, family
from nsight_prof.reports.plots.rows import ROW, Head, Rows, draw_bar
from nsight_prof.reports.plots.sheet import Ink, Key, Spot, tooltip
from nsight_prof.reports.plots.style import fit, style, text_width
from nsight_prof.reports.plots.words import labelled, of_gpu_time, say

THICK = 0.62
TEXT = 296.0  # pixels for the words beside the occupancy bars
WIDEST = 360.0  # the same where a limiter has many words


def plot_time(bars: Sequence[TimeBar], gpu_time_ns: float | None, gpus: int = 1) -> Figure:
    """Return share of GPU time as one bar a kernel, coloured by what the kernel does.

    `gpu_time_ns` is the sum over `gpus` GPUs.
    """
    with style():
        families = dict.fromkeys(family(bar.category) for bar in bars if bar.number)
        head = Head(
            _time_title(gpu_time_ns, gpus),
            "Share of the time of all kernels, then total time and number of launches.",
            tuple(Key(name, colour) for colour, name in families),
            "Share of GPU time",
        )
        rows = Rows(head, [(bar.number, bar.label) for bar in bars], right=190)
        top = max([100 * bar.share for bar in bars] + [1.0]) * 1.02
        axes = rows.axes(top, "%")
        for row, bar in enumerate(bars):
            colour = family(bar.category)[0] if bar.number else "#cccccc"
            draw_bar(axes, row, 100 * bar.share, THICK, facecolor=colour)
            text = share(bar.share)
            if bar.total_ns is not None:
                text += f" · {duration(bar.total_ns)}"
            if bar.calls is not None:
                text += f" · {bar.calls:,}x"
            rows.sheet.text(rows.x(100 * bar.share, top) + 6, rows.y(row), text)
            rows.spot(row, _time_tooltip(bar), bar.number)
        return rows.sheet.figure


def plot_occupancy(bars: Sequence[OccupancyBar]) -> Figure:
    """Return achieved occupancy as bars, theoretical occupancy as a mark, and its limiter."""
    with style():
        head = Head(
            "Occupancy: warps resident on an SM",
            "Achieved while the kernel ran, against what registers, shared memory and block size "
            "allow (theoretical), and which of them allows no more. Low occupancy is a fault only "
            "where a kernel waits.",
            (
                Key("achieved", BLUE),
                Key("theoretical", VERMILLION, "D", 6.0),
            ),
            "Per cent of the warps an SM can hold",
        )
        limits = [_limits(bar) for bar in bars]
        widest = max((text_width(limit) for limit in limits), default=0.0)
        right = min(max(TEXT, widest + 24), WIDEST)
        rows = Rows(head, [(str(bar.number), bar.label) for bar in bars], right=right)
        axes = rows.axes(100, "%")
        for row, bar in enumerate(bars):
            if bar.achieved_pct is not None:
                draw_bar(axes, row, bar.achieved_pct, THICK, facecolor=BLUE)
            if bar.theoretical_pct is not None:
                axes.plot([bar.theoretical_pct], [row], "D", color=VERMILLION, markersize=6,
                          markeredgecolor=INK, markeredgewidth=0.6, clip_on=False)  # fmt: skip
            rows.sheet.text(rows.right + 14, rows.y(row), fit(limits[row], right - 24))
            rows.spot(row, _occupancy_tooltip(bar), str(bar.number))
        return rows.sheet.figure


def _time_title(gpu_time_ns: float | None, gpus: int) -> Words:
    total = duration(gpu_time_ns)
    if total == NA:
        return Text("GPU time by kernel")
    if gpus == 1:
        return Text("Where the GPU time goes: {total} in kernels", total=total)
    return Text("Where the GPU time goes: {total} in kernels on {n} GPUs", total=total, n=gpus)


def _time_tooltip(bar: TimeBar) -> str:
    of = of_gpu_time(bar.share)
    if bar.total_ns is None or bar.calls is None:
        return tooltip(f"{bar.number} {bar.label}", of)
    launches = Text("{time} in {n} launch", "{time} in {n} launches",
                    time=duration(bar.total_ns), n=bar.calls)  # fmt: skip
    each = say(launches)
    return tooltip(f"{bar.number} {bar.label}", of, each, family(bar.category)[1])


def _occupancy_tooltip(bar: OccupancyBar) -> str:
    return tooltip(
        f"{bar.number} {bar.label}",
        labelled(Text("achieved"), percent(bar.achieved_pct)),
        labelled(Text("theoretical"), percent(bar.theoretical_pct)),
        say(Text("limited by {limiter}", limiter=_limiter(bar))) if bar.limiter else "",
        of_gpu_time(bar.share),
    )


def _limiter(bar: OccupancyBar) -> Text:
    """Return what allows no more warps: several things where they allow the same."""
    return Text("{limits}", limits=[Word(name) for name in bar.limiter.split(", ")])


def _limits(bar: OccupancyBar) -> str:
    if bar.achieved_pct is None and bar.theoretical_pct is None:
        return NA
    achieved, theoretical = percent(bar.achieved_pct), percent(bar.theoretical_pct)
    of = say(Text("{part} of {total}", part=achieved.removesuffix(" %"), total=theoretical))
    full = bar.theoretical_pct is not None and bar.theoretical_pct >= 100
    return labelled(of, say(_limiter(bar))) if bar.limiter and not full else of


COLUMNS = ("dram", "l2", "l1", "tensor")
NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1", "tensor": "Tensor"}

LIMIT = Text("Limited by")
LIMIT_PX = 132.0
UNKNOWN = Text("not known")
HEAD = Head(
    "Throughput: how much of each part of the GPU is used",
    "Per cent of the peak at the clock of the run (Tensor Cores: of the cycles).",
    (Key("framed: limits the kernel", "white", "s", 7.0),),
)


def plot_throughput(bars: Sequence[ThroughputBar]) -> Figure:
    """Return one coloured cell per kernel and resource, and what limits each kernel.

    A limiting resource that has a column is framed there.
    """
    with style():
        rows = Rows(HEAD, [(str(bar.number), bar.label) for bar in bars], right=8, gap=20)
        width = (rows.right - rows.left - LIMIT_PX) / len(COLUMNS)
        for column, name in enumerate(COLUMNS):
            x = rows.left + width * column
            title = Ink(bold=True, ha="center")
            rows.sheet.text(x + width / 2, rows.first + 10, NAMES[name], title)
            for row, bar in enumerate(bars):
                _cell(rows, x, row, width, getattr(bar, f"{name}_pct"))
                if bar.bound_by == name:
                    rectangle = (x + 2.5, rows.y(row) - ROW / 2 + 2.5, width - 5, ROW - 5)
                    rows.sheet.box(*rectangle, fill=False, edgecolor=INK, linewidth=2.0)
                spot = Spot(x + width / 2, rows.y(row), width - 2, ROW - 2, _tooltip(bar, name),
                            str(bar.number))  # fmt: skip
                rows.sheet.spot(spot)
        x = rows.right - LIMIT_PX + 8
        rows.sheet.text(x, rows.first + 10, LIMIT, Ink(bold=True))
        for row, bar in enumerate(bars):
            known = bar.bound_by in LABELS
            limit = fit(LABELS.get(bar.bound_by, UNKNOWN), LIMIT_PX - 8)
            rows.sheet.text(x, rows.y(row), limit, Ink(colour=INK if known else QUIET))
        return rows.sheet.figure


def _tooltip(bar: ThroughputBar, name: str) -> str:
    value = percent(getattr(bar, f"{name}_pct"))
    of = Text("{share} of the cycles", share=value)
    if name != "tensor":
        of = Text("{share} of the peak at the clock of the run", share=value)
    return tooltip(
        f"{bar.number} {bar.label}",
        labelled(NAMES[name], value if value == NA else say(of)),
        Text("limits the kernel") if bar.bound_by == name else "",
        of_gpu_time(bar.share),
    )


def _cell(rows: Rows, x: float, row: int, width: float, value: float | None) -> None:
    rectangle = (x + 1, rows.y(row) - ROW / 2 + 1, width - 2, ROW - 2)
    if value is None:
        rows.sheet.box(
            *rectangle, facecolor="#f2f2f2", hatch="//", edgecolor="#dddddd", linewidth=0
        )
        rows.sheet.text(x + width / 2, rows.y(row), NA, Ink(ha="center", colour=QUIET, halo=True))
        return
    # Lightness alone carries the order, so no colour vision is needed; the strongest step still
    # leaves text a contrast of 5 to 1, dark on white paper and pale on dark.
    strength = 0.04 + 0.5 * min(max(value, 0.0), 100.0) / 100
    rows.sheet.box(*rectangle, facecolor=BLUE, alpha=strength, linewidth=0)
    rows.sheet.text(x + width / 2, rows.y(row), percent(value), Ink(ha="center"))
