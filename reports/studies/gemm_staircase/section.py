"""The section of the target gemm_staircase, and its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.cells import grouped
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.page import Json, Number, Section, Text, Verbatim, arranged
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series, line
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.studies.gemm_staircase.findings import findings
from nsight_prof.reports.studies.gemm_staircase.points import (
    TARGET,
    Batches,
    Curve,
    Measured,
    Point,
    Staircase,
    measured,
    worst_step,
)
from nsight_prof.reports.studies.gemm_staircase.tables import tables
from nsight_prof.reports.studies.gemm_staircase.tile_model import Fit

INTRO = Text(
    "A GPU computes a matrix product in tiles, as many at a time as fit on its SMs: a wave. A last "
    "wave that is not full takes as long as a full one, so that latency rises in steps. Here M is "
    "swept in steps of one row around these edges, in the tile that cuBLAS chooses for each size "
    "and in one that is always the same (Triton)."
)
METHOD = (
    Text(
        "C (M, N) = A (M, K) W (N, K)^T, row-major, bf16 result, sums in fp32; fp8 is e4m3 with "
        "scales of 1 and cuBLAS' fast accumulation. FLOPs are 2MNK, bytes are A, W and C once."
    ),
    Text(
        "Cold: the operands of a call were not used by the calls before it, as the weights of a "
        "layer are not. Each process measures the sizes in another order."
    ),
    Text("The pinned kernel's result was compared with torch's for each size before it was timed."),
    Text(
        "tiles = ceil(M/Tm) ceil(N/Tn); waves = ceil(tiles / slots); slots = SMs x CTAs per SM; t "
        "= t0 + waves x t(wave), fitted by least squares of the relative error. B is the highest "
        "rate of bytes of any case of this run."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section; None for a run without such cases."""
    found = measured(run)
    if found is None:
        return None
    roof = ceilings(run.roofs).memory.get("dram")
    is_measured = roof is not None and roof.source == "measured"
    return Section(
        TARGET,
        Text("The staircase of matrix products"),
        arranged(
            [INTRO],
            (*findings(found), oscillation.finding(found.delays)),
            charts(found, roof.value if roof and is_measured else found.bandwidth),
            tables(found),
            (*METHOD, *_caveats(found)),
        ),
        numbers=_numbers(found),
    )


def _caveats(found: Measured) -> list[Text]:
    caveats = []
    clocks = sorted({s.clock_hz for s in found.staircases if s.clock_hz})
    if clocks:
        caveats.append(
            Text(
                "For the fit, times were scaled to one SM clock ({clocks}, the median of the "
                "sweep); tables and figures show them as measured, and figures the model at the "
                "clock of each size.",
                clocks=[Number(clock, "Hz", digits=3) for clock in clocks],
            )
        )
    if found.sms is None:
        caveats.append(
            Text("The run does not tell the number of SMs: no waves, and no tile model.")
        )
    reasons = Counter((r.dtype, r.variant, r.status, r.reason) for r in found.refused)
    return caveats + [
        Text(
            "{dtype}, {variant}: {n} size {status} ({reason}).",
            "{dtype}, {variant}: {n} sizes {status} ({reason}).",
            dtype=dtype,
            variant=variant,
            n=count,
            status=status,
            reason=Verbatim(reason),
        )
        for (dtype, variant, status, reason), count in reasons.items()
    ]


def _numbers(measured: Measured) -> dict[str, Json]:
    return {
        "fits": [
            {"dtype": s.curve.dtype, "variant": s.curve.variant, "clock_hz": s.clock_hz} | _fit(fit)
            for s in measured.staircases
            for fit in s.fits
        ],
        "worst_steps": [
            {"dtype": curve.dtype, "variant": curve.variant, "m": step.after.m, "loss": step.loss}
            for curve in measured.sweeps
            if (step := worst_step(curve)) is not None
        ],
        "best": [
            {
                "dtype": point.dtype,
                "variant": point.variant,
                "flop_per_s": point.rate,
                **{side: getattr(point, side) for side in "mnk"},
            }
            for curve in measured.sweeps
            for point in [curve.fastest]
        ],
        "batches": [
            {"dtype": p.dtype, "m": p.m, "s": p.seconds, "extra": batch.extra(p).value}
            for batch in measured.small
            for p in batch.cold.points
        ],
        "odd_sizes": [
            {"dtype": size.base.dtype, "side": size.side, "size": size.size, "loss": size.loss}
            for size in measured.odd
        ],
        "delay_factors": oscillation.numbers(measured.delays),
    }


def _fit(fit: Fit) -> dict[str, Json]:
    names = ("model", "slots", "bandwidth", "points", "t0_s", "t_unit_s")
    intervals = {key: list(getattr(fit, key)) for key in ("t0_interval_s", "t_unit_interval_s")}
    return {key: getattr(fit, key) for key in names} | intervals | asdict(fit.quality)


MICRO, TERA = 1e6, 1e-12
MODEL = "tile model of Triton"


def charts(measured: Measured, bandwidth: float | None) -> Iterator[Chart]:
    """Yield the figures that the cases allow; `bandwidth` is that of the floor of bytes."""
    for dtype, sweeps in grouped(measured.sweeps, lambda curve: curve.dtype).items():
        fitted = next((s for s in measured.staircases if s.curve.dtype == dtype), None)
        yield _staircase(sweeps, fitted)
    if measured.small:
        yield _small(measured.small, bandwidth)
    bars = [
        Bar(
            f"{size.base.dtype}, {size.label}",
            100 * size.point.rate / size.base.rate,
            group=size.base.name,
            text=quantity(size.point.rate / size.base.rate, "fraction", 3),
        )
        for size in measured.odd
        if size.point is not None
    ]
    if bars:
        base = measured.odd[0].base.shape
        yield BarFigure(
            name="odd-sizes",
            title=Text("Throughput next to {shape}", shape=base),
            alt="Bars: throughput of products with one odd size, in per cent of the even one",
            value_label=Text("Useful FLOP/s, % of those at {shape}", shape=base),
            bars=tuple(bars),
        )


def _staircase(sweeps: Sequence[Curve], fitted: Staircase | None) -> LineFigure:
    """Return latency over throughput of one dtype, with the steps that the tile model predicts."""
    times = [_points(curve, lambda p: p.seconds * MICRO) for curve in sweeps]
    rates = [_points(curve, lambda p: p.rate * TERA) for curve in sweeps]
    marks: tuple[tuple[float, Words], ...] = ()
    subtitle: Words = ""
    if fitted is not None:
        predicted = fitted.predicted_as_measured()
        modelled = partial(line, MODEL, predicted, lambda of: of[0].m, group=MODEL)
        times.append(modelled(lambda of: of[1] * MICRO))
        rates.append(modelled(lambda of: of[0].flops / of[1] * TERA))
        marks = tuple((edge + 0.5, Text("{n} wave", "{n} waves", n=fitted.waves_at(edge)))
                      for edge in fitted.edges())  # fmt: skip
        subtitle = Text(
            "Pinned tile {tile}: each wave adds {time}. Marks: the largest M of each number of "
            "waves.",
            tile=fitted.tiling.name,
            time=quantity(fitted.waves.t_unit_s, "s", 3),
        )
    first = sweeps[0].points[0]
    counted = [replace(c, points=tuple(p for p in c.points if p.tensor)) for c in sweeps]
    active = [_points(c, lambda p: p.tensor_pct or 0.0) for c in counted if c.points]
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


def _points(curve: Curve, y: Callable[[Point], float]) -> Series:
    label = curve.points[0].library
    return line(label, curve.points, lambda p: p.m, y, style="points", group=label)


def _small(small: Sequence[Batches], bandwidth: float | None) -> LineFigure:
    def size(point: Point) -> float:
        return point.m

    series = []
    for batch in small:
        points, name = batch.cold.points, batch.cold.name
        columns = (
            size,
            lambda p: p.seconds * MICRO,
            lambda p: p.low * MICRO,
            lambda p: p.high * MICRO,
        )
        series.append(line(name, points, *columns, group=name))
        if bandwidth:
            label = Text(
                "{dtype}: bytes at {rate}",
                dtype=batch.cold.dtype,
                rate=quantity(bandwidth, "B/s", 3),
            )
            floor = line(label, points, size, lambda p: p.bytes / bandwidth * MICRO, group=name)
            series.append(floor)
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
