"""The section of the target gemm_staircase: wave quantization, small and odd sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from nsight_prof.reports.bench.gemm_staircase_figures import figures
from nsight_prof.reports.bench.gemm_staircase_findings import findings
from nsight_prof.reports.bench.gemm_staircase_points import (
    TARGET,
    Curve,
    Point,
    Refused,
    curves,
    read_points,
    sm_count,
)
from nsight_prof.reports.bench.gemm_staircase_steps import (
    Batches,
    OddSize,
    Staircase,
    batches,
    highest_rate,
    odd_sizes,
    staircase,
    worst_step,
)
from nsight_prof.reports.bench.gemm_staircase_tables import (
    batch_table,
    fit_numbers,
    fit_table,
    odd_table,
    parameter_table,
    size_tables,
    step_table,
)
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.formats import clock, counted
from nsight_prof.reports.load import Run


def section(run: Run) -> Section | None:
    """Return the section; None for a run without such cases."""
    points, refused = read_points(run)
    if not points and not refused:
        return None
    sms, bandwidth = sm_count(run), highest_rate(points)
    sweeps, sets, odd = curves(points), batches(points), odd_sizes(points, refused)
    staircases = [
        found for curve in sweeps if (found := staircase(curve, sms, bandwidth)) is not None
    ]
    tables = [
        *size_tables(sweeps, staircases, sms),
        step_table(sweeps, staircases),
        fit_table(staircases),
        parameter_table(staircases),
        batch_table(sets),
        odd_table(odd),
    ]
    return Section(
        key=TARGET,
        title="The staircase of matrix products",
        intro="A GPU computes a matrix product in tiles, as many at a time as fit on its SMs: a "
        "wave. A last wave that is not full takes as long as a full one, so that latency rises in "
        "steps. Here M is swept in steps of one row around these edges, in the tile that cuBLAS "
        "chooses for each size and in one that is always the same (Triton).",
        findings=findings(sweeps, staircases, sets, odd, sms),
        tables=tuple(table for table in tables if table is not None),
        figures=figures(sweeps, staircases, sets, odd, bandwidth),
        method=_method(staircases, refused, sms),
        numbers=_numbers(sweeps, staircases, sets, odd),
    )


def _method(
    staircases: Sequence[Staircase], refused: Sequence[Refused], sms: int | None
) -> tuple[str, ...]:
    said = [
        "C (M, N) = A (M, K) W (N, K)^T, row-major, bf16 result, sums in fp32; fp8 is e4m3 with "
        "scales of 1 and cuBLAS' fast accumulation. FLOPs are 2MNK, bytes are A, W and C once.",
        "Cold: the operands of a call were not used by the calls before it, as the weights of a "
        "layer are not. Each process measures the sizes in another order.",
        "The pinned kernel's result was compared with torch's for each size before it was timed.",
        "tiles = ceil(M/Tm) ceil(N/Tn); waves = ceil(tiles / slots); slots = SMs x CTAs on an SM; "
        "t = t0 + waves x t(wave), fitted by least squares of the relative error. B is the highest "
        "rate of bytes of any case of this run.",
    ]
    clocks = sorted({clock(one.clock_hz) for one in staircases if one.clock_hz})
    if clocks:
        said.append(
            f"For the fit, times were scaled to one SM clock ({', '.join(clocks)}, the median of "
            "the sweep); tables and figures show them as they were, and figures the model at the "
            "clock of each size."
        )
    if sms is None:
        said.append("The run does not tell the number of SMs: no waves, and no tile model.")
    reasons = Counter((one.dtype, one.variant, one.status, one.reason) for one in refused)
    for (dtype, variant, status, reason), times in reasons.items():
        said.append(f"{dtype}, {variant}: {counted(times, 'size')} {status} ({reason}).")
    return tuple(said)


def _numbers(
    sweeps: Sequence[Curve],
    staircases: Sequence[Staircase],
    sets: Sequence[Batches],
    odd: Sequence[OddSize],
) -> dict[str, Any]:
    worst = [(curve, step) for curve in sweeps if (step := worst_step(curve)) is not None]
    return {
        "fits": [
            {"dtype": one.curve.dtype, "variant": one.curve.variant, "clock_hz": one.clock_hz}
            | fit_numbers(found)
            for one in staircases
            for found in one.fits
        ],
        "worst_steps": [
            {"dtype": curve.dtype, "variant": curve.variant, "m": step.after.m, "loss": step.loss}
            for curve, step in worst
        ],
        "best": [_best(max(curve.points, key=lambda point: point.rate)) for curve in sweeps],
        "batches": [
            {"dtype": one.dtype, "m": point.m, "s": point.seconds, "extra": one.extra(point.m)}
            for one in sets
            for point in one.points
        ],
        "odd_sizes": [
            {"dtype": one.base.dtype, "side": one.side, "size": one.size, "loss": one.loss}
            for one in odd
        ],
    }


def _best(point: Point) -> dict[str, Any]:
    shape = {"m": point.m, "n": point.n, "k": point.k}
    return {"dtype": point.dtype, "variant": point.variant, "flop_per_s": point.rate} | shape
