"""The figures of the staircase: latency and throughput against M, small batches, odd sizes."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.reports.bench.gemm_staircase_points import Curve
from nsight_prof.reports.bench.gemm_staircase_steps import Batches, OddSize, Staircase
from nsight_prof.reports.formats import byte_rate, counted, percent, seconds
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series

MICRO, TERA = 1e6, 1e-12


def figures(
    sweeps: Sequence[Curve],
    staircases: Sequence[Staircase],
    sets: Sequence[Batches],
    odd: Sequence[OddSize],
    bandwidth: float | None,
) -> tuple[Chart, ...]:
    """Return what the cases allow."""
    found: list[Chart] = []
    for dtype in dict.fromkeys(curve.dtype for curve in sweeps):
        own = [curve for curve in sweeps if curve.dtype == dtype]
        fitted = next((one for one in staircases if one.curve.dtype == dtype), None)
        found.append(_staircase(dtype, own, fitted))
    if sets:
        found.append(_small(sets, bandwidth))
    return (*found, *_odd(odd))


def _staircase(dtype: str, sweeps: Sequence[Curve], fitted: Staircase | None) -> LineFigure:
    """Return latency over throughput of one dtype, with the steps that the tile model predicts."""
    times = [_measured(curve, [p.seconds * MICRO for p in curve.points]) for curve in sweeps]
    rates = [_measured(curve, [p.rate * TERA for p in curve.points]) for curve in sweeps]
    marks: tuple[tuple[float, str], ...] = ()
    words = ""
    if fitted is not None:
        model, label = fitted.waves, "tile model of Triton"
        predicted = fitted.predicted_as_measured()
        times.append(_model(fitted, label, [t * MICRO for t in predicted]))
        pairs = zip(fitted.curve.points, predicted, strict=True)
        rates.append(_model(fitted, label, [p.flops / t * TERA for p, t in pairs]))
        marks = tuple((edge + 0.5, _waves(fitted, edge)) for edge in fitted.edges())
        words = (
            f"Pinned tile {fitted.tiling.tile_m}x{fitted.tiling.tile_n}: each wave adds "
            f"{seconds(model.t_unit_s)}. Marks: the largest M of each number of waves."
        )
    first = sweeps[0].points[0]
    return LineFigure(
        name=f"staircase-{dtype}",
        title=f"The staircase of wave quantization: {dtype}, N = {first.n}, K = {first.k}",
        alt=f"Panels against M, {dtype}: latency rises in steps; throughput and use of the Tensor "
        "Cores fall at each step and recover until the next",
        x_label="M, rows of A (tokens)",
        marks=marks,
        subtitle=words,
        panels=(
            Panel("Latency, us", tuple(times)),
            Panel("Useful TFLOP/s", tuple(rates)),
            *_tensor_panel(sweeps),
        ),
    )


def _measured(curve: Curve, values: Sequence[float]) -> Series:
    label = curve.what.removesuffix(f" {curve.dtype}")
    return Series(label, tuple(float(p.m) for p in curve.points), tuple(values), style="points",
                  group=label)  # fmt: skip


def _tensor_panel(sweeps: Sequence[Curve]) -> list[Panel]:
    """Return the use of the Tensor Cores at the sizes that have counters."""
    series = []
    for curve in sweeps:
        points = [point for point in curve.points if point.tensor_pct is not None]
        if points:
            known = Curve(curve.dtype, curve.variant, tuple(points))
            series.append(_measured(known, [point.tensor_pct or 0.0 for point in points]))
    return [Panel("Tensor pipe active, %", tuple(series))] if series else []


def _model(fitted: Staircase, label: str, values: Sequence[float]) -> Series:
    x = tuple(float(point.m) for point in fitted.curve.points)
    return Series(label, x, tuple(values), style="line", group=label)


def _waves(fitted: Staircase, edge: int) -> str:
    return counted(fitted.tiling.waves(edge, fitted.waves.slots), "wave")


def _small(sets: Sequence[Batches], bandwidth: float | None) -> LineFigure:
    series = []
    for one in sets:
        x = tuple(float(point.m) for point in one.points)
        low = tuple(point.low * MICRO for point in one.points)
        high = tuple(point.high * MICRO for point in one.points)
        what = one.points[0].what
        y = tuple(point.seconds * MICRO for point in one.points)
        series.append(Series(what, x, y, low, high, group=what))
        if bandwidth:
            floor = tuple(point.moved / bandwidth * MICRO for point in one.points)
            series.append(Series(f"{one.dtype}: bytes at {byte_rate(bandwidth)}", x, floor,
                                 group=what))  # fmt: skip
    first = sets[0].points[0]
    return LineFigure(
        name="small-batches",
        title=f"Small batches: N = {first.n}, K = {first.k}, M from 1",
        alt="Latency against M from 1 to 64: nearly flat, since the weights are read once for all",
        x_label="M, rows of A (tokens)",
        y_label="Latency, us",
        series=tuple(series),
        subtitle="Dashed: the bytes of A, W and C at the highest rate of any case of this run.",
    )


def _odd(odd: Sequence[OddSize]) -> list[Chart]:
    bars = [
        Bar(
            f"{one.base.dtype}, {one.side.upper()} = {one.size}",
            100 * one.point.rate / one.base.rate,
            group=one.base.what,
            text=percent(100 * one.point.rate / one.base.rate),
        )
        for one in odd
        if one.point is not None
    ]
    if not bars:
        return []
    base = odd[0].base
    whole = f"{base.m} x {base.n} x {base.k}"
    return [
        BarFigure(
            name="odd-sizes",
            title=f"Throughput next to {whole}",
            alt="Bars: throughput of products with one odd size, in per cent of the even one",
            value_label=f"Useful FLOP/s, % of those at {whole}",
            bars=tuple(bars),
        )
    ]
