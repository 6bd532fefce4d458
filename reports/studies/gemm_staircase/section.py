"""The section of the target gemm_staircase, with its tables and figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.cells import grouped
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Json,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    arranged,
)
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series, line
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.studies.gemm_staircase.findings import MODELS, findings
from nsight_prof.reports.studies.gemm_staircase.points import (
    TARGET,
    Batches,
    Curve,
    Measured,
    OddSize,
    Point,
    Staircase,
    Step,
    measured,
    worst_step,
)
from nsight_prof.reports.studies.gemm_staircase.tile_model import Fit, Quality, Tiling

SENTENCES = Sentences("gemm_staircase")

INTRO = SENTENCES.text("intro")
METHOD = SENTENCES.texts("method")


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
            SENTENCES.text(
                "caveats",
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
            **SENTENCES.chart("odd-sizes"),
            title=Text("Throughput next to {shape}", shape=base),
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
        times.append(line(MODEL, predicted, _size, lambda of: of[1] * MICRO, group=MODEL))
        rates.append(
            line(MODEL, predicted, _size, lambda of: of[0].flops / of[1] * TERA, group=MODEL)
        )
        marks = tuple((edge + 0.5, Text("{n} wave", "{n} waves", n=fitted.waves_at(edge)))
                      for edge in fitted.edges())  # fmt: skip
        subtitle = SENTENCES.text(
            "staircase",
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


def _size(predicted: tuple[Point, float]) -> float:
    return predicted[0].m


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
        **SENTENCES.chart("small-batches"),
        title=Text(
            "Small batches: N = {n_size}, K = {k_size}, M from 1",
            n_size=f"{first.n}",
            k_size=f"{first.k}",
        ),
        series=tuple(series),
    )


Row = tuple[Staircase, int, list[Step | None]]
CHOSEN = (64, 128)
"""M that are shown with the edges."""


def tables(measured: Measured) -> Iterator[Table[Any]]:
    """Yield all tables, some without rows."""
    yield from _sizes(measured)
    yield _steps(measured)
    yield _fits(measured.staircases)
    yield _parameters(measured.staircases)
    yield oscillation.table(measured.delays)
    yield _batches(measured.small)
    yield _odd(measured.odd)


def _sizes(measured: Measured) -> Iterator[Table[Any]]:
    """Yield one table per dtype: each kernel on both sides of the edges."""
    sms, staircases = measured.sms, measured.staircases
    slots = {s.curve.name: s.waves.slots for s in staircases}

    def of_waves(cell: Callable[[Point, Tiling, int], Value]) -> Callable[[Point], Value | None]:
        def counted(point: Point) -> Value | None:
            at_once = slots.get(point.name, sms)
            return cell(point, point.tiling, at_once) if point.tiling and at_once else None

        return counted

    columns = [
        Column[Point](
            Text("Kernel, tile"),
            lambda point: f"{point.library} {point.tiling.name}" if point.tiling else point.library,
        ),
        Column(Text("M"), lambda point: point.m),
        Column(Text("Latency"), lambda point: point.time),
        Column(Text("Throughput"), lambda point: point.throughput, "TFLOP/s"),
        Column(
            Text("Throughput per SM"),
            lambda point: Number(point.rate / sms, "FLOP/s") if sms else None,
            "TFLOP/s",
        ),
        Column(
            Text("SM clock"), lambda point: Number(point.clock_hz, "Hz") if point.clock_hz else None
        ),
        Column(Text("Tensor pipe"), lambda point: point.tensor),
        Column(Text("Waves"), of_waves(lambda point, tiling, n: tiling.waves(point.m, n))),
        Column(Text("Tiles"), lambda p: p.tiling.tiles(p.m) if p.tiling else None),
        Column(
            Text("Tail efficiency"),
            of_waves(
                lambda point, tiling, n: Number(tiling.tail_efficiency(point.m, n), "fraction")
            ),
        ),
        Column(
            Text("Tile use"),
            lambda p: Number(p.tiling.tile_efficiency(p.m), "fraction") if p.tiling else None,
        ),
    ]
    note: Text | None = SENTENCES.text("sizes")
    for dtype, sweeps in grouped(measured.sweeps, lambda curve: curve.dtype).items():
        sizes = _chosen(sweeps, [s for s in staircases if s.curve.dtype == dtype])
        first = sweeps[0].points[0]
        yield Table(
            f"gemm-sizes-{dtype}",
            Text(
                "{dtype}, N = {n}, K = {k}: both sides of the edges",
                dtype=dtype,
                n=str(first.n),
                k=str(first.k),
            ),
            columns,
            [point for curve in sweeps for point in curve.points if point.m in sizes],
            note=note,
            refs=lambda point: [point.ref],
        )
        note = None


def _chosen(sweeps: Sequence[Curve], staircases: Sequence[Staircase]) -> set[int]:
    """Return the M to show: both sides of the edges of wave 1, 2, 4, ..., or evenly spread ones."""
    # All edges stand in the table of steps.
    edges = [e for s in staircases for e in s.edges() if s.waves_at(e).bit_count() == 1]
    if edges:
        return {*CHOSEN, *edges, *(edge + 1 for edge in edges)}
    sizes = sorted({point.m for curve in sweeps for point in curve.points})
    return set(sizes[:: max(1, len(sizes) // 12)])


def _steps(measured: Measured) -> Table[Row]:
    """Return what one row more costs at each edge of a wave, predicted and measured."""
    # A pinned tile, the last row of a wave, and the step there at one clock, as measured, and by
    # the library.
    rows = [
        (s, m, [curve.step(m) if curve else None for curve in (s.curve, s.measured, library)])
        for s in measured.staircases
        for library in [measured.library_of(s)]
        for m in s.edges()
    ]
    inside = [
        Text("{dtype} {loss}", dtype=s.curve.dtype, loss=Number(loss, "fraction"))
        for s in measured.staircases
        if (loss := s.median_loss(s.tile_edges())) is not None
    ]
    note = Text(
        "At one clock: a fuller wave draws more power, and under a power cap the clock gives way."
    )
    if inside:
        note = SENTENCES.text(
            "steps",
            inside=inside,
        )

    def cost(heading: Text, n: int) -> Column[Row]:
        return Column(
            heading, lambda row: row[2][n].cost if row[2][n] else Number(None, "fraction")
        )

    return Table(
        "gemm-steps",
        Text("What one row more costs where a wave ends"),
        [
            Column[Row](Text("dtype"), lambda row: row[0].curve.dtype),
            Column(Text("M"), lambda row: f"{row[1]} to {row[1] + 1}"),
            Column(
                Text("Waves of the pinned tile"),
                lambda row: f"{row[0].waves_at(row[1])} to {row[0].waves_at(row[1] + 1)}",
            ),
            Column(
                Text("Tile model"), lambda row: Number(row[0].predicted_loss(row[1]), "fraction")
            ),
            cost(Text("Pinned tile, at one clock"), 0),
            cost(Text("Pinned tile, as measured"), 1),
            cost(Text("cuBLAS, as measured"), 2),
        ],
        rows,
        note=note,
        refs=lambda row: [step.after.ref for step in row[2][1:] if step],
    )


def _fits(staircases: Sequence[Staircase]) -> Table[Any]:
    """Return how well the tile model and its controls predict the pinned kernel."""
    rows: list[tuple[Staircase, Text, Quality]] = []
    for staircase in staircases:
        for fit in staircase.fits:
            rows.append((staircase, MODELS[fit.model], fit.quality))
            if fit is staircase.waves and staircase.unscaled:
                label = Text("{model}, times as measured", model=MODELS[fit.model])
                rows.append((staircase, label, staircase.unscaled))

    def error(heading: Text, field: str) -> Column[tuple[Staircase, Text, Quality]]:
        return Column(heading, lambda row: Number(getattr(row[2], field), "fraction"))

    return Table(
        "gemm-fits",
        Text("How well the tile model predicts the pinned kernel"),
        [
            Column[tuple[Staircase, Text, Quality]](Text("dtype"), lambda row: row[0].curve.dtype),
            Column(Text("Time grows with"), lambda row: row[1]),
            error(Text("Median error"), "median_error"),
            error(Text("p90 error"), "p90_error"),
            error(Text("Worst error"), "worst_error"),
            Column(Text("R^2"), lambda row: Number(row[2].r_squared), digits=4),
            Column(Text("Sizes"), lambda row: row[0].waves.points),
        ],
        rows,
        note=SENTENCES.note("gemm-fits"),
    )


def _parameters(staircases: Sequence[Staircase]) -> Table[Staircase]:
    """Return the parameters of the tile model with their intervals."""

    def rate_per_sm(staircase: Staircase) -> Number:
        tile = staircase.tiling.tile_m * staircase.tiling.tile_n
        flops = 2.0 * tile * staircase.curve.points[0].k * staircase.ctas_per_sm
        unit_s = staircase.waves.t_unit_s
        return Number(flops / unit_s if unit_s > 0 else math.nan, "FLOP/s")

    def interval(value: float, ends: tuple[float, float]) -> Number:
        return Number(value, "s", low=ends[0], high=ends[1])

    return Table(
        "gemm-parameters",
        Text("Parameters of the tile model: t = t0 + waves x t(wave), not below bytes / B"),
        [
            Column[Staircase](Text("dtype"), lambda s: s.curve.dtype),
            Column(Text("t0"), lambda s: interval(s.waves.t0_s, s.waves.t0_interval_s)),
            Column(
                Text("t(wave)"), lambda s: interval(s.waves.t_unit_s, s.waves.t_unit_interval_s)
            ),
            Column(Text("Rate of an SM within a wave"), rate_per_sm),
            Column(Text("CTAs per SM"), lambda s: s.ctas_per_sm),
            Column(
                Text("RMS error by CTAs per SM"),
                lambda s: [
                    Text("{n}: {error}", n=ctas, error=Number(error, "fraction"))
                    for ctas, error in s.errors.items()
                ],
            ),
            Column(Text("B"), lambda s: Number(s.waves.bandwidth, "B/s")),
            Column(Text("Sizes at the floor of bytes / B"), lambda s: s.waves.floored),
        ],
        staircases,
        note=SENTENCES.note("gemm-parameters"),
    )


def _batches(small: Sequence[Batches]) -> Table[int]:
    """Return latency, and time over that of M = 1, by M."""

    def column(heading: Text, number: Callable[[Point], Number], curve: Curve) -> Column[int]:
        return Column(heading, lambda m: number(point) if (point := curve.at(m)) else None)

    columns = [Column[int](Text("M"), lambda m: m)]
    for batch in small:
        cold, hot, name = batch.cold, batch.hot, batch.cold.name
        columns += [
            column(Text("{kernel}: latency", kernel=name), lambda point: point.time, cold),
            column(Text("{kernel}: over M = 1", kernel=name), batch.extra, cold),
            column(Text("{kernel}: bandwidth", kernel=name), lambda point: point.bandwidth, cold),
        ]
        if hot:
            columns.append(column(Text("{kernel}: hot", kernel=name), lambda p: p.time, hot))
    return Table(
        "gemm-batches",
        Text("Small batches"),
        columns,
        sorted({point.m for batch in small for point in batch.cold.points}),
        note=SENTENCES.note("gemm-batches"),
        refs=lambda m: [point.ref for batch in small if (point := batch.cold.at(m))],
    )


def _odd(odd: Sequence[OddSize]) -> Table[OddSize]:
    """Return each changed size with its base."""
    bases = grouped(odd, lambda size: size.base)
    rows = [row for base, sizes in bases.items() for row in (OddSize(base, "m", 0, base), *sizes)]

    def of_point(cell: Callable[[Point], Number]) -> Callable[[OddSize], Number | None]:
        return lambda size: cell(size.point) if size.point else None

    def changed(cell: Callable[[OddSize], float | None]) -> Callable[[OddSize], Number | None]:
        return lambda size: Number(cell(size), "fraction") if size.point and size.away else None

    def kernel(size: OddSize) -> str | None:
        product = size.product
        return (
            (product.kernel_names or None) if size.point else f"{product.status}: {product.reason}"
        )

    return Table(
        "gemm-odd-sizes",
        Text("Sizes next to {shape}", shape=odd[0].base.shape if odd else ""),
        [
            Column[OddSize](Text("dtype"), lambda size: size.base.dtype),
            Column(Text("Size"), lambda size: size.label if size.away else Text("base")),
            Column(Text("Latency"), of_point(lambda point: point.time)),
            Column(Text("Time over base"), changed(lambda s: Step(s.base, s.product).loss)),
            Column(Text("Throughput"), of_point(lambda point: point.throughput), "TFLOP/s"),
            Column(Text("Throughput lost"), changed(lambda size: size.loss)),
            Column(Text("Kernel"), kernel),
        ],
        rows,
        note=Text("Throughput: useful FLOP per second. One side differs from the base at a time."),
        refs=lambda size: [size.point.ref] if size.point else [],
    )
