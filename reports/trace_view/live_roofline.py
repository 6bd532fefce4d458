"""A roofline that can be zoomed and filtered: the data that the script of a page draws it from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.roofline import roof_label
from nsight_prof.reports.page.charts import Roof, RooflineKernel, RooflinePanel
from nsight_prof.reports.page.formats import clock, count, duration, share
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.plots.palette import COLOURS, LEVEL_COLOURS, family
from nsight_prof.reports.plots.roofline.axes import at_clock
from nsight_prof.reports.profile.view_models import KernelRow, ReportView


def live_rooflines(view: ReportView) -> dict[str, str]:
    """Return the data of each roofline of all stages, in JSON, by the key of its panel."""
    rows = {row.number: row for row in view.kernels}
    return {panel.key: _data(panel, rows) for panel in view.rooflines if panel.kernels}


def live(name: str, picture: str, data: str) -> str:
    """Return a still picture, and what the script of the page makes one to be zoomed of."""
    return (
        f'<div class="roofline trace" id="{escape(name)}-live"><div class="live" hidden></div>'
        f'<div class="still">{picture}</div>'
        f'<script type="application/octet-stream" class="data">{data}</script></div>'
    )


def _data(panel: RooflinePanel, rows: dict[int, KernelRow]) -> str:
    clocked = at_clock(panel, panel.clock_hz)
    data = {
        "title": Writer().value(panel.title),
        "clock": "" if panel.clock_hz is None else clock(panel.clock_hz),
        "roofs": [_roof(roof) for roof in (*clocked.memory_roofs, *clocked.compute_roofs)],
        "kernels": [_kernel(kernel, rows[kernel.number]) for kernel in panel.kernels],
    }
    # "</script>" in the name of a kernel would end the data.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _roof(roof: Roof) -> dict[str, Any]:
    colour = LEVEL_COLOURS.get(roof.key)
    return {
        "key": roof.key,
        "label": roof.label,
        "value": roof.value,
        "memory": roof.unit == "B/s",
        "colour": COLOURS[colour] if colour else "ink",
    }


def _kernel(kernel: RooflineKernel, row: KernelRow) -> dict[str, Any]:
    colour, kind = family(kernel.category)
    return {
        "number": kernel.number,
        "name": kernel.label,
        "kind": kind,
        "colour": COLOURS[colour],
        "share": kernel.share,
        "rate": kernel.throughput,
        "stages": row.stages,
        "facts": list(_facts(kernel, row)),
        "points": [
            {"level": p.level, "label": roof_label(p.level), "at": p.intensity,
             "reached": p.roof_share}
            for p in kernel.points
        ],
    }  # fmt: skip


def _facts(kernel: RooflineKernel, row: KernelRow) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what the marks do not show: messages of words.txt, and their values."""
    if kernel.bound_by:
        yield "bound by {what}", {"what": LABELS.get(kernel.bound_by, kernel.bound_by)}
    if kernel.share is not None:
        yield "{part} of GPU time", {"part": share(kernel.share)}
    if row.calls is not None and row.total_ns is not None:
        yield "{n} launches, {time}", {"n": count(row.calls), "time": duration(row.total_ns)}
