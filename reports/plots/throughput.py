"""Throughput as a table of coloured cells: per cent of each roof that each kernel reached."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.reports.page.figure_models import ThroughputBar
from nsight_prof.reports.page.formats import NA, percent
from nsight_prof.reports.page.values import Text
from nsight_prof.reports.plots.palette import BLUE, INK, QUIET
from nsight_prof.reports.plots.rows import ROW, Head, Rows
from nsight_prof.reports.plots.sheet import Ink, Key
from nsight_prof.reports.plots.spots import Spot, tooltip
from nsight_prof.reports.plots.style import fit, style
from nsight_prof.reports.plots.words import labelled, of_gpu_time, say

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
                    _frame(rows, x, row, width)
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


def _frame(rows: Rows, x: float, row: int, width: float) -> None:
    rectangle = (x + 2.5, rows.y(row) - ROW / 2 + 2.5, width - 5, ROW - 5)
    rows.sheet.box(*rectangle, fill=False, edgecolor=INK, linewidth=2.0)


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
