"""Figures of the measured roofs: the roofline itself, sweeps of size, burst against steady."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from reports.bench.cases import measured, params_of, shape_text
from reports.bench.models import (
    Bar,
    BarFigure,
    BenchFigure,
    LineFigure,
    RooflineFigure,
    Series,
)
from reports.bench.roofs import ARITHMETIC, MeasuredRoof, Search
from reports.cells import Row, known, number, text
from reports.figure_models import Ridge, Roof, RooflinePanel
from reports.figure_views import roof_label
from reports.formats import flop_rate, share
from reports.roofline import LEVELS, ridge

TERA, GIGA = 1e12, 1e9
PATTERNS = {"private": "a part an SM", "shared": "all SMs alike"}
SIZES = ("footprint_bytes", "footprint", "working_set_bytes", "size_bytes", "bytes")


def figures(
    rows: list[Row], roofs: list[MeasuredRoof], found: list[Search], l2_bytes: float
) -> tuple[BenchFigure, ...]:
    """Return the figures that the cases allow; `l2_bytes` is NaN where it is not known."""
    rows = measured(rows)
    made = (
        _roofline(roofs),
        _memory(roofs),
        _duration(rows, roofs),
        l2_sweep(rows, roofs, l2_bytes),
        _latency(rows, l2_bytes),
        _strides(rows),
        _host(rows),
        _search(found),
    )
    return tuple(figure for figure in made if figure is not None)


def size_of(row: Row) -> float:
    """Return the bytes that a case of a sweep works on; NaN where its parameters do not say."""
    params = row["params"]
    return next((number(params[key]) for key in SIZES if key in params), math.nan)


def _roofline(roofs: list[MeasuredRoof]) -> RooflineFigure | None:
    used = [roof for roof in roofs if roof.is_ceiling]
    memory = [_line(roof) for level in LEVELS for roof in used if roof.key == level]
    compute = sorted(
        (_line(roof) for roof in used if roof.key in ARITHMETIC), key=lambda r: -r.value
    )
    if not memory or not compute:
        return None
    ridges = tuple(
        Ridge(m.key, c.key, c.dtype, ridge(m.value, c.value)) for c in compute for m in memory
    )
    title = "Measured roofline"
    panel = RooflinePanel("measured", title, tuple(memory), tuple(compute), ridges, ())
    return RooflineFigure(
        "roofline-measured",
        title,
        "Roofline: measured bandwidths as slopes, measured peaks as level lines",
        panel,
        "A slope is the bandwidth of a memory level, a level line the peak of a pipe, each as "
        "measured. Dots are ridge points: left of it the level limits, right of it the pipe.",
    )


def _line(roof: MeasuredRoof) -> Roof:
    dtype = roof.dtype if roof.key == "tensor" else ""
    clock = known(roof.clock_hz)
    label = roof_label(roof.key, dtype)
    return Roof(roof.key, dtype, label, roof.value, roof.unit, "", clock, roof.reason)


def _memory(roofs: list[MeasuredRoof]) -> BarFigure | None:
    mine = [r for r in roofs if r.key in ("dram", "l2", "l1", "shared") and r.unit == "B/s"]
    if not mine:
        return None
    return BarFigure(
        "memory-roofs",
        "Bandwidth of each memory level and access pattern",
        "Bars: measured bandwidth of DRAM, L2, L1 and shared memory by kind of access",
        "Bandwidth (TB/s)",
        tuple(_bar(roof, roof.value_text + _of(roof)) for roof in mine),
        subtitle="The best launch shape of each. Lines at the ends are 95 % intervals.",
    )


def _of(roof: MeasuredRoof) -> str:
    if known(roof.of_datasheet) is not None:
        return f", {share(roof.of_datasheet)} of datasheet"
    if known(roof.of_counters) is not None:
        return f", {share(roof.of_counters)} of the counters' peak"
    return ""


def _bar(roof: MeasuredRoof, words: str) -> Bar:
    low, high = known(roof.low), known(roof.high)
    return Bar(
        roof.name,
        roof.value / TERA,
        None if low is None else low / TERA,
        None if high is None else high / TERA,
        roof_label(roof.key, ""),
        words,
    )


def _duration(rows: list[Row], roofs: list[MeasuredRoof]) -> BarFigure | None:
    """Bars of burst, steady and burst on zeros for each pipe and type that has two of them."""
    bars: list[Bar] = []
    for roof in (r for r in roofs if r.kind in ("burst", "fma")):
        mine = [("burst, random data", roof.case), *_steady(roof, roofs), *_zeros(roof, rows)]
        shown = [(group, row) for group, row in mine if row]
        if len(shown) > 1:
            bars += [_rate_bar(roof, group, row) for group, row in shown]
    if not bars:
        return None
    return BarFigure(
        "burst-steady-zeros",
        "What power costs: bursts against steady load, random data against zeros",
        "Bars: FLOP/s of each pipe in bursts, under steady load, and in bursts on zeros",
        "Throughput (TFLOP/s)",
        tuple(bars),
        subtitle="Bursts: windows under 50 ms after a pause. Steady: after 2 s of load. Zeros flip "
        "no bits, so they take less power and leave a higher clock.",
    )


def _steady(roof: MeasuredRoof, roofs: list[MeasuredRoof]) -> Iterator[tuple[str, Row]]:
    for other in roofs:
        if other.kind == "steady" and (other.key, other.dtype) == (roof.key, roof.dtype):
            yield "steady, random data", other.case


def _zeros(roof: MeasuredRoof, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    twin = zeros_twin(roof.case, rows)
    if twin is not None:
        yield "burst, zeros", twin


def zeros_twin(case: Row, rows: Iterable[Row]) -> Row | None:
    """Return the case that differs from `case` only in its data: zeros."""
    if not case:
        return None
    return next(
        (
            row
            for row in rows
            if row["data"] == "zeros"
            and all(text(row[key]) == text(case[key]) for key in _ALIKE)
            and row["params"] == _params(case)
        ),
        None,
    )


_ALIKE = ("operation", "mode", "duration", "dtype")


def _params(case: Row) -> dict[str, Any]:
    """Return the parameters of a case whether they were parsed or not."""
    return case["params"] if isinstance(case["params"], dict) else params_of(case)


def _rate_bar(roof: MeasuredRoof, group: str, row: Row) -> Bar:
    flops = number(row["flops"])
    rate = number(row["flop_per_s"])
    ends = [known(flops / number(row[key])) for key in ("ci_high_s", "ci_low_s")]
    low, high = (None if end is None else end / TERA for end in ends)
    label = roof_label(roof.key, roof.dtype if roof.key == "tensor" else "")
    return Bar(label, rate / TERA, low, high, group, flop_rate(rate))


def l2_sweep(rows: list[Row], roofs: list[MeasuredRoof], l2_bytes: float) -> LineFigure | None:
    """Bandwidth against the bytes that are read again and again, the best shape at each size."""
    best = best_by_size([r for r in rows if text(r["level"]) == "l2" and number(r["bytes"]) > 0])
    lines = [line for line in best.items() if len(line[1]) >= 3]
    if not lines:
        return None
    dram = next((r for r in roofs if r.key == "dram" and r.kind == "read"), None)
    levels = ((dram.value / TERA, f"DRAM read {dram.value_text}"),) if dram else ()
    marks = ((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else ()
    return LineFigure(
        "l2-size",
        "L2 bandwidth against the bytes that are used again and again",
        "Lines: bandwidth by footprint, high while it fits into the L2, then falling to DRAM's",
        "Footprint",
        "Bandwidth (TB/s)",
        tuple(_rates(name, points) for name, points in lines),
        x_log=True,
        marks=marks,
        levels=levels,
        x_bytes=True,
        subtitle="The best launch shape at each footprint. The band is the 95 % interval.",
    )


def best_by_size(rows: Iterable[Row]) -> dict[str, list[tuple[float, Row]]]:
    """Return for each operation the fastest case at each size, smallest size first."""
    found: dict[str, dict[float, Row]] = defaultdict(dict)
    for row in rows:
        size = size_of(row)
        if not size > 0 or text(row["data"]) != "normal":
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


def _latency(rows: list[Row], l2_bytes: float) -> LineFigure | None:
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


def _strides(rows: list[Row]) -> LineFigure | None:
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


def _host(rows: list[Row]) -> LineFigure | None:
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


def _search(found: list[Search]) -> BarFigure | None:
    if not found:
        return None
    return BarFigure(
        "launch-shapes",
        "What a poor launch shape keeps of the best",
        "Bars: throughput of the poorest launch shape of each roof in per cent of the best",
        "Per cent of the best shape",
        tuple(
            Bar(
                search.roof.name,
                100 * search.kept,
                group="",
                text=f"{share(search.kept)}: {shape_text(search.poorest[1]['params'])}",
            )
            for search in found
        ),
        subtitle="The poorest of the launch shapes that were tried; the median is in the table.",
    )
