"""Sweeps around the measured roofs: latency, strides inside of an SM, transfers of the host."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.build.roofline import roof_label
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.page.charts import LineFigure, Series

GIGA = 1e9
SIZES = ("footprint_bytes", "footprint", "working_set_bytes", "size_bytes", "bytes")
Points = dict[str, list[tuple[float, float]]]


def size_of(row: Row) -> float:
    """Return the bytes that a case of a sweep works on; NaN where its parameters do not say."""
    params = row["params"]
    return next((number(params[key]) for key in SIZES if key in params), math.nan)


def series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    """Return a line through points (x, y)."""
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def _lines(lines: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[Series, ...]:
    """Return the lines that have more than one point, sorted by x."""
    return tuple(series(name, sorted(points)) for name, points in lines.items() if len(points) > 1)


def latency_sweep(rows: Sequence[Row], l2_bytes: float) -> LineFigure | None:
    """Return cycles of one dependent load against the bytes that the chain wanders over."""
    lines: Points = defaultdict(list)
    for row in rows:
        cycles, size = number(row["latency_cycles"]), size_of(row)
        if cycles > 0 and size > 0 and "sweep" in text(row["name"]):
            name = "past the L1" if row["params"].get("past_l1") else "through the L1"
            lines[name].append((size, cycles))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        "latency",
        "Latency of a dependent load against the bytes it wanders over",
        "Line: cycles of one load by footprint, a step at the capacity of each level",
        "Footprint",
        "Latency (cycles)",
        curves,
        x_log=True,
        marks=((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else (),
        x_bytes=True,
    )


def stride_sweep(rows: Sequence[Row]) -> LineFigure | None:
    """Return bytes per clock and SM against the stride of neighbouring threads."""
    lines: Points = defaultdict(list)
    for row in rows:
        stride, rate = number(row["params"].get("stride_words")), number(row["bytes_per_clock_sm"])
        if "strided" in text(row["operation"]) and stride > 0 and rate > 0:
            lines[roof_label(text(row["level"]))].append((stride, rate))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        "strides",
        "What a stride costs inside of an SM",
        "Lines: bytes per clock and SM of L1 and shared memory, falling as the stride grows",
        "Stride of neighbouring threads (words of 4 B)",
        "Useful bytes per clock and SM",
        curves,
        x_log=True,
        subtitle="Neighbouring threads read words that lie this far apart: banks of shared memory "
        "conflict, and the L1 fetches sectors of which little is used.",
    )


def host_sweep(rows: Sequence[Row]) -> LineFigure | None:
    """Return bandwidth of copies between host and device against their size."""
    lines: Points = defaultdict(list)
    for row in rows:
        size, rate = size_of(row), number(row["bytes_per_s"])
        if text(row["level"]) == "host" and size > 0 and rate > 0:
            lines[text(row["operation"])].append((size, rate / GIGA))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        "host-transfers",
        "Transfers between host and device against their size",
        "Lines: bandwidth of host to device and device to host copies by size",
        "Bytes of one copy",
        "Bandwidth (GB/s)",
        curves,
        x_log=True,
        x_bytes=True,
    )
