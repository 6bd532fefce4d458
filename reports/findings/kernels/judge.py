"""Judges profiled kernels: what explains the distance to the roof, and what could go at most."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.parsers.build.bound import BORDER, BOUND_FROM, LATENCY_BELOW, is_borderline
from nsight_prof.parsers.build.roofline import ceilings, written
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.needs import needs
from nsight_prof.reports.analysis.profiled import is_mixed, profiled, sm_count
from nsight_prof.reports.findings.kernels.causes import (
    MIN_GAIN,
    Cause,
    Judged,
    contradictions,
    explain,
)
from nsight_prof.reports.findings.kernels.fact import Context
from nsight_prof.reports.findings.kernels.matrix import OWN
from nsight_prof.reports.findings.kernels.measure import CHAIN, resource_use
from nsight_prof.reports.findings.kernels.memory import ATOMICS, CHAINED
from nsight_prof.reports.findings.kernels.occupancy import ACHIEVED_OCCUPANCY
from nsight_prof.reports.findings.kernels.roofs import RESOURCES, ROOFS
from nsight_prof.reports.findings.kernels.rule import DEFECT, Rule
from nsight_prof.reports.findings.kernels.waits import LATENCY, REMEDIES
from nsight_prof.reports.findings.shortest_launch import Floor, shortest_launch
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text, Verbatim

EXPONENTIALS = 16.0
"""Special functions per cycle and SM (CUDA C programming guide, arithmetic instructions: compute
capability 5.0 to 10.0)."""
FLOPS_PER_SCORE = 4
"""FLOPs of attention for each score, by size of its heads: two products, a multiply and an add in
each. A score takes one exponential."""
SHORT_NS = 20_000.0
"""A kernel this short is some launches long: its start and end are a part of its time."""
WORK = ("dram", "tensor", "fp16", "fp32", "fp64")
"""Resources whose use is the work of a kernel: the bytes and FLOPs of its task."""
SIZED, COMPARABLE = ("gemm", "gemv"), 2.0
"""Categories of products, of which small ones come less near to a roof than large ones, and the
ratio of their work up to which one is a bar for the other."""
WORK_OF = {"dram": "dram_bytes"}
"""Bound -> the column of its work; FLOPs for others."""
TILED = 0.6
"""Part of the roof of the Tensor Cores that products with tiles by hand reach (36 to 78 % in
recorded runs of an H200)."""
LITTLE = 0.1
"""Part of the time that bytes and FLOPs need, below which they are not the work of a kernel."""
MOSTLY = 0.5
"""Part of the instructions from which on they are what a kernel is for."""
LAID_OUT = ("gemm", "gemv", "conv", "attention", "embedding")
"""Kernels of libraries that read tiles or whole rows: how contiguous inputs are changes nothing."""
EXCESS = ("issue", "alu", "xu", "l2")
"""Bounds that say nothing of the work: data of tiles goes through L1 and shared memory anyway."""


def context_of(run: Run) -> Context:
    """Return what the rules need to know of a run beside the counters of a kernel."""
    return Context(sm_count(run), ceilings(run.roofs, run.measured_roofs), needs(run))


@once
def judge(run: Run) -> list[Judged]:
    """Return the profiled kernels whose bound is known, most GPU time first."""
    context, floor = context_of(run), shortest_launch(run)
    rows = [row for row in profiled(run) if text(row["bound_by"])]
    leads = [row for row in rows if _leads(row)]
    return [_judged(row, context, floor, _peer(row, leads)) for row in rows]


def _peer(row: Row, leads: Sequence[Row]) -> Row:
    """Return the kernel of its kind that came nearest to its roof; of products one whose launches
    move about as many bytes or FLOPs. The kernel itself where there is none.
    """
    alike = [lead for lead in leads if _kind(lead) == _kind(row)]
    if row["category"] in SIZED:
        work = WORK_OF.get(text(row["bound_by"]), "flops")
        low, high = number(row[work]) / COMPARABLE, number(row[work]) * COMPARABLE
        alike = [lead for lead in alike if low <= number(lead[work]) <= high]
    return max(alike, key=traced_share, default=row)


def _judged(row: Row, context: Context, floor: Floor, peer: Row) -> Judged:
    found, abstained = explain(row, context)
    cause = explanation(row, found)
    gain = at_roof = _gain(row, cause)
    minimum, end = _softmax(row, context)
    if end is None and cause is None and peer is not row:
        minimum, end = _nearest_of_kind(row, peer)
    elif end is None and cause is None:
        minimum, end = _work_alone(row, context)
        gain, at_roof = 1.0, max(at_roof, 1 - BOUND_FROM * minimum if end is not None else 0.0)
    elif end is None and cause is not None:
        mendable = _is_mendable(cause.rule, row, context)
        minimum = 0.0 if mendable and not _waits_for_dram(cause.rule, row, context) else 1.0
    gain = max(0.0, min(gain, 1 - minimum))
    fixed = floor if _keeps_its_start(row, cause, floor) else None
    bounded = _above_floor(row, floor, gain)
    if fixed is not None:
        start = fixed.ns / number(row["mean_ns"])
        # More blocks share the work of a launch, not its start; at a roof the whole rest is work.
        bounded, at_roof = (
            max(0.0, share * (1 - start) if cause is not None else share - start)
            for share in (gain, at_roof)
        )
    use = {k: v for k, v in resource_use(row, context).items() if not math.isnan(v)}
    nearest = max(use, key=lambda key: use[key], default="")
    resource = nearest if row["bound_by"] == "latency" else text(row["bound_by"])
    if cause is not None:
        conditions = cause.rule.contradicted_by
    else:
        conditions = ROOFS[text(row["bound_by"])].contradicted_by
    return Judged(
        row=row,
        causes=tuple(found),
        cause=cause,
        gain=bounded,
        at_roof=max(bounded, _above_floor(row, floor, at_roof)),
        end=end if bounded < at_roof else None,
        peer=peer if peer is not row else None,
        abstained=tuple(abstained),
        nearest=nearest,
        roof=context.roofs.level(resource, written(row))
        or context.roofs.pipe(resource, text(row["tensor_dtype"]) or text(row.get("dtype"))),
        floor=floor if bounded < gain and fixed is None else None,
        fixed=fixed,
        doubts=(*contradictions(row, context, conditions), *_borderline(row, nearest)),
    )


def _is_mendable(rule: Rule, row: Row, context: Context) -> bool:
    """Tell whether what a cause costs is known to go with what is to be done about it.

    A wait, or warps that are not there, is a symptom: what ends one for memory, or how much of it,
    nothing tells. One for a pipe that computes the numbers of the task ends with that task alone.
    And in the code of a library nobody but its authors has more warps or fewer atomics; where these
    do queue at one address, other data spreads them.
    """
    in_program, stall = text(row["library"]) in OWN, text(row["top_stall"])
    if rule is LATENCY and stall == "math_pipe_throttle":
        use = resource_use(row, context)
        return in_program and not any(use[pipe] >= LITTLE for pipe in ("fp16", "fp32", "fp64"))
    if rule is LATENCY:
        return in_program and stall in REMEDIES
    if rule.in_code and not in_program:
        by_inputs = rule.by_inputs and row["category"] not in LAID_OUT
        return by_inputs or (rule is ATOMICS and CHAIN * number(row["atomic_pct"]) >= CHAINED)
    return rule is not ACHIEVED_OCCUPANCY


def _waits_for_dram(rule: Rule, row: Row, context: Context) -> bool:
    """Tell whether DRAM bounds a kernel and its warps wait for that, where a cause leaves all bytes
    to it: fewer instructions may save nothing then.
    """
    stays = text(row["bound_by"]) == "dram" and "dram" not in rule.unloads
    return stays and bool(contradictions(row, context, rule.contradicted_by))


def _borderline(row: Row, resource: str) -> tuple[tuple[Evidence, Text], ...]:
    reached, limit = 100 * number(row["roof_share"]), 100 * LATENCY_BELOW
    if not is_borderline(text(row["bound_by"]), number(row["roof_share"])):
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
    clause = Text(
        "{resource} is nearly a limit, too: it reaches {reached} of its roof, and {limit} counts",
        reached=share,
        limit=Number(limit, "%"),
        resource=RESOURCES[resource],
    )
    return ((evidence, clause),)


def explanation(row: Row, found: list[Cause]) -> Cause | None:
    """Return the cause that explains what a kernel misses; None where its roof does.

    A kernel that waits has the first cause that is worth it, and the first of all where none is.
    One at a roof has a defect that would take work off that roof: only then is there more to gain
    than a tenth.
    """
    if text(row["bound_by"]) == "latency":
        large = (cause for cause in found if not cause.gain < MIN_GAIN)
        return next(large, found[0] if found else None)
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
    return max(0.0, 1 - traced_share(row))


def traced_share(row: Row) -> float:
    """Return the share of its roof (0 to 1) that a kernel reached in the mean launch of the trace.

    DRAM moves as many bytes there in another time than under ncu. What is counted in cycles takes
    as many of them, at its own clock; so does one launch of many kinds of work tell of no other.
    """
    share, mean = number(row["roof_share"]), number(row["mean_ns"])
    if text(row["bound_by"]) != "dram" or is_mixed(row) or not mean > 0:
        return share
    return min(1.0, share * number(row["duration_ns"]) / mean)


def _kind(row: Row) -> tuple[str, str]:
    """Return what kernels have in common of which one shows how near others come to a roof."""
    return text(row["category"]), text(row["bound_by"])


def _leads(row: Row) -> bool:
    """Tell whether a kernel shows how near others of its kind could come to their roof.

    Roofs are measured with kernels that do nothing else. How busy instructions and units are tells
    of no other kernel, and what is of no known kind has none.
    """
    known = text(row["bound_by"]) in ("dram", "tensor") and text(row["category"]) != "other"
    unit = text(row["bound_unit"])
    return known and not unit and not is_mixed(row) and traced_share(row) >= BOUND_FROM


def _nearest_of_kind(row: Row, peer: Row) -> tuple[float, Evidence]:
    """Return the part of its time that a kernel needs as near to its roof as the best of its kind.

    And the same as evidence.
    """
    minimum = min(1.0, traced_share(row) / traced_share(peer))
    cells = tuple(
        Ref(table, text(kernel["kernel_id"]), name)
        for kernel in (row, peer)
        for table, name in (("counters", "roof_share"), ("kernels", "mean_ns"))
    )
    best = Number(traced_share(peer), "fraction")
    return minimum, Evidence(
        Text("time that it needs as near to the roof as the best of its kind here"),
        Number(100 * minimum, "%", cells),
        Text("the gain ends there"),
        Text(
            "{best}, in the trace: {kernel}",
            best=best,
            kernel=Name(text(peer["short_name"]), Ref("kernels", text(peer["kernel_id"]))),
        ),
    )


def _work_alone(row: Row, context: Context) -> tuple[float, Evidence | None]:
    """Return the part of its time that the bytes and FLOPs of a kernel need, and that as evidence.

    Instructions, and what they move on the chip, are no work by themselves: where they fill the
    slots of the program's own code, less of them do; where traffic of L2 goes, they stay. 1 and
    None for others: nothing shows that the same kernel comes nearer to its roof, and one with
    LITTLE of both has other work (integers), as one whose instructions mostly compute floats.
    """
    use, by_l2 = resource_use(row, context), row["bound_by"] == "l2"
    work = (*WORK, "issue") if by_l2 else WORK
    reached = {key: TILED if key == "tensor" else BOUND_FROM for key in work}
    busy = {k: use[k] / limit for k, limit in reached.items() if use.get(k, math.nan) >= 0}
    of_program = text(row["library"]) in OWN and row["category"] != "attention"
    of_program &= by_l2 or number(row.get("float_share")) < MOSTLY
    if not of_program or text(row["bound_by"]) not in EXCESS or not busy:
        return 1.0, None
    last = max(busy, key=lambda key: busy[key])
    minimum = min(1.0, busy[last])
    if minimum < LITTLE:
        return 1.0, None
    refs = tuple(Ref("counters", text(row["kernel_id"]), name) for name in ("dram_pct", "flops"))
    return minimum, Evidence(
        Text("time that its bytes of DRAM and its FLOPs need"),
        Number(100 * minimum, "%", refs),
        Text("the gain ends there"),
        Text("the larger share of their roofs / {part}", part=Number(reached[last], "fraction")),
    )


def _softmax(row: Row, context: Context) -> tuple[float, Evidence | None]:
    """Return the part of its time that attention needs if no exponential runs beside its products.

    And the same as evidence. The roof of the Tensor Cores was measured with products alone. 0 and
    None where the part is not known, or no less than its time.
    """
    size = classify(text(row["name"])).details.get("head_dim", "")
    flops, clock = number(row["flops_tensor"]), number(row["sm_clock_hz"])
    seconds = number(row["duration_ns"]) / 1e9
    tensor = resource_use(row, context).get("tensor", math.nan)
    if row["category"] != "attention" or not size.isdigit() or not flops > 0:
        return 0.0, None
    rate = EXPONENTIALS * context.sms * clock
    minimum = tensor + flops / (FLOPS_PER_SCORE * int(size)) / rate / seconds
    if not minimum < 1:
        return 0.0, None
    return minimum, Evidence(
        Text("time that products need, and exponentials one after another with them"),
        Number(100 * minimum, "%", (Ref("counters", text(row["kernel_id"]), "flops_tensor"),)),
        Text("the gain ends there"),
        Text("FLOPs / (4 x head size) exponentials, 16 per cycle and SM"),
    )


def _keeps_its_start(row: Row, cause: Cause | None, floor: Floor) -> bool:
    """Tell whether a kernel is so short that its start and end are a part of its time.

    A launch takes t0 + work / roof, and t0 + work / SMs of one that has too few blocks: what the
    shortest launch of the trace takes stays.
    """
    of_roof = cause is None and text(row["bound_by"]) != "latency"
    of_blocks = cause is not None and cause.rule.batches
    short = floor.ns < number(row["mean_ns"]) < SHORT_NS
    return (of_roof or of_blocks) and bool(floor.kernel) and short


def _above_floor(row: Row, floor: Floor, gain: float) -> float:
    """Return the gain, of which no kernel that waits gets shorter than the shortest launch."""
    mean = number(row["mean_ns"])
    if row["bound_by"] != "latency" or not (floor.ns > 0 and mean > 0):
        return gain
    return min(gain, max(0.0, 1 - floor.ns / mean))
