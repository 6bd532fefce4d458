"""Figures of the measured roofs: the roofline itself, sweeps of size, burst against steady."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsight_prof.parsers.build.roofline import LEVELS, ridge
from nsight_prof.parsers.cells import Row, known, text
from nsight_prof.reports.bench.cases import measured, params_of, ratio, shape_text
from nsight_prof.reports.bench.roofline_sweeps import (
    TERA,
    host_sweep,
    l2_sweep,
    latency_sweep,
    stride_sweep,
)
from nsight_prof.reports.bench.roofs import ARITHMETIC, MeasuredRoof, Search
from nsight_prof.reports.figure_models import Ridge, Roof, RooflinePanel
from nsight_prof.reports.figure_views import roof_label
from nsight_prof.reports.formats import clock, share, significant
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, RooflineFigure


def figures(
    rows: list[Row], roofs: list[MeasuredRoof], found: list[Search], l2_bytes: float
) -> tuple[Chart, ...]:
    """Return the figures that the cases allow; `l2_bytes` is NaN where it is not known."""
    rows = measured(rows)
    made = (
        _roofline(roofs),
        _memory(roofs),
        _duration(roofs),
        _data(rows),
        l2_sweep(rows, roofs, l2_bytes),
        latency_sweep(rows, l2_bytes),
        stride_sweep(rows),
        host_sweep(rows),
        _search(found),
    )
    return tuple(figure for figure in made if figure is not None)


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
    label = roof_label(roof.key, dtype)
    hertz = known(roof.clock_hz)
    return Roof(roof.key, dtype, label, roof.value, roof.unit, "", hertz, roof.reason)


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
    ends = _scaled(roof.low), _scaled(roof.high)
    return Bar(roof.name, roof.value / TERA, *ends, roof_label(roof.key, ""), words)


def _duration(roofs: list[MeasuredRoof]) -> BarFigure | None:
    """Bars of burst and steady for each pipe and type that has both, the fastest first."""
    bars: list[Bar] = []
    for roof in sorted(roofs, key=lambda r: -r.value):
        steady = [
            r for r in roofs if r.kind == "steady" and (r.key, r.dtype) == (roof.key, roof.dtype)
        ]
        if roof.kind in ("burst", "fma") and roof.case and steady and steady[0].case:
            bars += [_rate_bar(roof, "burst", roof), _rate_bar(roof, "steady", steady[0])]
    if not bars:
        return None
    return BarFigure(
        "burst-steady",
        "What lasting load costs: bursts against steady load",
        "Bars: FLOP/s of each pipe in bursts and under steady load",
        "Throughput (TFLOP/s)",
        tuple(bars),
        subtitle="Burst: the first 20 ms after a pause (FP16 to FP64: short samples). Steady: "
        "after 2 s of load. Behind each bar: the SM clock.",
    )


def _rate_bar(roof: MeasuredRoof, group: str, shown: MeasuredRoof) -> Bar:
    words = f"{shown.value_text} at {clock(shown.clock_hz)}"
    label = roof_label(roof.key, roof.dtype if roof.key == "tensor" else "")
    return Bar(label, shown.value / TERA, _scaled(shown.low), _scaled(shown.high), group, words)


def _scaled(value: float) -> float | None:
    return None if known(value) is None else value / TERA


def data_pairs(rows: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Return the cases on random data that have a twin on zeros, with the twin."""
    rows = list(rows)
    pairs = [(row, zeros_twin(row, rows)) for row in rows if row["data"] == "normal"]
    return [(row, twin) for row, twin in pairs if twin is not None]


def pace(pair: tuple[Row, Row]) -> float:
    """Return the time on random data over that on zeros: how many times as fast zeros are."""
    return ratio(pair[0]["median_s"], pair[1]["median_s"])


def _data(rows: list[Row]) -> BarFigure | None:
    """Bars of the pace on zeros, 100 % being that on random data."""
    pairs = sorted(data_pairs(rows), key=lambda pair: -pace(pair))
    if not pairs:
        return None
    return BarFigure(
        "zeros",
        "What data cost: zeros against random data",
        "Bars: throughput on zeros in per cent of that on random data",
        "Throughput on zeros (% of that on random data)",
        tuple(_data_bar(pair) for pair in pairs),
        levels=((100.0, "random data"),),
        subtitle="Zeros flip no bits: they draw less power and leave a higher clock.",
    )


def _data_bar(pair: tuple[Row, Row]) -> Bar:
    row, zeros = pair
    clocks = [clock(r["clock_hz"]) for r in (zeros, row)]
    same = clocks[0] == clocks[1]
    at = f"both at {clocks[0]}" if same else f"{clocks[0]} against {clocks[1]}"
    size = f" {shape_text(row['params'])}" if "m" in row["params"] else ""
    name = f"{text(row['operation'])}{size}"
    return Bar(name, 100 * pace(pair), text=f"{significant(100 * pace(pair))} %, {at}")


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


def _search(found: list[Search]) -> BarFigure | None:
    found = [search for search in found if search.roof.key != "tensor"]
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
