"""Figures of the staircase: latency and throughput against M, small batches, odd sizes."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.values import Text, Words
from nsight_prof.reports.studies.gemm_staircase.points import Curve
from nsight_prof.reports.studies.gemm_staircase.steps import Batches, OddSize, Staircase

MICRO, TERA = 1e6, 1e-12
MODEL = "tile model of Triton"


def charts(
    sweeps: Sequence[Curve],
    staircases: Sequence[Staircase],
    small: Sequence[Batches],
    odd: Sequence[OddSize],
    bandwidth: float | None,
) -> list[Chart]:
    """Return the figures that the cases allow."""
    figures: list[Chart] = []
    for dtype in dict.fromkeys(curve.dtype for curve in sweeps):
        fitted = next((found for found in staircases if found.curve.dtype == dtype), None)
        figures.append(_staircase([c for c in sweeps if c.dtype == dtype], fitted))
    if small:
        figures.append(_small(small, bandwidth))
    bars = [
        Bar(
            f"{size.base.dtype}, {size.label}",
            100 * size.point.rate / size.base.rate,
            group=size.base.name,
            text=quantity(size.point.rate / size.base.rate, "fraction", 3),
        )
        for size in odd
        if size.point is not None
    ]
    return [*figures, _odd(odd[0].base.shape, bars)] if bars else figures


def _staircase(sweeps: Sequence[Curve], fitted: Staircase | None) -> LineFigure:
    """Return latency over throughput of one dtype, with the steps that the tile model predicts."""
    times = [_series(curve, [p.seconds * MICRO for p in curve.points]) for curve in sweeps]
    rates = [_series(curve, [p.rate * TERA for p in curve.points]) for curve in sweeps]
    marks: tuple[tuple[float, Words], ...] = ()
    subtitle: Words = ""
    if fitted is not None:
        points, predicted = fitted.curve.points, fitted.predicted_as_measured()
        x = tuple(float(point.m) for point in points)
        modelled = [p.flops / t * TERA for p, t in zip(points, predicted, strict=True)]
        times.append(Series(MODEL, x, tuple(t * MICRO for t in predicted), group=MODEL))
        rates.append(Series(MODEL, x, tuple(modelled), group=MODEL))
        marks = tuple((edge + 0.5, _waves(fitted.waves_at(edge))) for edge in fitted.edges())
        subtitle = Text(
            "Pinned tile {tile}: each wave adds {time}. Marks: the largest M of each number of "
            "waves.",
            tile=fitted.tiling.name,
            time=quantity(fitted.waves.t_unit_s, "s", 3),
        )
    first = sweeps[0].points[0]
    active = [
        _series(curve, [point.tensor_pct for point in curve.points])
        for curve in sweeps
        if any(point.tensor_pct is not None for point in curve.points)
    ]
    return LineFigure(
        name=f"staircase-{first.dtype}",
        title=Text(
            "The staircase of wave quantization: {dtype}, N = {n_size}, K = {k_size}",
            dtype=first.dtype,
            n_size=f"{first.n}",
            k_size=f"{first.k}",
        ),
        alt="Panels against M: latency rises in steps; throughput and use of the "
        "Tensor Cores fall at each step and recover until the next",
        x_label="M, rows of A (tokens)",
        marks=marks,
        subtitle=subtitle,
        panels=(
            Panel("Latency, us", tuple(times)),
            Panel("Useful TFLOP/s", tuple(rates)),
            *([Panel("Tensor pipe active, %", tuple(active))] if active else ()),
        ),
    )


def _series(curve: Curve, values: Sequence[float | None]) -> Series:
    """Return the points that have a value."""
    pairs = [(float(p.m), y) for p, y in zip(curve.points, values, strict=True) if y is not None]
    label = curve.points[0].library
    x, y = tuple(m for m, _ in pairs), tuple(value for _, value in pairs)
    return Series(label, x, y, style="points", group=label)


def _waves(count: int) -> Text:
    return Text("{n} wave", "{n} waves", n=count)


def _small(small: Sequence[Batches], bandwidth: float | None) -> LineFigure:
    series = []
    for batch in small:
        x = tuple(float(point.m) for point in batch.cold.points)
        y = tuple(point.seconds * MICRO for point in batch.cold.points)
        low = tuple(point.low * MICRO for point in batch.cold.points)
        high = tuple(point.high * MICRO for point in batch.cold.points)
        name = batch.cold.name
        series.append(Series(name, x, y, low, high, group=name))
        if bandwidth:
            floor = tuple(point.moved / bandwidth * MICRO for point in batch.cold.points)
            label = Text(
                "{dtype}: bytes at {rate}",
                dtype=batch.cold.dtype,
                rate=quantity(bandwidth, "B/s", 3),
            )
            series.append(Series(label, x, floor, group=name))
    first = small[0].cold.points[0]
    return LineFigure(
        name="small-batches",
        title=Text(
            "Small batches: N = {n_size}, K = {k_size}, M from 1",
            n_size=f"{first.n}",
            k_size=f"{first.k}",
        ),
        alt="Latency against M from 1 to 64: nearly flat, since the weights are read once for all",
        x_label="M, rows of A (tokens)",
        y_label="Latency, us",
        series=tuple(series),
        subtitle="Dashed: the bytes of A, W and C at the DRAM roof that was measured on this GPU, "
        "else at the highest rate of any case of this run.",
    )


def _odd(base: str, bars: Sequence[Bar]) -> BarFigure:
    return BarFigure(
        name="odd-sizes",
        title=Text("Throughput next to {shape}", shape=base),
        alt="Bars: throughput of products with one odd size, in per cent of the even one",
        value_label=Text("Useful FLOP/s, % of those at {shape}", shape=base),
        bars=tuple(bars),
    )
