"""What a kernel misses and why: the rules that its counters support, and what each would gain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from nsight_prof.parsers.build.bound import WHERE as COLUMNS
from nsight_prof.parsers.build.roofline import Ceiling
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.metrics.formulas import WARP
from nsight_prof.parsers.ncu.kernel_code import CYCLES
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.findings.kernels.fact import Condition, Context, Fact, Facts, cell
from nsight_prof.reports.findings.kernels.measure import measure, resource_use
from nsight_prof.reports.findings.kernels.memory import LOCAL_SPILLS
from nsight_prof.reports.findings.kernels.occupancy import limiters
from nsight_prof.reports.findings.kernels.roofs import DOUBT_SOURCE, FULL, RESOURCES
from nsight_prof.reports.findings.kernels.rule import FEW_WARPS, Kernel, Rule
from nsight_prof.reports.findings.kernels.rules import RULES
from nsight_prof.reports.findings.shortest_launch import Floor
from nsight_prof.reports.page import Evidence, Number, Text

SAME = 0.05
"""Part of a kernel's time by which the gains of two causes must differ to tell the larger."""
MIN_GAIN = 0.05
"""Minimum gain for a defect to be the primary cause of a roof-bound kernel."""
SECONDARY = 2
"""How many secondary causes to report."""
LSU = "lsu"
"""The data pipe of loads and stores: no bound of a kernel by itself, but an end of gains. It takes
a wavefront a cycle, however few bytes that moves, so that it may be full where L1 is not."""
NAMES = {**RESOURCES, LSU: Text("load/store pipe")}
WHERE = {**COLUMNS, LSU: ("lsu_pct",), "xu": ("issue_active_pct",)}


@dataclass(frozen=True)
class Cause:
    """One reason: `clause` says it, `gain` is the part of the kernel's time saved without it.

    The gain (NaN: not known) ends where another resource would be at its roof; `price` holds the
    numbers that it is made of. `rank` orders defects before their symptoms.
    """

    rule: Rule
    clause: Text
    gain: float
    evidence: tuple[Evidence, ...]
    rank: int
    price: tuple[Evidence, ...] = ()

    @property
    def key(self) -> str:
        """The key of the rule."""
        return self.rule.key


@dataclass(frozen=True)
class Abstained:
    """A rule that was not applied to a kernel: columns are missing, or there is a `reason`."""

    key: str
    columns: tuple[str, ...]
    reason: Text | None = None


@dataclass(frozen=True)
class Judged:
    """One profiled kernel with its causes and the part of its time that can go at most.

    `cause` is the one that explains it; None where nothing does but its roof. `gain` ends where
    kernels of its kind were seen to end, or what must follow on its products (`end`, None where
    neither is known), and `at_roof` only at its roof. `peer` is the kernel of its kind, of products
    one of comparable size, that came nearest to it; None where that is itself. `nearest` is the
    resource with the highest share of its roof, `roof` that roof (None: not known, or the issue
    slots). `floor` is the shortest launch where the gain ends there, `fixed` the same where it
    stays beside the work of a short kernel at its roof, and `doubts` what contradicts the bound or
    the cause: the number, and what it says.
    """

    row: Row
    causes: tuple[Cause, ...]
    cause: Cause | None
    gain: float
    at_roof: float
    end: Evidence | None = None
    peer: Row | None = None
    abstained: tuple[Abstained, ...] = ()
    nearest: str = ""
    roof: Ceiling | None = None
    floor: Floor | None = None
    fixed: Floor | None = None
    doubts: tuple[tuple[Evidence, Text], ...] = ()

    @property
    def bound(self) -> str:
        """The resource that limits the kernel, or latency."""
        return text(self.row["bound_by"])

    @property
    def resource(self) -> str:
        """The resource whose roof the share is of: of a kernel that waits the nearest."""
        return self.nearest if self.bound == "latency" else self.bound

    @property
    def secondary(self) -> tuple[Cause, ...]:
        """The causes beside the one that explains it, the largest first."""
        others = (
            cause
            for cause in self.causes
            if cause is not self.cause and cause.rank <= FEW_WARPS and cause.gain >= MIN_GAIN
        )
        return tuple(others)[:SECONDARY]


def causes(row: Row, context: Context) -> list[Cause]:
    """Return the causes that the evidence supports, the most telling first.

    `row` holds the columns of `kernels` and `counters` of one kernel, `stall_share` (the share of
    the top stall) and `stalls` (the share of each reason).
    """
    return explain(row, context)[0]


def explain(row: Row, context: Context) -> tuple[list[Cause], list[Abstained]]:
    """Return the causes of a kernel, and the rules that abstain for want of evidence."""
    facts, use = measure(row, context), resource_use(row, context)
    fired: dict[str, Rule] = {}
    abstained = []
    for rule in RULES:
        if not _applies(rule, row) or any(key in fired for key in rule.unless):
            continue
        fires = rule.when.evaluate(facts)
        if fires:
            fired[rule.key] = rule
        elif fires is None:
            abstained.append(_abstained(rule, row, facts))
    use[LSU] = number(row["lsu_pct"]) / 100
    # Also where ncu was not asked for that pipe: what warps wait for is then no latency.
    use.setdefault("xu", CYCLES * number(row.get("special_share")) * use["issue"])
    kernel = Kernel(row, context, facts)
    found = [_cause(rule, kernel, use) for rule in fired.values()]
    return ranked(_with_more_warps(found, kernel, use)), abstained


def _with_more_warps(found: list[Cause], kernel: Kernel, use: dict[str, float]) -> list[Cause]:
    """Return causes, of which spills of a block of one or two warps have what too few warps cost,
    too: more warps for the same tile need fewer registers each, and hide more waits.
    """
    few = max((c.gain for c in found if c.rank == FEW_WARPS and c.gain > 0), default=0.0)
    if not (few and kernel.facts["threads"] <= 2 * WARP):
        return found
    mended = []
    for cause in found:
        if cause.key == LOCAL_SPILLS.key and cause.gain > 0:
            needs = required(cause.rule, kernel.facts, use)
            at_roofs = max((share for name, share in needs.items() if name), default=0.0)
            both = 1 - max((1 - cause.gain) * (1 - few), at_roofs)
            clause = Text("{clause}; more warps for each block mend that and its waits, too",
                          clause=cause.clause)  # fmt: skip
            cause = replace(cause, clause=clause, gain=max(cause.gain, both))
        mended.append(cause)
    return mended


def ranked(found: Iterable[Cause]) -> list[Cause]:
    """Sort causes before symptoms, largest gain first; an unknown gain sorts first.

    Of causes whose gains are the same but for SAME, as where they end at one roof, a defect comes
    before too few warps.
    """
    queue = sorted(found, key=lambda cause: (max(cause.rank, FEW_WARPS), -_value(cause)))
    order = []
    while queue and queue[0].rank <= FEW_WARPS:
        near = [c for c in queue if c.rank <= FEW_WARPS and _value(c) >= _value(queue[0]) - SAME]
        order.append(min(near, key=lambda cause: cause.rank))
        queue.remove(order[-1])
    return order + queue


def _value(cause: Cause) -> float:
    return math.inf if math.isnan(cause.gain) else cause.gain


def _applies(rule: Rule, row: Row) -> bool:
    """Tell whether a rule is about this kernel: its bound, and its limiter of occupancy."""
    bound = text(row.get("bound_by"))
    if rule.bounds and bound and bound not in rule.bounds:
        return False
    return not rule.limiter or rule.limiter == (limiters(row) or [""])[0]


def _abstained(rule: Rule, row: Row, facts: Facts) -> Abstained:
    missing = rule.missing(facts)
    columns = dict.fromkeys(c for fact in missing for c in fact.of if pd.isna(row.get(c)))
    reason = next((fact.missing for fact in missing if fact.missing), None) if not columns else None
    return Abstained(rule.key, tuple(columns), reason)


def _cause(rule: Rule, kernel: Kernel, use: dict[str, float]) -> Cause:
    thresholds = {
        c.fact: c for c in rule.when.conditions() if c.limit == c.limit and c.evaluate(kernel.facts)
    }
    price = _rows(rule, kernel, [f for f in (rule.time, rule.remaining) if f is not None], {})
    return Cause(
        rule=rule,
        clause=rule.clause(kernel),
        gain=gain(rule, kernel.facts, use),
        evidence=_rows(rule, kernel, (*rule.evidence, *thresholds), thresholds),
        rank=rule.rank_for(kernel.facts),
        price=(*price, *_end(rule, kernel, required(rule, kernel.facts, use))),
    )


def gain(rule: Rule, facts: Facts, use: dict[str, float]) -> float:
    """Return the part of a kernel's time that is saved without a cause, 0 to 1; NaN if unknown.

    Of the time that the kernel spends on it some is left, and no resource goes beyond its roof:
    one that the cause does not relieve needs as long as it is busy now (Amdahl and the roofline).
    """
    required_shares = required(rule, facts, use)
    return max(0.0, 1 - max(required_shares.values())) if required_shares else math.nan


def required(rule: Rule, facts: Facts, use: dict[str, float]) -> dict[str, float]:
    """Return the minimum parts of its time (0 to 1) that a kernel needs without the cause.

    One for each resource, and "" for what is left of the time spent on it; empty if unknown.
    """
    time_share = facts[rule.time.name] / 100 if rule.time else 1.0
    remaining = facts[rule.remaining.name] / 100 if rule.remaining else 0.0
    if math.isnan(time_share) or math.isnan(remaining):
        return {}
    required_shares = {"": 1 - min(time_share, 1.0) * (1 - remaining)}
    for resource, busy in use.items():
        work = facts[fact.name] / 100 if (fact := rule.unloads.get(resource)) is not None else 1.0
        if not math.isnan(busy * work):
            # Copies do not come nearer to the roof of DRAM.
            near = threshold("near_roof") if resource == "dram" else math.inf
            required_shares[resource] = busy * work / min(rule.attainable, near)
    return required_shares


def _rows(
    rule: Rule, kernel: Kernel, facts: Iterable[Fact], thresholds: dict[Fact, Condition]
) -> tuple[Evidence, ...]:
    """Return known facts as evidence, with the thresholds that they are compared with."""
    return tuple(
        Evidence(
            fact.label_of(kernel.row),
            kernel.number(fact),
            thresholds[fact].threshold if fact in thresholds else None,
            rule.source,
        )
        for fact in dict.fromkeys(facts)
        if fact.label is not None and not math.isnan(kernel.facts[fact.name])
    )


def _end(rule: Rule, kernel: Kernel, required_shares: dict[str, float]) -> list[Evidence]:
    """Return the resource at whose roof the gain ends; none where it does not end at one."""
    last = max(required_shares, key=lambda key: required_shares[key], default="")
    if not last:
        return []
    source = Text("prof: roofline model")
    if rule.attainable < 1:
        source = Text(
            "its share of the roof / {attainable}, which more warps reach",
            attainable=Number(rule.attainable, "fraction"),
        )
    elif last in rule.unloads:
        source = Text(
            "its share of the roof x what the cause leaves of its work; prof: roofline model"
        )
    refs = tuple(cell(name, text(kernel.row.get("kernel_id"))) for name in WHERE[last])
    return [
        Evidence(
            Text("time that the work needs afterwards ({resource})", resource=NAMES[last]),
            Number(100 * required_shares[last], "%", refs),
            Text("the gain ends there"),
            source,
        )
    ]


def contradictions(
    row: Row, context: Context, conditions: tuple[Condition, ...]
) -> tuple[tuple[Evidence, Text], ...]:
    """Return the facts that contradict a bound or a rule, each with what it says as a clause.

    A roof that is all but full is one whatever the warps wait for: nothing contradicts it.
    """
    if not conditions or 100 * number(row["roof_share"]) >= FULL:
        return ()
    kernel = Kernel(row, context, measure(row, context))
    found = []
    for condition in conditions:
        if condition.evaluate(kernel.facts):
            value = kernel.number(condition.fact)
            limit = Text("{threshold} speaks against it", threshold=condition.threshold)
            label = condition.fact.label_of(row)
            clause = DOUBTS[condition.fact.name](value)
            found.append((Evidence(label, value, limit, DOUBT_SOURCE), clause))
    return tuple(found)


DOUBTS = {
    "all_memory_waits": lambda value: Text(
        "its warps wait for memory in {part} of their stalls, so that fewer instructions may save "
        "less",
        part=value,
    ),
    "execution_waits": lambda value: Text(
        "its warps wait for instructions and pipes in {part} of their stalls, so that less traffic "
        "may save less",
        part=value,
    ),
}
"""Fact that contradicts a bound or a rule -> what it says."""
