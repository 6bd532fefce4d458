"""Turns the counters of one kernel into causes of what it misses, by the rules of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.build.bound import LABELS as BOUNDS
from nsight_prof.parsers.build.bound import WHERE as COLUMNS
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.evidence import Evidence, wording
from nsight_prof.reports.formats import count, counted, listed, percent, share, significant
from nsight_prof.reports.kernel_facts import Context, blocks, facts, resource_use, unaligned
from nsight_prof.reports.rules import (
    FEW_WARPS,
    OTHER,
    Condition,
    Facts,
    Rule,
    doubt_source,
    doubt_text,
    full_roof,
    kernel_rules,
    known_facts,
    tensor_reason,
)

__all__ = ["Abstained", "Cause", "Context", "blocks", "causes", "explain", "stall_meaning"]

SECTOR_BYTES = 32
SAME = 0.05
"""Part of a kernel's time by which the gains of two causes must differ to tell the larger."""
LSU = "lsu"
"""The data pipe of loads and stores: no bound of a kernel by itself, but an end of gains. It takes
a wavefront a cycle, however few bytes that moves, so that it may be full where L1 is not."""
LABELS = {**BOUNDS, LSU: "load/store pipe"}
WHERE = {**COLUMNS, LSU: ("lsu_pct",)}
LIMITED = {"register_limited": "registers", "shared_limited": "shared memory",
           "block_limited": "blocks", "warps_limited": "warps",
           "barrier_limited": "barriers"}  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """One reason: `text` is a clause, `gain` the part of the kernel's time saved without it (NaN).

    The gain ends where another resource would be at its roof; `price` holds the numbers that it is
    made of. `rank` orders defects before their symptoms; `rule` is what fired.
    """

    rule: Rule
    text: str
    gain: float
    evidence: tuple[Evidence, ...]
    rank: int
    limiter: str = ""
    price: tuple[Evidence, ...] = ()

    @property
    def key(self) -> str:
        """The key of the rule."""
        return self.rule.key


@dataclass(frozen=True)
class Abstained:
    """A rule that could not be held to a kernel: columns of `counters` are missing, or `why`."""

    key: str
    columns: tuple[str, ...]
    why: str = ""


def causes(row: Row, context: Context) -> list[Cause]:
    """Return the causes that the evidence supports, the most telling first.

    `row` holds the columns of `kernels` and `counters` of one kernel, `stall_share` (the share of
    the top stall) and `stalls` (the share of each reason).
    """
    return explain(row, context)[0]


def contradictions(
    row: Row, context: Context, against: tuple[Condition, ...]
) -> tuple[tuple[Evidence, str], ...]:
    """Return the facts that contradict a bound or a rule, each with what it says as a clause.

    A roof that is all but full is one whatever the warps wait for: nothing contradicts it.
    """
    full, _ = full_roof()
    if not against or 100 * number(row["roof_share"]) >= full:
        return ()
    known = facts(row, context)
    found = []
    for condition in against:
        if condition.holds(known):
            fact, value = known_facts()[condition.fact], known[condition.fact]
            limit = f"{condition.words(fact.unit)} speaks against it"
            seen = Evidence(fact.label, value, fact.unit, limit, doubt_source(), fact.where)
            found.append((seen, doubt_text(fact.name, percent(value))))
    return tuple(found)


def explain(row: Row, context: Context) -> tuple[list[Cause], list[Abstained]]:
    """Return the causes of a kernel, and the rules that abstain for want of evidence."""
    known, use = facts(row, context), resource_use(row, context)
    fired: dict[str, Rule] = {}
    abstained = []
    for rule in kernel_rules().values():
        if not _asked(rule, row) or any(key in fired for key in rule.unless):
            continue
        holds = rule.fires(known)
        if holds:
            fired[rule.key] = rule
        elif holds is None:
            abstained.append(_abstained(rule, row, known))
    use[LSU] = number(row["lsu_pct"]) / 100
    found = [_cause(rule, row, known, use, context) for rule in fired.values()]
    return ranked(found), abstained


def ranked(found: Iterable[Cause]) -> list[Cause]:
    """Return causes before their symptoms, the largest gain first; one that is not known leads.

    Of causes whose gains are the same but for SAME, as where they end at one roof, a defect comes
    before too few warps.
    """
    left = sorted(found, key=lambda cause: (max(cause.rank, FEW_WARPS), -_value(cause)))
    order = []
    while left and left[0].rank <= FEW_WARPS:
        near = [c for c in left if c.rank <= FEW_WARPS and _value(c) >= _value(left[0]) - SAME]
        order.append(min(near, key=lambda cause: cause.rank))
        left.remove(order[-1])
    return order + left


def _value(cause: Cause) -> float:
    return math.inf if math.isnan(cause.gain) else cause.gain


def _asked(rule: Rule, row: Row) -> bool:
    """Tell whether a rule is about this kernel: its bound, and its limiter of occupancy."""
    bound = text(row.get("bound_by"))
    if rule.bounds and bound and bound not in rule.bounds:
        return False
    return not rule.limiter or LIMITED[rule.key] == (_limiters(row) or [""])[0]


def _limiters(row: Row) -> list[str]:
    """Return what limits the blocks on an SM, without what only looks as though it did.

    The driver keeps 1 KiB of shared memory per block, and there are as many barriers as blocks:
    both tie with the number of blocks where they are not used at all.
    """
    found = [part for part in text(row["occupancy_limiter"]).split(", ") if part]
    if "blocks" not in found:
        return found
    unused = {"barriers"} | ({"shared memory"} if number(row["shared_bytes"]) == 0 else set())
    return [part for part in found if part not in unused]


def _abstained(rule: Rule, row: Row, known: Facts) -> Abstained:
    missing = [known_facts()[fact] for fact in rule.missing(known)]
    columns = dict.fromkeys(c for fact in missing for c in fact.of if pd.isna(row.get(c)))
    why = next((fact.why for fact in missing if fact.why), "") if not columns else ""
    return Abstained(rule.key, tuple(columns), why)


def _cause(rule: Rule, row: Row, known: Facts, use: dict[str, float], context: Context) -> Cause:
    values = _values(rule, row, known, context)
    return Cause(
        rule=rule,
        text=rule.text.format(**values),
        gain=gain(rule, known, use),
        evidence=_evidence(rule, row, known),
        rank=rule.rank_for(known),
        limiter=values["limiter"],
        price=_price(rule, row, known, use),
    )


def gain(rule: Rule, known: Facts, use: dict[str, float]) -> float:
    """Return the part of a kernel's time that is saved without a cause, 0 to 1; NaN if unknown.

    Of the time that the kernel spends on it some is left, and no resource goes beyond its roof:
    one that the cause does not relieve needs as long as it is busy now (Amdahl and the roofline).
    """
    needed = _needed(rule, known, use)
    return max(0.0, 1 - max(needed.values())) if needed else math.nan


def _needed(rule: Rule, known: Facts, use: dict[str, float]) -> dict[str, float]:
    """Return the parts of its time (0 to 1) that a kernel needs at least without the cause.

    One for each resource, and "" for what is left of the time spent on it; empty if unknown.
    """
    spent = known[rule.spent] / 100 if rule.spent else 1.0
    left = known[rule.left] / 100 if rule.left else 0.0
    if math.isnan(spent) or math.isnan(left):
        return {}
    needed = {"": 1 - min(spent, 1.0) * (1 - left)}
    for resource, part in use.items():
        kept = known[rule.relieves[resource]] / 100 if resource in rule.relieves else 1.0
        if not math.isnan(part * kept):
            needed[resource] = part * kept / rule.reach
    return needed


def _evidence(rule: Rule, row: Row, known: Facts) -> tuple[Evidence, ...]:
    """Return the facts that made a rule fire, with their thresholds, and those beside them."""
    held = {c.fact: c for c in rule.conditions() if c.test != "unknown" and c.holds(known)}
    return _shown(rule, row, known, dict.fromkeys((*rule.shows, *held)), held)


def _price(rule: Rule, row: Row, known: Facts, use: dict[str, float]) -> tuple[Evidence, ...]:
    """Return what the gain of a rule is made of, and the resource at whose roof it ends."""
    seen = _shown(rule, row, known, dict.fromkeys((rule.spent, rule.left)), {})
    return (*seen, *_end(_needed(rule, known, use), rule))


def _shown(
    rule: Rule, row: Row, known: Facts, names: Iterable[str], held: dict[str, Condition]
) -> tuple[Evidence, ...]:
    return tuple(
        _seen(rule, name, row, known[name], held.get(name))
        for name in names
        if name in known_facts() and known_facts()[name].label and not math.isnan(known[name])
    )


def _seen(rule: Rule, name: str, row: Row, value: float, held: Condition | None) -> Evidence:
    fact = known_facts()[name]
    label = fact.label.format(stall=text(row["top_stall"]))
    limit = held.words(fact.unit) if held is not None else ""
    return Evidence(label, value, fact.unit, limit, rule.source, fact.where)


def _end(needed: dict[str, float], rule: Rule) -> list[Evidence]:
    last = max(needed, key=lambda key: needed[key], default="")
    if not last:
        return []
    words = f"time that the work needs afterwards ({LABELS[last]})"
    limit, source = "the gain ends there", "prof: roofline model"
    if rule.reach < 1:
        source = f"its share of the roof / {percent(100 * rule.reach)}, which more warps reach"
    elif last in rule.relieves:
        source = f"its share of the roof x what the cause leaves of its work; {source}"
    return [Evidence(words, 100 * needed[last], "%", limit, source, WHERE[last])]


def _values(rule: Rule, row: Row, known: Facts, context: Context) -> dict[str, str]:
    """Return what the sentences of a rule may show."""
    limiter = listed(_limiters(row))
    made: dict[str, Callable[[], str]] = {
        "blocks": lambda: (
            "blocks" if math.isnan(known["blocks"]) else counted(known["blocks"], "block")
        ),
        "sms": lambda: count(context.sms),
        "waves": lambda: significant(known["waves"]),
        "waves_share": lambda: share(known["waves"]),
        "achieved": lambda: percent(known["achieved_occupancy"]),
        "theoretical": lambda: percent(known["theoretical_occupancy"]),
        "limiter": lambda: limiter,
        "load_bytes": lambda: _bytes(known["load_efficiency"]),
        "store_bytes": lambda: _bytes(known["store_efficiency"]),
        "sector_bytes": lambda: _bytes(known["sector_efficiency"]),
        "conflicts": lambda: percent(100 - known["conflicts_left"]),
        "atomics": lambda: counted(known["atomics_a_warp"], "atomic operation"),
        "threads": lambda: significant(known["threads_per_instruction"], 2),
        "reread": lambda: significant(known["reread"], 2),
        "stall_meaning": lambda: stall_meaning(text(row["top_stall"])),
        "reason": lambda: _reason(rule.key, row, context),
    }
    shown = ("load_efficiency", "store_efficiency", "sector_efficiency",
             "local_share", "fusable", "tail_loss", "sm_balance", "blocks_missing")  # fmt: skip
    made |= {name: (lambda name=name: percent(known[name])) for name in shown}  # type: ignore[misc]
    wanted = {name for name in made if f"{{{name}}}" in rule.text} | {"limiter"}
    return {name: made[name]() for name in wanted}


def _bytes(efficiency: float) -> str:
    return significant(SECTOR_BYTES * efficiency / 100, 2)


def _reason(key: str, row: Row, context: Context) -> str:
    """Return why a matrix product misses the fast kernels, as far as type and size tell."""
    dtype, size = text(row["dtype"]), context.need(row).size
    odd = unaligned(size, dtype)
    if key == "misaligned":
        return tensor_reason("alignment", size=" and ".join(odd)) if odd else ""
    if dtype in ("fp32", "tf32"):
        return tensor_reason("dtype", dtype=dtype.upper())
    if dtype == "fp64":
        return tensor_reason("dtype_fp64")
    if odd:
        return tensor_reason("alignment", size=" and ".join(odd))
    narrow = [f"{side} = {n}" for side, n in zip(("m", "n"), size, strict=False) if n < OTHER * 2]
    return tensor_reason("shape", size=" and ".join(narrow)) if narrow else ""


def stall_meaning(reason: str) -> str:
    """Return what warps of a stall reason wait for, in plain words."""
    return str(wording()["stalls"].get(reason, f"({reason.replace('_', ' ')})"))
