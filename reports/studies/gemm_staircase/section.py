"""The section of the target gemm_staircase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.page import Json, Number, Section, Text, Verbatim, arranged
from nsight_prof.reports.studies.gemm_staircase.charts import charts
from nsight_prof.reports.studies.gemm_staircase.findings import Measured, findings
from nsight_prof.reports.studies.gemm_staircase.points import (
    TARGET,
    Curve,
    Refused,
    curves,
    read_points,
    sm_count,
)
from nsight_prof.reports.studies.gemm_staircase.steps import (
    Staircase,
    batches,
    delay,
    highest_rate,
    odd_sizes,
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
            (*findings(measured), *oscillation.findings(delays)),
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
