"""Figures of the measured roofs: the roofline, bars of roofs, bursts, data."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.build.roofline import LEVELS
from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.cases.roofs import ARITHMETIC, MEMORY, MeasuredRoof
from nsight_prof.reports.cases.rows import data_pairs, shape_text, slowdown
from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    Chart,
    Roof,
    RooflineFigure,
    RooflinePanel,
    ridges,
)
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.studies.roofline.sweeps import (
    TERA,
    host_sweep,
    l2_chart,
    latency_sweep,
    stride_sweep,
)

DIGITS = 3


def charts(
    rows: Sequence[Row], roofs: Sequence[MeasuredRoof], l2_bytes: float
) -> tuple[Chart | None, ...]:
    """Return the figures that the cases allow; `l2_bytes` is NaN where it is not known."""
    return (
        _roofline(roofs),
        _memory(roofs),
        _duration(roofs),
        _data(rows),
        l2_chart(rows, roofs, l2_bytes),
        latency_sweep(rows, l2_bytes),
        stride_sweep(rows),
        host_sweep(rows),
    )


def _roofline(roofs: Sequence[MeasuredRoof]) -> RooflineFigure | None:
    ceilings = [roof for roof in roofs if roof.is_ceiling]
    memory = [_line(roof) for level in LEVELS for roof in ceilings if roof.key == level]
    compute = [_line(roof) for roof in ceilings if roof.key in ARITHMETIC]
    compute.sort(key=lambda roof: -roof.value)
    if not memory or not compute:
        return None
    title = "Measured roofline"
    return RooflineFigure(
        "roofline-measured",
        title,
        "Roofline: measured bandwidths as slopes, measured peaks as level lines",
        RooflinePanel(
            "measured", title, tuple(memory), tuple(compute), ridges(memory, compute), ()
        ),
        subtitle="A slope is the bandwidth of a memory level, a level line the peak of a pipe, "
        "each as measured. Diamonds are ridge points: left of one the level limits, right of it "
        "the pipe.",
    )


def _line(roof: MeasuredRoof) -> Roof:
    dtype = roof.dtype if roof.key == "tensor" else ""
    hertz = known(roof.clock_hz)
    return Roof(roof.key, dtype, roof.label, roof.value, roof.unit, "", hertz, roof.reason)


def _memory(roofs: Sequence[MeasuredRoof]) -> BarFigure | None:
    bars = [
        _bar(roof.name, roof.label, roof, f"{_value(roof)}{_fraction(roof)}")
        for roof in roofs
        if roof.key in MEMORY and roof.unit == "B/s"
    ]
    return BarFigure(
        "memory-roofs",
        "Bandwidth of each memory level and access pattern",
        "Bars: measured bandwidth of DRAM, L2, L1 and shared memory by kind of access",
        "Bandwidth (TB/s)",
        tuple(bars),
        subtitle="The best launch shape of each. Lines at the ends are 95 % intervals.",
    ) if bars else None  # fmt: skip


def _bar(label: str, group: str, roof: MeasuredRoof, words: str) -> Bar:
    low, high = (None if known(end) is None else end / TERA for end in (roof.low, roof.high))
    return Bar(label, roof.value / TERA, low, high, group, words)


def _value(roof: MeasuredRoof) -> str:
    return quantity(roof.value, roof.unit, DIGITS)


def _fraction(roof: MeasuredRoof) -> str:
    if known(roof.of_datasheet) is not None:
        return f", {quantity(roof.of_datasheet, 'fraction', DIGITS)} of datasheet"
    if known(roof.of_counters) is not None:
        return f", {quantity(roof.of_counters, 'fraction', DIGITS)} of the counters' peak"
    return ""


def _clock(hertz: float) -> str:
    return quantity(hertz, "Hz", DIGITS) if known(hertz) is not None else "an unknown clock"


def _duration(roofs: Sequence[MeasuredRoof]) -> BarFigure | None:
    """Return bars of burst and steady for each pipe and type that has both, the fastest first."""
    steady = {(r.key, r.dtype): r for r in roofs if r.kind == "steady" and r.case}
    bars = [
        _bar(burst.label, group, roof, f"{_value(roof)} at {_clock(roof.clock_hz)}")
        for burst in sorted(roofs, key=lambda roof: -roof.value)
        if burst.kind in ("burst", "fma") and burst.case and (burst.key, burst.dtype) in steady
        for group, roof in (("burst", burst), ("steady", steady[burst.key, burst.dtype]))
    ]
    return BarFigure(
        "burst-steady",
        "What lasting load costs: bursts against steady load",
        "Bars: FLOP/s of each pipe in bursts and under steady load",
        "Throughput (TFLOP/s)",
        tuple(bars),
        subtitle="Burst: the first 20 ms after a pause (FP16 to FP64: short samples). Steady: "
        "after 2 s of load. Behind each bar: the SM clock.",
    ) if bars else None  # fmt: skip


def _data(rows: Sequence[Row]) -> BarFigure | None:
    """Return bars of the throughput on zeros, 100 % being that on random data."""
    pairs = sorted(data_pairs(rows), key=lambda pair: -slowdown(pair))
    return BarFigure(
        "zeros",
        "What data cost: zeros against random data",
        "Bars: throughput on zeros in per cent of that on random data",
        "Throughput on zeros (% of that on random data)",
        tuple(_data_bar(pair) for pair in pairs),
        levels=((100.0, "random data"),),
        subtitle="Zeros flip no bits: they draw less power and leave a higher clock.",
    ) if pairs else None  # fmt: skip


def _data_bar(pair: tuple[Row, Row]) -> Bar:
    random, zeros = (_clock(number(row["clock_hz"])) for row in pair)
    clocks = f"both at {zeros}" if zeros == random else f"{zeros} against {random}"
    row, speed = pair[0], slowdown(pair)
    size = shape_text(row["params"]) if "m" in row["params"] else ""
    name = f"{text(row['operation'])} {size}".strip()
    return Bar(name, 100 * speed, text=f"{quantity(speed, 'fraction', DIGITS)}, {clocks}")
