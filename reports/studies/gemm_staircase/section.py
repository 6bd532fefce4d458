"""The section of the target gemm_staircase, and its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.page import Json, Number, Section, Text, Verbatim, arranged
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.studies.gemm_staircase.findings import Measured, findings
from nsight_prof.reports.studies.gemm_staircase.points import (
    TARGET,
    Batches,
    Curve,
    OddSize,
    Refused,
    Staircase,
    batches,
    curves,
    delay,
    highest_rate,
    odd_sizes,
    read_points,
    sm_count,
    staircase,
    worst_step,
)
from nsight_prof.reports.studies.gemm_staircase.tables import (
    batch_table,
    fit_table,
    odd_table,
    parameter_table,
    size_tables,
    step_table,
)
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
    points, refused = read_points(run)
    if not points and not refused:
        return None
    sms, bandwidth = sm_count(run), highest_rate(points)
    roof = ceilings(run.roofs).memory.get("dram")
    measured_roof = roof.value if roof is not None and roof.source == "measured" else None
    sweeps = curves(points)
    fitted = [found for curve in sweeps if (found := staircase(curve, sms, bandwidth))]
    measured = Measured(sweeps, fitted, batches(points), odd_sizes(points, refused), sms)
    delays = [delayed for curve in sweeps if (delayed := delay(curve, fitted, sms)) is not None]
    tables = (
        *size_tables(sweeps, fitted, sms),
        step_table(sweeps, fitted),
        fit_table(fitted),
        parameter_table(fitted),
        oscillation.table(delays),
        batch_table(measured.small),
        odd_table(measured.odd),
    )
    return Section(
        TARGET,
        Text("The staircase of matrix products"),
        arranged(
            [INTRO],
            (*findings(measured), oscillation.finding(delays)),
            charts(sweeps, fitted, measured.small, measured.odd, measured_roof or bandwidth),
            tables,
            (*METHOD, *_caveats(fitted, refused, sms)),
        ),
        numbers=_numbers(measured) | {"delay_factors": oscillation.numbers(delays)},
    )


def _caveats(
    fitted: Sequence[Staircase], refused: Sequence[Refused], sms: int | None
) -> list[Text]:
    caveats = []
    clocks = sorted({found.clock_hz for found in fitted if found.clock_hz})
    if clocks:
        caveats.append(
            Text(
                "For the fit, times were scaled to one SM clock ({clocks}, the median of the "
                "sweep); tables and figures show them as measured, and figures the model at the "
                "clock of each size.",
                clocks=[Number(clock, "Hz", digits=3) for clock in clocks],
            )
        )
    if sms is None:
        caveats.append(
            Text("The run does not tell the number of SMs: no waves, and no tile model.")
        )
    reasons = Counter((r.dtype, r.variant, r.status, r.reason) for r in refused)
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
    steps = [(curve, worst_step(curve)) for curve in measured.sweeps]
    return {
        "fits": [
            {"dtype": s.curve.dtype, "variant": s.curve.variant, "clock_hz": s.clock_hz} | _fit(fit)
            for s in measured.staircases
            for fit in s.fits
        ],
        "worst_steps": [
            {"dtype": curve.dtype, "variant": curve.variant, "m": step.after.m, "loss": step.loss}
            for curve, step in steps
            if step is not None
        ],
        "best": [_best(curve) for curve in measured.sweeps],
        "batches": [
            {"dtype": p.dtype, "m": p.m, "s": p.seconds, "extra": batch.extra(p).value}
            for batch in measured.small
            for p in batch.cold.points
        ],
        "odd_sizes": [
            {"dtype": size.base.dtype, "side": size.side, "size": size.size, "loss": size.loss}
            for size in measured.odd
        ],
    }


def _fit(fit: Fit) -> dict[str, Json]:
    sizes = {key: getattr(fit, key) for key in ("model", "slots", "bandwidth", "points")}
    times = {
        "t0_s": fit.t0_s,
        "t0_interval_s": list(fit.t0_interval_s),
        "t_unit_s": fit.t_unit_s,
        "t_unit_interval_s": list(fit.t_unit_interval_s),
    }
    return sizes | times | asdict(fit.quality)


def _best(curve: Curve) -> dict[str, Json]:
    point = curve.fastest
    shape = {"m": point.m, "n": point.n, "k": point.k}
    return {"dtype": point.dtype, "variant": point.variant, "flop_per_s": point.rate} | shape


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
        marks = tuple((edge + 0.5, Text("{n} wave", "{n} waves", n=fitted.waves_at(edge)))
                      for edge in fitted.edges())  # fmt: skip
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
