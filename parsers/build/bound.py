"""Says for each profiled kernel which resource bounds it, and how much of that roof it reaches."""

from __future__ import annotations

import math

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.roofline import LEVELS, PIPES, Ceilings, ceilings
from nsight_prof.parsers.cells import Row, number, records, text

LATENCY_BELOW = 0.6
"""Below this share of every roof nothing is saturated: NVIDIA's SOLBottleneck rule (Nsight Compute
2025) calls a kernel latency bound where compute and memory are both under 60 %."""
HALF_EMPTY = 0.5
"""Waves below which issue slots say nothing of the GPU: they are counted where blocks run only."""
OLDER = 0.8
"""FLOP/s over what a Tensor pipe that is as busy does with the instructions of the roof: below it
the kernel uses slower ones. mma.sync reaches 62.9 % of the peak of an H100 (Luo et al., 2025)."""
BEYOND = 1.05
"""More than this share of a roof means that the roof or the counter is wrong."""
SM_BUSY = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
LABELS = {
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
    "l1": "L1 bandwidth",
    "tensor": "Tensor Cores",
    "fp32": "FP32 arithmetic",
    "fp64": "FP64 arithmetic",
    "fp16": "FP16 arithmetic",
    "issue": "instruction issue",
    "latency": "latency",
}
WHERE = {
    **{level: (f"{level}_throughput", f"{level}_pct") for level in LEVELS},
    **{pipe: (f"flops_{pipe}",) for pipe in PIPES},
    "tensor": ("flops_tensor", "tensor_pct"),
    "issue": ("issue_active_pct", "sm_active_pct"),
}
"""Columns of `counters` that the share of a resource is made of (keys of metrics.yaml)."""


def assign_bounds(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return `counters` with `bound_by` and `roof_share` filled in as far as they can be told.

    The binding resource is the one with the highest share of its roof; the issue slots of the
    schedulers count as one (`issue`). Where no share reaches LATENCY_BELOW it is `latency`, with
    the highest share kept in `roof_share`. A kernel whose decisive counters are missing stays empty
    (see `bound_gaps`). Table `metrics` helps with
    reports of NVIDIA's own sets, which tell how busy the SMs are and not with what.
    """
    judged = _judged(counters, kernels, roofs, metrics)
    bounds = [_bound(row, found) for row, found in judged]
    filled = counters.assign(
        bound_by=pd.Series([b for b, _ in bounds], index=counters.index, dtype="string"),
        roof_share=pd.Series([s for _, s in bounds], index=counters.index, dtype="float64"),
    )
    return tables.check(filled, "counters")


def _judged(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None,
) -> list[tuple[Row, dict[str, float]]]:
    """Return each row of `counters`, with `sm_busy_pct` and `name_dtype`, and its shares."""
    chosen = ceilings(roofs)
    dtypes = dict(zip(kernels["kernel_id"], kernels["dtype"].fillna(""), strict=True))
    busy = _sm_busy(metrics) if metrics is not None else {}
    rows = records(counters)
    for row in rows:
        row["name_dtype"] = text(dtypes.get(row["kernel_id"]))
        row["sm_busy_pct"] = busy.get((text(row["kernel_id"]), number(row["launch"])), math.nan)
    return [(row, shares(row, chosen)) for row in rows]


def _sm_busy(metrics: pd.DataFrame) -> dict[tuple[str, float], float]:
    ours = metrics[metrics["metric"] == SM_BUSY]
    return {
        (text(row["kernel_id"]), number(row["launch"])): number(row["value"])
        for row in records(ours)
    }


def shares(row: Row, roofs: Ceilings) -> dict[str, float]:
    """Return the share of its roof that a kernel reached on each resource; NaN where unknown.

    Per cent columns of a level hold at the clock of the kernel itself; they are used unless a
    measured roof is there, which is what the GPU really gives. `name_dtype` is the type in the
    kernel's name, for Tensor Core work whose type was not counted.
    """
    found = {level: _level_share(row, level, roofs) for level in LEVELS}
    found |= {pipe: _pipe_share(row, pipe, roofs) for pipe in PIPES}
    return found | {"issue": _issue_share(row)}


def _issue_share(row: Row) -> float:
    """Return the part of the cycles in which the schedulers issue.

    The tool counts it over the cycles in which an SM holds a warp. Where it is not known how many
    these are, it is NaN for a small grid, whose other SMs issue nothing.
    """
    issued, active = number(row["issue_active_pct"]) / 100, number(row.get("sm_active_pct"))
    if not math.isnan(active):
        return issued * active / 100
    return issued if number(row["waves"]) >= HALF_EMPTY else math.nan


def _level_share(row: Row, level: str, roofs: Ceilings) -> float:
    roof = roofs.memory.get(level)
    throughput, pct = number(row[f"{level}_throughput"]), number(row[f"{level}_pct"])
    if roof is not None and (roof.source == "measured" or math.isnan(pct)):
        limit = roof.at_clock(number(row["sm_clock_hz"]))
        return _plausible(throughput / limit, pct / 100)
    return pct / 100


def _pipe_share(row: Row, pipe: str, roofs: Ceilings) -> float:
    busy = number(row["tensor_pct"]) / 100 if pipe == "tensor" else math.nan
    if number(row[f"flops_{pipe}"]) == 0:
        return 0.0 if math.isnan(busy) else busy
    found = _plausible(_flop_share(row, pipe, roofs), busy)
    # Older instructions (mma.sync) fill the pipe at less than the rate of the newest ones.
    return busy if found < OLDER * busy else found


def _flop_share(row: Row, pipe: str, roofs: Ceilings) -> float:
    """Return FLOP/s over the roof at the clock of the kernel; NaN where either is unknown."""
    roof = roofs.pipe(pipe, text(row["tensor_dtype"]) or text(row["name_dtype"]))
    duration = number(row["duration_ns"])
    if roof is None or not duration > 0:
        return math.nan
    rate = number(row[f"flops_{pipe}"]) / (duration / 1e9)
    return rate / roof.at_clock(number(row["sm_clock_hz"]))


def _plausible(share: float, otherwise: float) -> float:
    """Return `share` unless it is unknown or beyond the roof: then another way to tell it."""
    return share if share <= BEYOND else otherwise


def _bound(row: Row, found: dict[str, float]) -> tuple[str, float]:
    known = {key: value for key, value in found.items() if not math.isnan(value)}
    if not known:
        return "", math.nan
    top = max(known, key=lambda key: known[key])
    if known[top] >= LATENCY_BELOW:
        return top, known[top]
    return ("latency", known[top]) if not undecided(row, found) else ("", math.nan)


def undecided(row: Row, found: dict[str, float]) -> list[str]:
    """Return the resources whose unknown share forbids to call a kernel latency bound.

    L1 is not among them. A scheduler that issues in less than 60 % of the cycles cannot saturate an
    FP pipe, which takes an instruction a cycle; `sm__throughput` is the busiest part of the SM,
    pipes and Tensor Cores among them. Either stands in for the pipes' own numbers.
    """
    needed = ["dram", "l2"]
    if not number(row["sm_busy_pct"]) < 100 * LATENCY_BELOW:
        needed.append("tensor")
        if not number(row["issue_active_pct"]) < 100 * LATENCY_BELOW:
            needed += ["fp32", "fp16", "fp64"]
    return [key for key in needed if math.isnan(found[key])]


def bound_gaps(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return rows of table `gaps`: bounds that cannot be told, and FLOPs beyond their roof."""
    rows = []
    chosen = ceilings(roofs)
    for row, found in _judged(counters, kernels, roofs, metrics):
        if not text(row["bound_by"]):
            rows.append(("counters", row["kernel_id"], "bound_by", _why_unknown(row, found), ""))
        for pipe in PIPES:
            share = _flop_share(row, pipe, chosen)
            if share > BEYOND:
                reason = f"its FLOPs are {share:.0%} of the {LABELS[pipe]} roof, which cannot be"
                rows.append(("counters", row["kernel_id"], "roof_share", reason, ""))
    columns = [c.name for c in tables.tables()["gaps"]]
    return tables.check(pd.DataFrame(rows, columns=columns), "gaps")


def _why_unknown(row: Row, found: dict[str, float]) -> str:
    missing = ", ".join(LABELS[key] for key in undecided(row, found))
    reason = f"no share of the roof is known for {missing}"
    busy = number(row["sm_busy_pct"])
    if math.isnan(busy):
        return reason
    return f"the SMs are {busy:.0f} % busy ({SM_BUSY}), but it was not counted with what: {reason}"
