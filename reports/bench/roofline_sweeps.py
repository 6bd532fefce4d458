"""Sweeps around the measured roofs: L2 capacity, latency, strides, transfers of the host."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.confirm import MOVED
from nsight_prof.reports.bench.cases import ratio
from nsight_prof.reports.bench.roofs import MeasuredRoof
from nsight_prof.reports.page.charts import LineFigure, Panel, Series

TERA, GIGA = 1e12, 1e9
PATTERNS = {"private": "a part an SM", "shared": "all SMs alike"}
SIZES = ("footprint_bytes", "footprint", "working_set_bytes", "size_bytes", "bytes")


def size_of(row: Row) -> float:
    """Return the bytes that a case of a sweep works on; NaN where its parameters do not say."""
    params = row["params"]
    return next((number(params[key]) for key in SIZES if key in params), math.nan)


def l2_sweep(rows: list[Row], roofs: list[MeasuredRoof], l2_bytes: float) -> LineFigure | None:
    """Bandwidth against the bytes that are read again and again, the best shape at each size."""
    best = best_by_size([r for r in rows if text(r["level"]) == "l2" and number(r["bytes"]) > 0])
    lines = [line for line in best.items() if len(line[1]) >= 3]
    if not lines:
        return None
    dram = next((r for r in roofs if r.key == "dram" and r.kind == "read"), None)
    levels = ((dram.value / TERA, f"DRAM read {dram.value_text}"),) if dram else ()
    rates = Panel("Bandwidth (TB/s)", tuple(_rates(*line) for line in lines), levels=levels)
    leaks = tuple(s for s in (_leak(*line) for line in lines) if s is not None)
    panels = (rates, Panel("From DRAM (% of L2 bytes)", leaks)) if leaks else (rates,)
    return LineFigure(
        "l2-size",
        "L2 bandwidth against the bytes that are used again and again",
        "Lines: bandwidth by footprint, high while it fits into the L2, then falling to DRAM's; "
        "and the part that DRAM served by counters",
        "Footprint",
        x_log=True,
        marks=((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else (),
        x_bytes=True,
        panels=panels,
        subtitle="The best launch shape at each footprint; bands are 95 % intervals. Footprints "
        "whose bytes did not all come to the L2, by its counters, are left out.",
    )


def dram_part(row: Row) -> float:
    """Return DRAM bytes over L2 bytes of a case, both as counted; NaN where one is unknown."""
    return ratio(row["dram_bytes"], row["l2_bytes"])


def _leak(name: str, points: list[tuple[float, Row]]) -> Series | None:
    known_ones = [(size, 100 * dram_part(row)) for size, row in points]
    known_ones = [(size, part) for size, part in known_ones if not math.isnan(part)]
    return _points(name, known_ones) if known_ones else None


def reached_l2(row: Row) -> bool:
    """Whether the bytes of a case came to the L2, as far as counters tell."""
    moved = ratio(row["l2_bytes"], number(row["bytes"]) * number(row["counted_calls"]))
    return math.isnan(moved) or abs(moved - 1) <= MOVED


def best_by_size(rows: Iterable[Row]) -> dict[str, list[tuple[float, Row]]]:
    """Return for each operation the fastest case at each size, smallest size first.

    Cases whose bytes did not come to the L2 are left out.
    """
    found: dict[str, dict[float, Row]] = defaultdict(dict)
    for row in rows:
        size = size_of(row)
        if not size > 0 or text(row["data"]) != "normal" or not reached_l2(row):
            continue
        mine = found[_line_name(row)]
        if size not in mine or number(row["bytes_per_s"]) > number(mine[size]["bytes_per_s"]):
            mine[size] = row
    return {name: sorted(points.items()) for name, points in found.items()}


def _line_name(row: Row) -> str:
    """Return the operation, with the pattern of its accesses where the case has one."""
    pattern = text(row["params"].get("pattern"))
    parts = (text(row["operation"]), PATTERNS.get(pattern, pattern))
    return ", ".join(part for part in parts if part)


def _rates(name: str, points: list[tuple[float, Row]]) -> Series:
    rows = [row for _, row in points]
    low, high = (
        tuple(number(r["bytes"]) / number(r[key]) / TERA for r in rows)
        for key in ("ci_high_s", "ci_low_s")
    )
    rates = tuple(number(r["bytes_per_s"]) / TERA for r in rows)
    return Series(name, tuple(size for size, _ in points), rates, low, high)


def latency_sweep(rows: list[Row], l2_bytes: float) -> LineFigure | None:
    """Cycles of one dependent load against the bytes that the chain wanders over."""
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        cycles, size = number(row["latency_cycles"]), size_of(row)
        if cycles > 0 and size > 0 and "sweep" in text(row["name"]):
            name = "past the L1" if row["params"].get("past_l1") else "through the L1"
            lines[name].append((size, cycles))
    series = [_points(name, sorted(points)) for name, points in lines.items() if len(points) > 1]
    if not series:
        return None
    return LineFigure(
        "latency",
        "Latency of a dependent load against the bytes it wanders over",
        "Line: cycles of one load by footprint, a step at the capacity of each level",
        "Footprint",
        "Latency (cycles)",
        tuple(series),
        x_log=True,
        marks=((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else (),
        x_bytes=True,
    )


def _points(name: str, points: list[tuple[float, float]]) -> Series:
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def stride_sweep(rows: list[Row]) -> LineFigure | None:
    """Bytes a clock and SM against the stride of neighbouring threads, L1 and shared memory."""
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        stride, rate = number(row["params"].get("stride_words")), number(row["bytes_per_clock_sm"])
        if "strided" in text(row["operation"]) and stride > 0 and rate > 0:
            name = text(row["operation"]).removesuffix(" read, strided")
            lines[name[:1].upper() + name[1:]].append((stride, rate))
    series = [_points(name, sorted(points)) for name, points in lines.items() if len(points) > 1]
    if not series:
        return None
    return LineFigure(
        "strides",
        "What a stride costs inside of an SM",
        "Lines: bytes a clock and SM of L1 and shared memory, falling as the stride grows",
        "Stride of neighbouring threads (words of 4 B)",
        "Useful bytes a clock and SM",
        tuple(series),
        x_log=True,
        subtitle="Neighbouring threads read words that lie this far apart: banks of shared memory "
        "conflict, and the L1 fetches sectors of which little is used.",
    )


def host_sweep(rows: list[Row]) -> LineFigure | None:
    """Bandwidth of copies between host and device against their size."""
    lines: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        if text(row["level"]) == "host" and size_of(row) > 0 and number(row["bytes_per_s"]) > 0:
            lines[text(row["operation"])].append((size_of(row), row))
    series = [
        _points(name, sorted((size, number(row["bytes_per_s"]) / GIGA) for size, row in points))
        for name, points in lines.items()
        if len(points) > 1
    ]
    if not series:
        return None
    return LineFigure(
        "host-transfers",
        "Transfers between host and device against their size",
        "Lines: bandwidth of host to device and device to host copies by size",
        "Bytes of one copy",
        "Bandwidth (GB/s)",
        tuple(series),
        x_log=True,
        x_bytes=True,
    )
