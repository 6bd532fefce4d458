"""The roofs of points: in a sentence and in a figure."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.cells import known
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.studies.llm_kernels.points import Layer, Point

TENSOR, DRAM = ("tensor bf16", "tensor fp8"), ("dram",)


def of_roof(point: Point | Layer) -> Text | str:
    """Return " (87 % of the DRAM roof)" behind a rate; empty where no roof is known."""
    if point.fraction.value is None:
        return ""
    if not point.roof:
        return Text(" ({share} of the roofs)", share=point.fraction)
    return Text(" ({share} of the {roof} roof)", share=point.fraction, roof=point.roof)


def roof_levels(
    found: Sequence[Point], roofs: Sequence[str], scale: float
) -> tuple[tuple[float, str], ...]:
    """Return the measured roofs that limit some of the points, divided by `scale`."""
    levels = {}
    for point in found:
        value = known(point.row["roof_value"])
        if value is not None:
            label = f"{point.roof} roof {quantity(value, str(point.row['roof_unit']), 3)}"
            levels[str(point.row["roof_used"])] = (value / scale, label)
    return tuple(levels[name] for name in roofs if name in levels)
