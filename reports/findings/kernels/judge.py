"""Judges profiled kernels: what explains the distance to the roof, and what could go at most."""

from __future__ import annotations

import math

from nsight_prof.parsers.build.bound import LATENCY_BELOW
from nsight_prof.parsers.build.roofline import Ceiling, ceilings, written
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.needs import needs
from nsight_prof.reports.analysis.profiled import profiled, sm_count
from nsight_prof.reports.findings.kernels.causes import (
    MIN_GAIN,
    Cause,
    Judged,
    contradictions,
    explain,
)
from nsight_prof.reports.findings.kernels.fact import Context
from nsight_prof.reports.findings.kernels.measure import resource_use
from nsight_prof.reports.findings.kernels.roofs import ROOFS
from nsight_prof.reports.findings.kernels.rule import DEFECT
from nsight_prof.reports.findings.shortest_launch import Floor, shortest_launch
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Verbatim

SHORT_NS = 20_000.0
"""A kernel this short is some launches long: its start and end are a part of its time."""
BORDER = 5.0
"""Per cent of a roof below LATENCY_BELOW within which a kernel may be limited by it as well."""


def context_of(run: Run) -> Context:
    """Return what the rules need to know of a run beside the counters of a kernel."""
    return Context(sm_count(run), ceilings(run.roofs, run.measured_roofs), needs(run))


@once
def judge(run: Run) -> list[Judged]:
    """Return the profiled kernels whose bound is known, most GPU time first."""
    context, floor = context_of(run), shortest_launch(run)
    return [_judged(row, context, floor) for row in profiled(run) if text(row["bound_by"])]


def _judged(row: Row, context: Context, floor: Floor) -> Judged:
    found, abstained = explain(row, context)
    cause = explanation(row, found)
    gain = _gain(row, cause)
    fixed = floor if cause is None and _keeps_its_start(row, floor) else None
    bounded = _above_floor(row, floor, gain)
    if fixed is not None:
        bounded = max(0.0, gain - fixed.ns / number(row["mean_ns"]))
    use = {k: v for k, v in resource_use(row, context).items() if not math.isnan(v)}
    nearest = max(use, key=lambda key: use[key], default="")
    if cause is not None:
        conditions = cause.rule.contradicted_by
    else:
        conditions = ROOFS[text(row["bound_by"])].contradicted_by
    return Judged(
        row=row,
        causes=tuple(found),
        cause=cause,
        gain=bounded,
        abstained=tuple(abstained),
        nearest=nearest,
        roof=_roof(
            row, context, nearest if row["bound_by"] == "latency" else text(row["bound_by"])
        ),
        floor=floor if bounded < gain and fixed is None else None,
        fixed=fixed,
        doubts=(*contradictions(row, context, conditions), *_borderline(row)),
    )


def _borderline(row: Row) -> tuple[tuple[Evidence, Text], ...]:
    """Return that a kernel that waits is all but at a roof, which would limit it then."""
    reached, limit = 100 * number(row["roof_share"]), 100 * LATENCY_BELOW
    if row["bound_by"] != "latency" or not reached >= limit - BORDER:
        return ()
    key = text(row["kernel_id"])
    share = Number(reached, "%", (Ref("counters", key, "roof_share"),))
    evidence = Evidence(
        Text("highest share of a roof, all but its limit"),
        share,
        Text("{low} to {high} is borderline", low=Verbatim(f"{limit - BORDER:g}"),
             high=Number(limit, "%")),
        Text("prof: two runs differ by as much"),
    )  # fmt: skip
    values = {"reached": share.at_digits(3), "limit": Number(limit, "%")}
    clause = Text("{reached} of a roof is close to {limit}, where a roof begins to limit", **values)
    at_mean = reached * number(row["duration_ns"]) / number(row["mean_ns"])
    if at_mean >= limit:
        clause = Text(
            "{reached} of a roof is close to {limit}, where a roof begins to limit, and at the "
            "mean time of its launches it is {mean}",
            mean=Number(at_mean, "%", (*share.refs, Ref("kernels", key, "mean_ns"))).at_digits(3),
            **values,
        )
    return ((evidence, clause),)


def _roof(row: Row, context: Context, resource: str) -> Ceiling | None:
    dtype = text(row["tensor_dtype"]) or text(row.get("dtype"))
    return context.roofs.level(resource, written(row)) or context.roofs.pipe(resource, dtype)


def explanation(row: Row, found: list[Cause]) -> Cause | None:
    """Return the cause that explains what a kernel misses; None where its roof does.

    A kernel that waits has the first cause that is worth it, and the first of all where none is.
    One at a roof has a defect that would take work off that roof: only then is there more to gain
    than a tenth.
    """
    if text(row["bound_by"]) == "latency":
        worth_it = (cause for cause in found if not cause.gain < MIN_GAIN)
        return next(worth_it, found[0] if found else None)
    limit = max(MIN_GAIN, 1 - threshold("near_roof")) if is_near(row) else MIN_GAIN
    defects = (c for c in found if c.rank == DEFECT and (c.gain >= limit))
    return next(defects, None)


def is_near(row: Row) -> bool:
    """Tell whether a kernel is so near the roof of its resource that no better kernel helps.

    A busy unit is none: the same data may take fewer instructions, wavefronts or sectors.
    """
    bound = text(row["bound_by"])
    if bound in ("issue", "latency") or text(row["bound_unit"]):
        return False
    limit = "near_dram_roof" if bound == "dram" else "near_roof"
    return number(row["roof_share"]) >= threshold(limit)


def _gain(row: Row, cause: Cause | None) -> float:
    """Return the part of a kernel's time that can go at most.

    Never beyond the roof: with its bytes and FLOPs the kernel needs at least `roof_share` of its
    time; with fewer of them, what the cause leaves (see `causes.gain`).
    """
    if cause is not None and not math.isnan(cause.gain):
        return max(0.0, cause.gain)
    return max(0.0, 1 - number(row["roof_share"]))


def _keeps_its_start(row: Row, floor: Floor) -> bool:
    """Tell whether a kernel at its roof is so short that its start and end are a part of its time.

    A launch takes t0 + work / roof: what the shortest launch of the trace takes stays.
    """
    return (
        text(row["bound_by"]) != "latency"
        and bool(floor.kernel)
        and (0 < number(row["mean_ns"]) < SHORT_NS)
    )


def _above_floor(row: Row, floor: Floor, gain: float) -> float:
    """Return the gain, of which no kernel that waits gets shorter than the shortest launch."""
    mean = number(row["mean_ns"])
    if row["bound_by"] != "latency" or not (floor.ns > 0 and mean > 0):
        return gain
    return min(gain, max(0.0, 1 - floor.ns / mean))
