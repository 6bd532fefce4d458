"""The tables of the staircase: chosen sizes, steps, fits, small batches, odd sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsight_prof.reports.bench.cases import interval_text
from nsight_prof.reports.bench.gemm_staircase_points import VARIANTS, Curve, Point
from nsight_prof.reports.bench.gemm_staircase_steps import (
    Batches,
    OddSize,
    Staircase,
    median_loss,
    step_at,
)
from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.bench.tile_fit import Fit, Quality
from nsight_prof.reports.formats import (
    NA,
    byte_rate,
    count,
    counted,
    difference,
    flop_rate,
    listed,
    percent,
    seconds,
    share,
    significant,
)

MODEL_WORDS = {
    "waves": "whole waves of whole tiles",
    "tiles": "whole tiles, no waves",
    "continuous": "M x N, no tiles",
}
CHOSEN = (64, 128)  # shown beside the edges


def size_tables(
    sweeps: Sequence[Curve], staircases: Sequence[Staircase], sms: int | None
) -> list[BenchTable]:
    """Return one table a dtype: each kernel on both sides of the edges."""
    tables = []
    for dtype in dict.fromkeys(curve.dtype for curve in sweeps):
        shown = chosen_sizes(dtype, sweeps, staircases)
        rows = [
            _size_row(point, staircases, sms)
            for curve in sweeps
            if curve.dtype == dtype
            for point in curve.points
            if point.m in shown
        ]
        first = next(curve.points[0] for curve in sweeps if curve.dtype == dtype)
        tables.append(
            BenchTable(
                f"{dtype}, N = {first.n}, K = {first.k}: both sides of the edges",
                (
                    *("Kernel, tile", "M", "Latency", "TFLOP/s", "TFLOP/s per SM"),
                    *("Tensor pipe", "Waves (tiles)", "Tail efficiency", "Tile use"),
                ),
                tuple(rows),
                "Latency: median. Tensor pipe: cycles in which it is active (counters). Tile: rows "
                "of M x columns of N that one CTA computes. Tail efficiency: tiles over waves x "
                "slots; tile use: useful elements over those that the tiles cover. Of cuBLAS the "
                "tile is known where counters were collected and K is not split; its waves are "
                "those of one CTA on each SM.",
                left=("Kernel, tile",),
            )
        )
    return tables


def chosen_sizes(
    dtype: str, sweeps: Sequence[Curve], staircases: Sequence[Staircase]
) -> tuple[int, ...]:
    """Return the M to show: both sides of the edges of wave 1, 2, 4, ..., or evenly spread ones."""
    edges = [
        edge
        for one in staircases
        if one.curve.dtype == dtype
        for edge in one.edges()
        # All edges stand in the table of steps.
        if one.tiling.waves(edge, one.waves.slots).bit_count() == 1
    ]
    if edges:
        return tuple(sorted({*CHOSEN, *edges, *(edge + 1 for edge in edges)}))
    sizes = sorted({point.m for curve in sweeps if curve.dtype == dtype for point in curve.points})
    return tuple(sizes[:: max(1, len(sizes) // 12)])


def slots_of(point: Point, staircases: Iterable[Staircase], sms: int | None) -> int | None:
    """Return the tiles that run at a time: as the fit found for the pinned tile, else one an SM."""
    for one in staircases:
        if (one.curve.dtype, one.curve.variant) == (point.dtype, point.variant):
            return one.waves.slots
    return sms


def _size_row(point: Point, staircases: Sequence[Staircase], sms: int | None) -> tuple[str, ...]:
    tiling, slots = point.tiling, slots_of(point, staircases, sms)
    name = VARIANTS.get(point.variant, point.variant)
    waves = tail = use = NA
    if tiling:
        name += f" {tiling.tile_m}x{tiling.tile_n}"
        tiles, use = count(tiling.tiles(point.m)), share(tiling.tile_efficiency(point.m))
        waves = f"{NA} ({tiles})"
        if slots:
            waves = f"{count(tiling.waves(point.m, slots))} ({tiles})"
            tail = share(tiling.tail_efficiency(point.m, slots))
    return (
        name,
        str(point.m),
        seconds(point.seconds),
        significant(point.rate / 1e12),
        significant(point.rate / 1e12 / sms) if sms else NA,
        percent(point.tensor_pct),
        *(waves, tail, use),
    )


def step_table(sweeps: Sequence[Curve], staircases: Sequence[Staircase]) -> BenchTable | None:
    """Return what one row more costs at each edge of a wave, predicted and measured."""
    rows = []
    for one in staircases:
        library = next((c for c in sweeps if c.dtype == one.curve.dtype and c != one.curve
                        and c.variant != one.curve.variant), None)  # fmt: skip
        own = next((curve for curve in sweeps if curve.what == one.curve.what), one.curve)
        rows += [_step_row(one, own, library, edge) for edge in one.edges()]
    if not rows:
        return None
    inside = [
        f"{one.curve.dtype} {difference(loss)}"
        for one in staircases
        if (loss := median_loss(one.curve, inner_edges(one))) is not None
    ]
    note = (
        "At one clock: a fuller wave draws more power, and under a power cap the clock gives way."
    )
    if inside:
        note += (
            " For comparison, a row more that begins another row of tiles but no other wave costs, "
            f"at one clock (median): {listed(inside)}."
        )
    return BenchTable(
        "What one row more costs where a wave ends",
        (
            *("dtype", "M", "Waves of the pinned tile", "Tile model"),
            *("Pinned tile, at one clock", "Pinned tile, as measured", "cuBLAS, as measured"),
        ),
        tuple(rows),
        note,
        left=("dtype", "M", "Waves of the pinned tile"),
    )


def inner_edges(one: Staircase) -> list[int]:
    """Return the edges of tiles at which no wave begins: there a row more should cost nothing."""
    tile, last = one.tiling.tile_m, one.curve.points[-1].m
    return [edge for edge in range(tile, last, tile) if edge not in one.edges()]


def _step_row(one: Staircase, unscaled: Curve, library: Curve | None, edge: int) -> tuple[str, ...]:
    sizes = [point.m for point in one.curve.points]
    predicted = NA
    if edge in sizes and edge + 1 in sizes:
        times = one.waves.predicted_s
        predicted = difference(times[sizes.index(edge + 1)] / times[sizes.index(edge)] - 1)
    seen = [step_at(curve, edge) if curve else None for curve in (one.curve, unscaled, library)]
    before = one.tiling.waves(edge, one.waves.slots)
    after = one.tiling.waves(edge + 1, one.waves.slots)
    return (
        one.curve.dtype,
        f"{edge} to {edge + 1}",
        f"{before} to {after}",
        predicted,
        *(difference(step.loss) if step else NA for step in seen),
    )


def fit_table(staircases: Sequence[Staircase]) -> BenchTable | None:
    """Return how well the tile model and its controls predict the pinned kernel."""
    rows = []
    for one in staircases:
        for found in one.fits:
            rows.append(_quality_row(one, MODEL_WORDS[found.model], found.quality))
            if found is one.waves and one.unscaled:
                words = f"{MODEL_WORDS[found.model]}, times as measured"
                rows.append(_quality_row(one, words, one.unscaled))
    if not rows:
        return None
    return BenchTable(
        "How well the tile model predicts the pinned kernel",
        ("dtype", "Time grows with", "Median error", "p90 error", "Worst error", "R^2", "Sizes"),
        tuple(rows),
        "All have two parameters, fitted to the same sizes, with times at one clock except where "
        "it says otherwise. The first is the tile model; those without waves are controls that it "
        "has to beat.",
        left=("dtype", "Time grows with"),
    )


def _quality_row(one: Staircase, words: str, quality: Quality) -> tuple[str, ...]:
    return (
        one.curve.dtype,
        words,
        share(quality.median_error),
        share(quality.p90_error),
        share(quality.worst_error),
        significant(quality.r_squared, 4),
        str(one.waves.points),
    )


def parameter_table(staircases: Sequence[Staircase]) -> BenchTable | None:
    """Return the parameters of the tile model with their intervals."""
    rows = [row for one in staircases for row in _parameters(one)]
    if not rows:
        return None
    return BenchTable(
        "Parameters of the tile model: t = t0 + waves x t(wave), not below bytes / B",
        ("dtype", "Parameter", "Value", "95 % interval"),
        tuple(rows),
        "Intervals by bootstrap of whole rows of tiles. K is the same throughout, so that t(wave) "
        "holds the fixed part of a tile too.",
        left=("dtype", "Parameter"),
    )


def _parameters(one: Staircase) -> list[tuple[str, ...]]:
    found, dtype = one.waves, one.curve.dtype
    tile = one.tiling.tile_m * one.tiling.tile_n * one.curve.points[0].k * 2.0
    per_sm = tile * one.ctas_per_sm / found.t_unit_s if found.t_unit_s > 0 else None
    tried = ", ".join(f"{ctas}: {share(error)}" for ctas, error in one.errors.items())
    floor = f"{counted(found.floored, 'size')} at this floor"
    return [
        (dtype, "t0", seconds(found.t0_s), interval_text(*found.t0_interval_s, "s")),
        (dtype, "t(wave)", seconds(found.t_unit_s), interval_text(*found.t_unit_interval_s, "s")),
        (dtype, "FLOP/s of an SM within a wave", flop_rate(per_sm), NA),
        (dtype, "CTAs on an SM", str(one.ctas_per_sm), f"rms error by number: {tried}"),
        (dtype, "B", byte_rate(found.bandwidth), floor),
    ]


def batch_table(sets: Sequence[Batches]) -> BenchTable | None:
    """Return latency, and time over that of M = 1, by M."""
    if not sets:
        return None
    sizes = sorted({point.m for one in sets for point in one.points})
    heads = [
        f"{one.points[0].what}: {word}"
        for one in sets
        for word in ("latency", "over M = 1", "bytes a second", *(("hot",) if one.hot else ()))
    ]
    rows = [(str(m), *(cell for one in sets for cell in _batch_cells(one, m))) for m in sizes]
    return BenchTable(
        "Small batches",
        ("M", *heads),
        tuple(rows),
        "Cold, except in the columns that say hot: there a call uses the weights of the call "
        "before it, as far as L2 keeps them. Bytes: A, W and C once each.",
    )


def _batch_cells(one: Batches, m: int) -> list[str]:
    point = next((p for p in one.points if p.m == m), None)
    rate = byte_rate(point.moved / point.seconds) if point else NA
    cells = [seconds(point.seconds) if point else NA, difference(one.extra(m)), rate]
    if one.hot:
        cells.append(seconds(next((p.seconds for p in one.hot if p.m == m), None)))
    return cells


def odd_table(sizes: Sequence[OddSize]) -> BenchTable | None:
    """Return each changed size beside the base."""
    if not sizes:
        return None
    rows = []
    for base in dict.fromkeys(odd.base for odd in sizes):
        rows.append(_odd_row(base, "base", base, ""))
        for odd in (odd for odd in sizes if odd.base == base):
            why = f"{odd.refused.status}: {odd.refused.reason}" if odd.refused else ""
            rows.append(_odd_row(base, f"{odd.side.upper()} = {odd.size}", odd.point, why))
    first = sizes[0].base
    return BenchTable(
        f"Sizes next to {first.m} x {first.n} x {first.k}",
        ("dtype", "Size", "Latency", "Time over base", "TFLOP/s", "Throughput lost", "Kernel"),
        tuple(rows),
        "Throughput: useful FLOPs a second. One side differs from the base at a time.",
        left=("dtype", "Size", "Kernel"),
    )


def _odd_row(base: Point, label: str, point: Point | None, why: str) -> tuple[str, ...]:
    if point is None:
        return (base.dtype, label, NA, NA, NA, NA, why)
    lost = NA if point is base else share(1 - point.rate / base.rate)
    over = NA if point is base else difference(point.seconds / base.seconds - 1)
    kernel = point.kernel or NA
    rate = significant(point.rate / 1e12)
    return (base.dtype, label, seconds(point.seconds), over, rate, lost, kernel)


def fit_numbers(found: Fit) -> dict[str, object]:
    """Return a fit for metrics.json, in base units."""
    return {
        "model": found.model,
        "slots": found.slots,
        "t0_s": found.t0_s,
        "t0_interval_s": list(found.t0_interval_s),
        "t_unit_s": found.t_unit_s,
        "t_unit_interval_s": list(found.t_unit_interval_s),
        "bandwidth": found.bandwidth,
        "points": found.points,
        "median_error": found.quality.median_error,
        "p90_error": found.quality.p90_error,
        "worst_error": found.quality.worst_error,
        "r_squared": found.quality.r_squared,
    }
