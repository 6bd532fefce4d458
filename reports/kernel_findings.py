"""Turns profiled kernels into findings: what limits each, how far its roof is, what that gains."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from reports.bound import LABELS
from reports.causes import Cause, causes
from reports.cells import Row, names, number, text
from reports.evidence import Evidence, Finding, say, source, threshold
from reports.formats import counted, duration, share
from reports.load import Run
from reports.profiled import is_mixed, kernel_time, profiled, sm_count
from reports.roofline import Ceilings, ceilings

TENSOR_TYPES = {"fp32": "tf32", "": "tf32"}
"""The Tensor Core type that takes the place of a type without one."""

BY = {key: f"limited by {label}" for key, label in LABELS.items()} | {
    "tensor": "limited by the Tensor Cores",
    "latency": "spent waiting with nothing saturated",
}
FUSIBLE = ("elementwise", "copy", "norm", "rotary", "softmax", "quantize")
"""Categories that do little with each byte: compilers fuse them with their neighbours."""
ALWAYS_TELLING = ("tensor_idle", "sectors", "bank_conflicts")
ON_CHIP = ("latency", "l1", "l2")
"""Bounds that fewer sectors move; DRAM moves the bytes that the caches missed, whoever asked."""
"""Causes that matter for a kernel at a roof too; the others explain only waiting."""


@dataclass(frozen=True)
class Judged:
    """One profiled kernel with its causes and the part of its time that can go at most."""

    row: Row
    causes: tuple[Cause, ...]
    gain: float


def kernel_findings(run: Run) -> list[Finding]:
    """Return a finding for each group of kernels with one readable name and one bound."""
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for judged in _judge(run):
        key = text(judged.row["short_name"]), text(judged.row["bound_by"])
        groups[key].append(judged)
    found = [_finding(group, kernel_time(run)) for group in groups.values()]
    return [finding for finding in found if _worth_saying(finding)]


def bound_findings(run: Run) -> list[Finding]:
    """Return how the GPU time divides by what limits it; empty without trace or counters."""
    total, judged = kernel_time(run), _judge(run)
    parts: dict[str, float] = defaultdict(float)
    for one in judged:
        parts[text(one.row["bound_by"])] += number(one.row["share"])
    known = sum(parts.values())
    # Of one kernel the finding of that kernel says it all.
    if len(judged) < 2 or math.isnan(total) or math.isnan(known):
        return []
    gain = sum(number(j.row["share"]) * j.gain for j in judged)
    ranked = sorted(parts, key=lambda key: -parts[key])
    split = [f"{share(parts[key])} is {BY[key]}" for key in ranked]
    rest = f"; {share(1 - known)} was not measured" if known < 0.995 else ""
    saved = f"{share(gain)} of the GPU time ({duration(gain * total)})"
    first = f"{share(parts[ranked[0]])} of the GPU time is {BY[ranked[0]]}"
    whose = "measured kernels" if 1 - known >= threshold("unmeasured") else "kernels"
    # What sectors cost is an estimate, and no bound as the roof is.
    most = "about" if any(_scattered(one) is not None for one in judged) else "at most"
    return [
        Finding(
            key="bounds",
            title=first,
            headline=f"{first}; better kernels could save {most} {share(gain)} in all",
            sentence=f"Of the GPU time, {', '.join(split)}{rest}. {whose.capitalize()} that do the "
            f"same work at their limits would save {most} {saved} in all; more takes less work or "
            "less data.",
            share=known,
            gain_kernel=gain / known,
            gain_program=gain,
            gain_ns=gain * total,
            bound=ranked[0],
            confidence="medium",
        )
    ]


def _judge(run: Run) -> list[Judged]:
    """Return the profiled kernels whose bound is known, most GPU time first."""
    roofs, sms = ceilings(run.roofs), sm_count(run)
    floor = number(run.kernels["min_ns"].min())
    found = []
    for row in (r for r in profiled(run) if text(r["bound_by"])):
        why = tuple(causes(row, sms))
        found.append(Judged(row, why, _gain(row, why, roofs, floor)))
    return found


def _gain(row: Row, why: tuple[Cause, ...], roofs: Ceilings, floor_ns: float) -> float:
    """Return the part of a kernel's time that can go at most.

    Never beyond the roof: with its bytes and FLOPs the kernel needs at least `roof_share` of its
    time. Where it waits, NVIDIA's estimate for the cause is smaller and is used, and no kernel gets
    shorter than the shortest launch of the trace.
    """
    room = 1 - number(row["roof_share"])
    judged = Judged(row, why, room)
    if _on_wrong_unit(judged):
        room = max(room, _tensor_room(row, roofs))
    elif (scattered := _scattered(judged)) is not None and not math.isnan(scattered.gain):
        # Its share of the L1 or L2 roof is that of sectors of which most bytes are not needed.
        room = scattered.gain
    elif row["bound_by"] == "latency" and why and not math.isnan(why[0].gain):
        room = min(room, why[0].gain)
    if row["bound_by"] == "latency" and floor_ns > 0 and number(row["mean_ns"]) > 0:
        room = min(room, 1 - floor_ns / number(row["mean_ns"]))
    return max(0.0, room)


def _tensor_room(row: Row, roofs: Ceilings) -> float:
    """Return the gain of moving the FLOPs to the Tensor Cores; -1 where their roof is unknown."""
    dtype = text(row["dtype"])
    roof = roofs.pipe("tensor", TENSOR_TYPES.get(dtype, dtype))
    if roof is None:
        return -1.0
    rate = number(row["flop_throughput"])
    needed = [rate / roof.value, number(row["dram_pct"]) / 100, number(row["l2_pct"]) / 100]
    return -1.0 if any(math.isnan(n) for n in needed) else 1 - max(needed)


def _finding(group: list[Judged], total_ns: float) -> Finding:
    lead = group[0]
    shares = [number(j.row["share"]) for j in group]
    taken = sum(shares)
    gained = sum(s * j.gain for s, j in zip(shares, group, strict=True))
    gain_kernel = lead.gain if math.isnan(taken) else gained / taken
    finding = Finding(
        key="kernel",
        title=_title(lead),
        headline="",
        sentence="",
        kernel_ids=tuple(text(j.row["kernel_id"]) for j in group),
        share=taken,
        evidence=tuple(_evidence(lead)),
        gain_kernel=gain_kernel,
        gain_program=gained,
        gain_ns=gained * total_ns,
        bound=text(lead.row["bound_by"]),
        action=say("actions", _action(lead), limiter=_limiter(lead)),
        advice=say("advice", _action(lead)),
        confidence=_confidence(group),
    )
    words = {"headline": _headline(finding, lead), "sentence": _sentence(finding, group)}
    return Finding(**{**finding.__dict__, **words})


def _title(judged: Judged) -> str:
    row, bound = judged.row, text(judged.row["bound_by"])
    if bound == "latency":
        return f"{row['short_name']}: {say('waits', _cause(judged))}"
    if bound == "issue":
        return f"{row['short_name']}: instruction issue, {share(row['roof_share'])} of its slots"
    return f"{row['short_name']}: {LABELS[bound]}, {share(row['roof_share'])} of the roof"


def _headline(finding: Finding, lead: Judged) -> str:
    name = lead.row["short_name"]
    if math.isnan(finding.share) and finding.bound == "latency":
        return f"{name}: {_waiting(lead)}"
    if math.isnan(finding.share):
        return f"{name}: {BY[finding.bound]}, at {share(lead.row['roof_share'])} of the roof"
    takes = f"{name} takes {share(finding.share)} of the GPU time"
    if finding.bound == "latency":
        return f"{takes}; {_waiting(lead)}: at most {share(finding.gain_program)} to gain"
    of = "the slots" if finding.bound == "issue" else "the roof"
    reached = f"{BY[finding.bound]} at {share(lead.row['roof_share'])} of {of}"
    gain = "only less work helps" if _near(lead) else f"{share(finding.gain_program)} to gain"
    return f"{takes}, {reached}: {gain}"


def _sentence(finding: Finding, group: list[Judged]) -> str:
    lead = group[0]
    what = f"{lead.row['short_name']}{_variants(group)}"
    reached = share(lead.row["roof_share"])
    limit = say("limits", finding.bound, reached=reached, cause=_cause_text(lead))
    scattered = _scattered(lead)
    if scattered is not None and finding.bound != "latency":
        limit += f", since {scattered.text}"
    if math.isnan(finding.share):
        where = f"took {duration(lead.row['duration_ns'])} in the launch that was profiled"
        return f"{what} {where}; {limit}."
    calls = sum(number(j.row["calls"]) for j in group)
    total = sum(number(j.row["total_ns"]) for j in group)
    spent = f"{duration(total)} in {counted(calls, 'call')}{_stages(group)}"
    where = f"takes {share(finding.share)} of the GPU time ({spent})"
    return f"{what} {where}; {limit}. {_mixed_text(finding, group) or _gain_text(finding, lead)}"


def _gain_text(finding: Finding, lead: Judged) -> str:
    saved = f"{share(finding.gain_program)} of the GPU time ({duration(finding.gain_ns)})"
    if _near(lead):
        return f"That is near the roof: the rest is worth at most {saved}."
    if _on_wrong_unit(lead):
        return f"On the Tensor Cores it could save at most {saved}."
    if _scattered(lead) is not None:
        return f"With neighbouring accesses it could save about {saved}."
    if finding.bound == "issue":
        return f"With the same instructions it could save at most {saved}; fewer save more."
    if finding.bound == "latency":
        return f"Without that wait it could save at most {saved}."
    return f"At the full roof it would save at most {saved}."


def _mixed_text(finding: Finding, group: list[Judged]) -> str:
    """Say where launches of one kernel do different work, of which one only was profiled."""
    rows = [judged.row for judged in group if is_mixed(judged.row)]
    if not rows:
        return ""
    span = f"{duration(rows[0]['min_ns'])} to {duration(rows[0]['max_ns'])}"
    return (
        f"Its launches take {span}, so one launch does not stand for all: only if they were all "
        f"like the profiled one ({duration(rows[0]['duration_ns'])}), the most to gain would be "
        f"{share(finding.gain_program)} of the GPU time."
    )


def _variants(group: list[Judged]) -> str:
    return f" ({len(group)} launch shapes)" if len(group) > 1 else ""


def _stages(group: list[Judged]) -> str:
    stages: list[str] = []
    for judged in group:
        stages += [name for name in names(judged.row["stage"]) if name not in stages]
    return f", in {' and '.join(stages)}" if stages else ""


def _on_wrong_unit(judged: Judged) -> bool:
    """Tell whether the kernel is bound by anything but memory for want of Tensor Cores."""
    return _cause(judged) == "tensor_idle" and judged.row["bound_by"] != "dram"


def _scattered(judged: Judged) -> Cause | None:
    """Return the cause of a kernel whose time goes into sectors of which it needs little."""
    if judged.row["bound_by"] not in ON_CHIP or _on_wrong_unit(judged):
        return None
    found = [cause for cause in judged.causes if cause.key == "sectors"]
    first = judged.causes[:1] == tuple(found) or judged.row["bound_by"] != "latency"
    return found[0] if found and first else None


def _near(judged: Judged) -> bool:
    if _on_wrong_unit(judged) or _scattered(judged) is not None:
        return False
    if judged.row["bound_by"] in ("issue", "latency"):
        return False
    limit = "near_dram_roof" if judged.row["bound_by"] == "dram" else "near_roof"
    return number(judged.row["roof_share"]) >= threshold(limit)


def _cause(judged: Judged) -> str:
    return judged.causes[0].key if judged.causes else "unknown"


def _cause_text(judged: Judged) -> str:
    return judged.causes[0].text if judged.causes else say("causes", "unknown")


def _waiting(judged: Judged) -> str:
    nothing = f"it reaches {share(judged.row['roof_share'])} of any roof at most"
    return judged.causes[0].text if judged.causes else nothing


def _limiter(judged: Judged) -> str:
    return judged.causes[0].limiter if judged.causes else ""


def _action(judged: Judged) -> str:
    """Return the key of what to do."""
    bound = text(judged.row["bound_by"])
    if _near(judged):
        return "near_dram" if bound == "dram" else "near"
    if _on_wrong_unit(judged):
        return "tensor_idle"
    if _scattered(judged) is not None:
        return "sectors"
    key = _cause(judged) if bound == "latency" else bound
    fusible = judged.row["category"] in FUSIBLE and judged.row["library"] not in ("", "other")
    return f"{key}_fusible" if fusible and key in ("stall", "dram", "issue") else key


def _evidence(judged: Judged) -> list[Evidence]:
    row = judged.row
    reached, bound = 100 * number(row["roof_share"]), text(row["bound_by"])
    name = f"{LABELS[bound]} of its roof"
    held, rule = "60 % or more", "Nsight Compute rule SOLBottleneck"
    if bound == "latency":
        name, held = "highest share of a roof", "under 60 %"
    if bound == "issue":
        name, rule = "issue slots busy", source("issue_slots")
    seen = [Evidence(name, reached, "%", held, rule)]
    columns = (("dram_pct", "DRAM"), ("l2_pct", "L2"), ("l1_pct", "L1"), ("tensor_pct", "Tensor"))
    seen += [
        Evidence(f"{label} busy", number(row[column]), "%")
        for column, label in columns
        if not math.isnan(number(row[column]))
    ]
    waits = row["bound_by"] == "latency"
    return seen + [c.evidence for c in judged.causes if waits or c.key in ALWAYS_TELLING]


def _confidence(group: list[Judged]) -> str:
    doubts = [_doubts(judged.row) for judged in group]
    worst = max(doubts)
    if group[0].row["bound_by"] == "latency":
        worst += 1 if group[0].causes else 2
    return ("high", "medium", "low")[min(worst, 2)]


def _doubts(row: Row) -> int:
    differs = abs(number(row["duration_difference"])) > threshold("duration_difference")
    # One launch of many kinds of work tells of no other: that alone is doubt enough.
    uneven = 2 * is_mixed(row)
    return uneven + sum((differs, row["loose_join"], math.isnan(number(row["share"]))))


def _worth_saying(finding: Finding) -> bool:
    if math.isnan(finding.share):
        return True
    large = finding.share >= threshold("small_share")
    return large or finding.gain_program >= threshold("small_gain")
