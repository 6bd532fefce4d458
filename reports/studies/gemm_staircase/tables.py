"""Tables of the staircase: chosen sizes, steps, fits, small batches, odd sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.reports.page import Column, Number, Table, Text, Value
from nsight_prof.reports.studies.gemm_staircase.points import (
    Batches,
    Curve,
    OddSize,
    Point,
    Staircase,
    Step,
    median_loss,
    step_at,
)
from nsight_prof.reports.studies.gemm_staircase.tile_model import Quality, Tiling

MODELS = {
    "waves": Text("whole waves of whole tiles"),
    "tiles": Text("whole tiles, no waves"),
    "continuous": Text("M x N, no tiles"),
}
CHOSEN = (64, 128)
"""M that are shown with the edges."""


def size_tables(
    sweeps: Sequence[Curve], staircases: Sequence[Staircase], sms: int | None
) -> list[Table[Any]]:
    """Return one table per dtype: each kernel on both sides of the edges."""
    slots = {(s.curve.dtype, s.curve.variant): s.waves.slots for s in staircases}

    def of_waves(cell: Callable[[Point, Tiling, int], Value]) -> Callable[[Point], Value | None]:
        def counted(point: Point) -> Value | None:
            at_once = slots.get((point.dtype, point.variant), sms)
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
        Column(
            Text("Tensor pipe"),
            lambda point: None if point.tensor_pct is None else Number(point.tensor_pct, "%"),
        ),
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
    tables: list[Table[Any]] = []
    for dtype in dict.fromkeys(curve.dtype for curve in sweeps):
        of_dtype = [curve for curve in sweeps if curve.dtype == dtype]
        sizes = chosen_sizes(of_dtype, [s for s in staircases if s.curve.dtype == dtype])
        first = of_dtype[0].points[0]
        tables.append(
            Table(
                f"gemm-sizes-{dtype}",
                Text(
                    "{dtype}, N = {n}, K = {k}: both sides of the edges",
                    dtype=dtype,
                    n=str(first.n),
                    k=str(first.k),
                ),
                columns,
                [point for curve in of_dtype for point in curve.points if point.m in sizes],
                note=None
                if tables
                else Text(
                    "Latency: median and 95 % interval. Tensor pipe: cycles in which it is active "
                    "(counters). Tile: rows of M x columns of N that one CTA computes. Tail "
                    "efficiency: tiles over waves x slots; tile use: useful elements over those "
                    "that the tiles cover. Of cuBLAS the tile is known where counters were "
                    "collected and K is not split; its waves assume one CTA per SM."
                ),
                refs=lambda point: [point.ref],
            )
        )
    return tables


def chosen_sizes(sweeps: Sequence[Curve], staircases: Sequence[Staircase]) -> set[int]:
    """Return the M to show: both sides of the edges of wave 1, 2, 4, ..., or evenly spread ones."""
    # All edges stand in the table of steps.
    edges = [e for s in staircases for e in s.edges() if s.waves_at(e).bit_count() == 1]
    if edges:
        return {*CHOSEN, *edges, *(edge + 1 for edge in edges)}
    sizes = sorted({point.m for curve in sweeps for point in curve.points})
    return set(sizes[:: max(1, len(sizes) // 12)])


@dataclass(frozen=True)
class Edge:
    """The last row of a wave of a pinned tile, and what the next row costs there."""

    staircase: Staircase
    library: Curve | None
    m: int

    @property
    def steps(self) -> tuple[Step | None, Step | None, Step | None]:
        """The step at one clock, as measured, and by the library."""
        curves = (self.staircase.curve, self.staircase.measured, self.library)
        scaled, measured, library = (step_at(curve, self.m) if curve else None for curve in curves)
        return scaled, measured, library


def library_of(staircase: Staircase, sweeps: Sequence[Curve]) -> Curve | None:
    """Return the sweep of the same dtype by the library that chooses its tiles."""
    dtype, variant = staircase.curve.dtype, staircase.curve.variant
    return next((c for c in sweeps if c.dtype == dtype and c.variant != variant), None)


def step_table(sweeps: Sequence[Curve], staircases: Sequence[Staircase]) -> Table[Edge]:
    """Return what one row more costs at each edge of a wave, predicted and measured."""
    rows = [Edge(s, library_of(s, sweeps), edge) for s in staircases for edge in s.edges()]
    inside = [
        Text("{dtype} {loss}", dtype=s.curve.dtype, loss=Number(loss, "fraction"))
        for s in staircases
        if (loss := median_loss(s.curve, s.tile_edges())) is not None
    ]
    note = Text(
        "At one clock: a fuller wave draws more power, and under a power cap the clock gives way."
    )
    if inside:
        note = Text(
            "At one clock: a fuller wave draws more power, and under a power cap the clock gives "
            "way. For comparison, a row that begins another row of tiles but no wave costs, at one "
            "clock (median): {inside}.",
            inside=inside,
        )

    def cost(step: Step | None) -> Number:
        return step.cost if step else Number(None, "fraction")

    return Table(
        "gemm-steps",
        Text("What one row more costs where a wave ends"),
        [
            Column[Edge](Text("dtype"), lambda edge: edge.staircase.curve.dtype),
            Column(Text("M"), lambda edge: f"{edge.m} to {edge.m + 1}"),
            Column(
                Text("Waves of the pinned tile"),
                lambda edge: (
                    f"{edge.staircase.waves_at(edge.m)} to {edge.staircase.waves_at(edge.m + 1)}"
                ),
            ),
            Column(
                Text("Tile model"),
                lambda edge: Number(edge.staircase.predicted_loss(edge.m), "fraction"),
            ),
            Column(Text("Pinned tile, at one clock"), lambda edge: cost(edge.steps[0])),
            Column(Text("Pinned tile, as measured"), lambda edge: cost(edge.steps[1])),
            Column(Text("cuBLAS, as measured"), lambda edge: cost(edge.steps[2])),
        ],
        rows,
        note=note,
        refs=lambda edge: [step.after.ref for step in edge.steps[1:] if step],
    )


def fit_table(staircases: Sequence[Staircase]) -> Table[Any]:
    """Return how well the tile model and its controls predict the pinned kernel."""
    rows: list[tuple[Staircase, Text, Quality]] = []
    for staircase in staircases:
        for fit in staircase.fits:
            rows.append((staircase, MODELS[fit.model], fit.quality))
            if fit is staircase.waves and staircase.unscaled:
                label = Text("{model}, times as measured", model=MODELS[fit.model])
                rows.append((staircase, label, staircase.unscaled))
    return Table(
        "gemm-fits",
        Text("How well the tile model predicts the pinned kernel"),
        [
            Column[tuple[Staircase, Text, Quality]](Text("dtype"), lambda row: row[0].curve.dtype),
            Column(Text("Time grows with"), lambda row: row[1]),
            Column(Text("Median error"), lambda row: Number(row[2].median_error, "fraction")),
            Column(Text("p90 error"), lambda row: Number(row[2].p90_error, "fraction")),
            Column(Text("Worst error"), lambda row: Number(row[2].worst_error, "fraction")),
            Column(Text("R^2"), lambda row: Number(row[2].r_squared), digits=4),
            Column(Text("Sizes"), lambda row: row[0].waves.points),
        ],
        rows,
        note=Text(
            "All have two parameters, fitted to the same sizes, with times at one clock except "
            "where it says otherwise. The first is the tile model; those without waves are "
            "controls that it has to beat."
        ),
    )


def parameter_table(staircases: Sequence[Staircase]) -> Table[Staircase]:
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
        note=Text(
            "In brackets 95 % intervals, by a bootstrap of whole rows of tiles. K is the same "
            "throughout, so that t(wave) includes the fixed part of a tile."
        ),
    )


def batch_table(small: Sequence[Batches]) -> Table[int]:
    """Return latency, and time over that of M = 1, by M."""
    return Table(
        "gemm-batches",
        Text("Small batches"),
        [Column(Text("M"), lambda m: m), *(c for batch in small for c in _batch_columns(batch))],
        sorted({point.m for batch in small for point in batch.cold.points}),
        note=Text(
            "Cold, except in the columns that say hot: there a call uses the weights of the call "
            "before it, as far as L2 keeps them. Bytes: A, W and C once each."
        ),
        refs=lambda m: [point.ref for batch in small if (point := batch.cold.at(m))],
    )


def _batch_columns(batch: Batches) -> list[Column[int]]:
    name = batch.cold.name

    def column(
        heading: Text, number: Callable[[Point], Number], curve: Curve = batch.cold
    ) -> Column[int]:
        return Column(heading, lambda m: number(point) if (point := curve.at(m)) else None)

    columns = [
        column(Text("{kernel}: latency", kernel=name), lambda point: point.time),
        column(Text("{kernel}: over M = 1", kernel=name), batch.extra),
        column(Text("{kernel}: bandwidth", kernel=name), lambda point: point.bandwidth),
    ]
    if batch.hot is None:
        return columns
    return [*columns, column(Text("{kernel}: hot", kernel=name), lambda p: p.time, batch.hot)]


def odd_table(odd: Sequence[OddSize]) -> Table[OddSize]:
    """Return each changed size with its base."""
    rows: list[OddSize] = []
    for base in dict.fromkeys(size.base for size in odd):
        rows += [OddSize(base, "m", 0, base, None), *(size for size in odd if size.base == base)]
    shape = odd[0].base.shape if odd else ""

    def changed(size: OddSize, number: Number) -> Number | None:
        return number if size.point not in (None, size.base) else None

    def over(size: OddSize) -> Number | None:
        seconds = size.point.seconds if size.point else math.nan
        return changed(size, Number(seconds / size.base.seconds - 1, "fraction"))

    def unknown(size: OddSize) -> str:
        return f"{size.refused.status}: {size.refused.reason}" if size.refused else ""

    return Table(
        "gemm-odd-sizes",
        Text("Sizes next to {shape}", shape=shape),
        [
            Column[OddSize](Text("dtype"), lambda size: size.base.dtype),
            Column(Text("Size"), lambda size: size.label if size.away else Text("base")),
            Column(Text("Latency"), lambda size: size.point.time if size.point else None),
            Column(Text("Time over base"), over),
            Column(
                Text("Throughput"),
                lambda size: size.point.throughput if size.point else None,
                "TFLOP/s",
            ),
            Column(
                Text("Throughput lost"), lambda size: changed(size, Number(size.loss, "fraction"))
            ),
            Column(
                Text("Kernel"),
                lambda size: (size.point.kernel or None) if size.point else unknown(size),
            ),
        ],
        rows,
        note=Text("Throughput: useful FLOP per second. One side differs from the base at a time."),
        refs=lambda size: [size.point.ref] if size.point else [],
    )
