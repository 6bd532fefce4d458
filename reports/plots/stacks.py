"""Stacked bars: stall reasons of each kernel, and time of each variant of a sweep by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.reports.figure_models import StallFigure
from nsight_prof.reports.formats import NA, duration, percent, speedup
from nsight_prof.reports.plots.rows import Head, Rows
from nsight_prof.reports.plots.sheet import Ink, Key
from nsight_prof.reports.plots.spots import told
from nsight_prof.reports.plots.style import HATCHES, INK, SERIES, YELLOW, fit, style, text_width
from nsight_prof.reports.sweep_models import SweepView

THICK = 0.7
SHOWN = 7  # as many colours as stay apart; what is left is "other"
OTHER = "#bbbbbb"


@dataclass(frozen=True)
class Part:
    """One part of a stacked bar: `width` in the unit of the axis, `told` what it is in full."""

    look: Key
    width: float
    text: str
    told: str
    kernel: str = ""


def looks(names: Sequence[str]) -> list[Key]:
    """Return a colour and a hatch for each name; "other" is grey."""
    keys = []
    for place, name in enumerate(names):
        if name.startswith("other") or place >= SHOWN:
            keys.append(Key(name, OTHER))
        else:
            keys.append(Key(name, SERIES[place], hatch=HATCHES[place]))
    return keys


def plot_stalls(figure: StallFigure) -> Figure:
    """Return for each kernel what its warps waited for, stacked to 100 %."""
    with style():
        keys = looks([reason.replace("_", " ") for reason in figure.reasons])
        head = Head(
            "Stall reasons: what warps wait for between two instructions",
            "Share of the time between two instructions of a warp. The report says below what each "
            "reason means.",
            tuple(keys),
            "Share of warp time",
        )
        rows = Rows(head, [(str(bar.number), bar.label) for bar in figure.bars], right=24)
        axes = rows.axes(100, "%")
        for row, bar in enumerate(figure.bars):
            named = f"{bar.number} {bar.label}"
            parts = [
                Part(key, 100 * value, f"{100 * value:.0f}",
                     told(named, f"{key.text}: {percent(100 * value)}", meaning), str(bar.number))
                for key, value, meaning in zip(keys, bar.shares, figure.meanings, strict=True)
            ]  # fmt: skip
            _stack(rows, axes, row, parts, 100)
        return rows.sheet.figure


def plot_sweep(view: SweepView) -> Figure:
    """Return the GPU time of each variant, stacked by its kernels; the largest have a colour."""
    with style():
        ranked = sorted(view.kernels, key=lambda row: -sum(c.total_ns or 0 for c in row.cells))
        keys = looks([fit(row.name, 380) for row in ranked[:SHOWN]] + ["other kernels"])
        unit, scale = _unit(max((v.gpu_time_ns or 0.0 for v in view.variants), default=0.0))
        head = Head("GPU time of the variants, by kernel", "", tuple(keys), f"GPU time ({unit})")
        rows = Rows(head, [("", variant.name) for variant in view.variants], right=150)
        top = max((v.gpu_time_ns or 0.0) / scale for v in view.variants) * 1.02 or 1.0
        axes = rows.axes(top, "")
        for row, variant in enumerate(view.variants):
            if variant.gpu_time_ns is None:
                rows.sheet.text(rows.left + 6, rows.y(row), fit(f"{NA}: {variant.problem}", 500))
                continue
            widths = [(r.cells[row].total_ns or 0.0) / scale for r in ranked[:SHOWN]]
            total = variant.gpu_time_ns / scale
            widths.append(max(total - sum(widths), 0.0))
            names = [r.name for r in ranked[:SHOWN]] + ["other kernels"]
            parts = [
                Part(k, w, f"{w:.3g}", told(name, variant.name, duration(w * scale)))
                for k, w, name in zip(keys, widths, names, strict=True)
            ]
            _stack(rows, axes, row, parts, top)
            text = f"{duration(variant.gpu_time_ns)} ({speedup(variant.ratio)})"
            rows.sheet.text(rows.x(total, top) + 6, rows.y(row), text)
        return rows.sheet.figure


def _stack(rows: Rows, axes: Axes, row: int, parts: Sequence[Part], top: float) -> None:
    left = 0.0
    for part in parts:
        if part.width > 0:
            axes.barh(row, part.width, left=left, height=THICK, color=part.look.colour,
                      hatch=part.look.hatch, edgecolor="white", linewidth=0.4)  # fmt: skip
            place = rows.x(left, top), rows.x(left + part.width, top)
            rows.spot(row, part.told, part.kernel, place)
        room = rows.x(part.width, top) - rows.left
        if room > text_width(part.text) + 8:
            dark = part.look.colour in (YELLOW, OTHER) or bool(part.look.hatch)
            middle = rows.x(left + part.width / 2, top)
            rows.sheet.text(middle, rows.y(row), part.text, Ink(ha="center", halo=dark,
                            colour=INK if dark else "white"))  # fmt: skip
        left += part.width


def _unit(largest_ns: float) -> tuple[str, float]:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if largest_ns >= scale:
            return unit, scale
    return "ns", 1.0
