"""Says for each profiled kernel which resource bounds it, and how much of that roof it reaches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.roofline import LEVELS, PIPES, Ceilings, ceilings, written
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.metrics.catalogue import UTILIZATION, catalogue
from nsight_prof.parsers.run.sentences import stored

LATENCY_BELOW = 0.6
"""Below this share of every roof nothing is saturated: NVIDIA's SOLBottleneck rule (Nsight Compute
2025) calls a kernel latency bound where compute and memory are both under 60 %."""
BORDER = 5.0
"""Per cent of a roof below LATENCY_BELOW within which a kernel may be limited by it as well."""
BOUND_FROM = 0.8
"""From this utilization on a resource bounds a kernel by itself (SOLBottleneck, as above); between
LATENCY_BELOW and it the kernel also waits, or uses another resource as much."""
BALANCED = 0.1
"""Utilizations that differ by less are equal: SOLBottleneck calls them well-balanced."""
HALF_EMPTY = 0.5
"""Waves below which issue slots say nothing of the GPU: they are counted where blocks run only."""
OLDER = 0.8
"""FLOP/s over what a Tensor pipe that is as busy does with the instructions of the roof: below it
the kernel uses slower ones. mma.sync reaches 62.9 % of the peak of an H100 (Luo et al., 2025)."""
BEYOND = 1.05
"""More than this share of a roof means that the roof or the counter is wrong."""
SM_BUSY = f"sm__throughput{UTILIZATION}"
MEMORY_BUSY = f"gpu__compute_memory_throughput{UTILIZATION}"
"""The busiest of all units of the SMs, and of the memory: which one it is ncu says in the breakdown
of its section SpeedOfLight alone."""
WHOLE = {
    level: f"{name}__throughput{UTILIZATION}" for level, name in (("l1", "l1tex"), ("l2", "lts"))
}
"""The busiest of all units of a level, some of which ncu does not count in MEMORY_BUSY."""
LABELS = {
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
    "l1": "L1 bandwidth",
    "tensor": "Tensor Cores",
    "fp32": "FP32 arithmetic",
    "fp64": "FP64 arithmetic",
    "fp16": "FP16 arithmetic",
    "alu": "integer and logic arithmetic",
    "xu": "special functions",
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
BEHIND: Mapping[str, tuple[str, ...]] = {
    "issue": ("tensor", "fp32", "fp16", "fp64", "alu", "xu"),
    "l1": ("tensor",),
}
"""What fills a resource on its way: instructions of a full pipe fill the issue slots of Hopper, the
operands of its matrix products the data pipe of L1. Where both are BALANCED, it names the bound."""


@dataclass(frozen=True)
class Use:
    """How much of a resource is used, 0 to 1; NaN where unknown.

    `unit` is the busy unit (metrics.yaml); empty where it is bytes or FLOPs over a roof.
    """

    share: float
    unit: str = ""


@dataclass(frozen=True)
class Bound:
    """What binds a kernel (empty: not known), and what it uses most beside that, if anything."""

    by: str = ""
    use: Use = Use(math.nan)
    second: str = ""
    second_share: float = math.nan


def is_borderline(bound: str, roof_share: float) -> bool:
    """Tell whether a kernel that waits is all but at a roof, which limits it as well then."""
    return bound == "latency" and 100 * roof_share >= 100 * LATENCY_BELOW - BORDER


def assign_bounds(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
    measured: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return `counters` with what bounds each kernel filled in as far as it can be told.

    Of all resources the one that is used most binds: `roof_share` is the larger of its bytes or
    FLOPs over the roof and of the busiest of its units (metrics.yaml, from table `metrics`), all of
    elapsed cycles. The issue slots of the schedulers count as a resource (`issue`). Where nothing
    reaches LATENCY_BELOW it is `latency`, with the highest share kept in `roof_share`. A kernel
    whose decisive counters are missing stays empty (see `bound_gaps`), also where ncu says that a
    unit is busier than all that are known. Table `measured` (measured_roofs) has the bandwidth of
    DRAM for reads and writes mixed.
    """
    judged = _judged(counters, kernels, roofs, metrics, measured)
    bounds = [_bound(row, uses) for row, uses in judged]
    index = counters.index
    filled = counters.assign(
        bound_by=pd.Series([b.by for b in bounds], index=index, dtype="string"),
        roof_share=pd.Series([b.use.share for b in bounds], index=index, dtype="float64"),
        bound_unit=pd.Series([b.use.unit for b in bounds], index=index, dtype="string"),
        second_by=pd.Series([b.second for b in bounds], index=index, dtype="string"),
        second_share=pd.Series([b.second_share for b in bounds], index=index, dtype="float64"),
    )
    return tables.check(filled, "counters")


def _judged(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None,
    measured: pd.DataFrame | None,
) -> list[tuple[Row, dict[str, Use]]]:
    """Return each row of `counters`, with `busy` and `name_dtype`, and its uses."""
    chosen = ceilings(roofs, measured)
    dtypes = dict(zip(kernels["kernel_id"], kernels["dtype"].fillna(""), strict=True))
    busy = _busy(metrics) if metrics is not None else {}
    rows = records(counters)
    for row in rows:
        row["name_dtype"] = text(dtypes.get(row["kernel_id"]))
        row["busy"] = busy.get((text(row["kernel_id"]), number(row["launch"])), {})
    return [(row, uses(row, shares(row, chosen))) for row in rows]


def _busy(metrics: pd.DataFrame) -> dict[tuple[str, float], dict[str, float]]:
    """Return the utilizations in per cent of each profiled launch, by metric."""
    found: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
    for row in records(metrics[metrics["metric"].str.endswith(UTILIZATION)]):
        key = text(row["kernel_id"]), number(row["launch"])
        found[key][text(row["metric"])] = number(row["value"])
    return found


def uses(row: Row, found: dict[str, float]) -> dict[str, Use]:
    """Return the use of each resource: its share `found`, or its busiest unit where that is more.

    The Tensor Cores' share looks at their pipe already. `busy` of the row holds the utilizations.
    """
    known = _of_roofs(row, found)
    memory = row["busy"].get(MEMORY_BUSY, math.inf)
    for unit in catalogue().units:
        share = max((row["busy"].get(name, -1.0) for name in unit.metrics), default=-1.0) / 100
        unnamed = bool(set(unit.metrics) & set(WHOLE.values()))
        if share < 0 or (unnamed and 100 * share > memory) or unit.bound == "tensor":
            continue
        # Integers are multiplied by the pipe of the FP32 multiply-adds.
        integer = unit.name == "fma_pipe" and number(row["flops_fp32"]) == 0
        bound = "alu" if integer else unit.bound
        best = known.get(bound, Use(math.nan))
        # The busiest unit of a level is one of those that have a name.
        if not (share < best.share or (unnamed and best.unit and share == best.share)):
            known[bound] = Use(share, "" if bound == "issue" else unit.name)
    return known


def _of_roofs(row: Row, found: dict[str, float]) -> dict[str, Use]:
    """Return the shares as uses, without those of units that ncu does not count for memory."""
    known = {key: Use(share) for key, share in found.items()}
    for level, name in WHOLE.items():
        if math.isnan(number(row[f"{level}_throughput"])):  # ncu's own per cent, and no bytes
            known[level] = Use(found[level], f"{level}_busiest")
        busiest = row["busy"].get(name, math.nan)
        is_it = math.isclose(found[level], busiest / 100)
        if is_it and busiest > row["busy"].get(MEMORY_BUSY, math.inf):
            known[level] = Use(math.nan)
    if found["tensor"] == number(row["tensor_pct"]) / 100 and found["tensor"] > 0:
        known["tensor"] = Use(found["tensor"], "tensor_pipe")
    return known


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
    roof = roofs.level(level, written(row))
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


def _bound(row: Row, found: dict[str, Use]) -> Bound:
    known = {key: use.share for key, use in found.items() if not math.isnan(use.share)}
    if not known or undecided(row, found):
        return Bound()
    ranked = sorted(known, key=lambda key: -known[key])
    top = ranked[0]
    if known[top] < LATENCY_BELOW:
        busiest = max(row["busy"].get(name, 0.0) for name in (SM_BUSY, MEMORY_BUSY)) / 100
        return Bound("latency", found[top] if busiest < known[top] else Use(busiest))
    behind = (key for key in ranked if key in BEHIND.get(top, ()))
    explains = next((key for key in behind if known[key] > known[top] - BALANCED), top)
    second = next((key for key in ranked if key not in (explains, top)), "")
    if known[explains] < BOUND_FROM <= known[top]:
        second = top  # full, with instructions of other kinds beside those that name the bound
    if not second or known[second] < LATENCY_BELOW:
        return Bound(explains, found[explains])
    return Bound(explains, found[explains], second, known[second])


def undecided(row: Row, found: dict[str, Use]) -> list[str]:
    """Return the resources whose unknown share forbids to say what bounds a kernel.

    Nothing where a known one is used most for sure. A scheduler that issues in less than 60 % of
    the cycles cannot saturate an FP pipe, which takes an instruction a cycle; `sm__throughput` is
    the busiest part of the SM, pipes and Tensor Cores among them. Either stands in for the pipes'
    own numbers. Where it, or its like for memory, is far above all that is known, the busiest unit
    is not among these.
    """
    unknown = {key for key, use in found.items() if math.isnan(use.share)}
    top = max((use.share for use in found.values() if not math.isnan(use.share)), default=0.0)
    sm, memory = (row["busy"].get(name, math.nan) / 100 for name in (SM_BUSY, MEMORY_BUSY))
    if sm >= LATENCY_BELOW and sm > top + BALANCED:
        return sorted({"fp32", "fp16", "fp64", "tensor", "issue"} & unknown) + ["alu", "xu"]
    if memory >= LATENCY_BELOW and memory > top + BALANCED:
        return [*sorted({"dram", "l2"} & unknown), "l1"]
    if top >= LATENCY_BELOW:
        return []
    required = [] if memory < LATENCY_BELOW else ["dram", "l2"]
    if not sm < LATENCY_BELOW:
        required.append("tensor")
        if not number(row["issue_active_pct"]) < 100 * LATENCY_BELOW:
            required += ["fp32", "fp16", "fp64"]
    return [key for key in required if key in unknown]


def bound_gaps(
    counters: pd.DataFrame,
    kernels: pd.DataFrame,
    roofs: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
    measured: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return rows of table `gaps`: bounds that cannot be told, and FLOPs beyond their roof."""
    rows = []
    chosen = ceilings(roofs, measured)
    for row, found in _judged(counters, kernels, roofs, metrics, measured):
        if not text(row["bound_by"]):
            rows.append(("counters", row["kernel_id"], "bound_by", _why_unknown(row, found), ""))
        for pipe in PIPES:
            share = _flop_share(row, pipe, chosen)
            if share > BEYOND:
                reason = stored(
                    "its FLOPs are {share:.0%} of the {labels} roof, which cannot be",
                    share=share,
                    labels=LABELS[pipe],
                )
                rows.append(("counters", row["kernel_id"], "roof_share", reason, ""))
    columns = [c.name for c in tables.tables()["gaps"]]
    return tables.check(pd.DataFrame(rows, columns=columns), "gaps")


def _why_unknown(row: Row, found: dict[str, Use]) -> str:
    missing = ", ".join(LABELS[key] for key in undecided(row, found))
    reason = stored("no share of the roof is known for {missing}", missing=missing)
    for name, unit in ((SM_BUSY, "SMs are"), (MEMORY_BUSY, "memory is")):
        busy = row["busy"].get(name, math.nan)
        if busy >= 100 * LATENCY_BELOW:
            return stored(
                "the {unit} {busy:.0f} % busy ({name}), but it was not counted with what: {reason}",
                unit=unit,
                busy=busy,
                name=name,
                reason=reason,
            )
    return reason
