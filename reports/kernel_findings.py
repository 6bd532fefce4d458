"""Turns profiled kernels into findings: what limits each, how far its roof is, what that gains."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from parsers.metrics import catalogue
from reports.bound import LABELS
from reports.causes import Cause
from reports.cells import Row, number, records, text
from reports.evidence import Evidence, Finding, source, threshold
from reports.formats import duration, share
from reports.kernel_judge import Judged, judge
from reports.kernel_sentences import (
    BY,
    action,
    cause_key,
    disproof,
    headline,
    sentence,
    title,
)
from reports.load import Run
from reports.profiled import is_mixed, kernel_time

CONFIDENCE = ("high", "medium", "low")


@dataclass(frozen=True)
class Abstention:
    """Rules that were not held to some kernels, and why: a counter or a fact is missing."""

    rules: tuple[str, ...]
    kernel_ids: tuple[str, ...]
    reason: str


def kernel_findings(run: Run) -> list[Finding]:
    """Return a finding for each group of kernels with one readable name, bound and cause."""
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for judged in judge(run):
        groups[text(judged.row["short_name"]), judged.bound, cause_key(judged)].append(judged)
    found = [_finding(group, kernel_time(run)) for group in groups.values()]
    return [finding for finding in found if _worth_saying(finding)]


def abstentions(run: Run) -> tuple[Abstention, ...]:
    """Return the rules that abstained, those with one reason and the same kernels together."""
    why = {
        (text(row["kernel_id"]), text(row["column"])): text(row["reason"])
        for row in records(run.gaps)
        if row["table"] == "counters"
    }
    open_ones: dict[tuple[str, str], list[str]] = defaultdict(list)
    for judged in judge(run):
        key = text(judged.row["kernel_id"])
        for rule in judged.abstained:
            reason = next((r for c in rule.columns if (r := _gap(why, key, c))), rule.why)
            reason = reason or f"not known: {', '.join(rule.columns)}"
            if reason in _nothing_to_see():
                continue
            open_ones[rule.key, reason].append(key)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (rule_key, reason), kernels in open_ones.items():
        together[reason, tuple(kernels)].append(rule_key)
    return tuple(
        Abstention(tuple(rules), kernels, reason) for (reason, kernels), rules in together.items()
    )


@cache
def _nothing_to_see() -> frozenset[str]:
    """Return the reasons of the catalogue for a kernel that does nothing of a kind at all."""
    return frozenset(reason for c in catalogue().columns.values() for reason in c.empty)


def _gap(why: dict[tuple[str, str], str], kernel_id: str, column: str) -> str:
    return why.get((kernel_id, column)) or why.get(("", column), "")


def bound_findings(run: Run) -> list[Finding]:
    """Return how the GPU time divides by what limits it; empty without trace or counters."""
    total, judged = kernel_time(run), judge(run)
    parts: dict[str, float] = defaultdict(float)
    for one in judged:
        parts[one.bound] += number(one.row["share"])
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
    # What sectors or instructions cost is an estimate, and no bound as the roof is.
    most = "about" if any(j.why is not None and j.why.rule.relieves for j in judged) else "at most"
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


def _finding(group: Sequence[Judged], total_ns: float) -> Finding:
    lead = group[0]
    shares = [number(j.row["share"]) for j in group]
    taken = sum(shares)
    gained = sum(s * j.gain for s, j in zip(shares, group, strict=True))
    to_do, advice = action(lead)
    finding = Finding(
        key="kernel",
        title=title(lead),
        headline="",
        sentence="",
        kernel_ids=tuple(text(j.row["kernel_id"]) for j in group),
        share=taken,
        evidence=tuple(_evidence(lead)),
        gain_kernel=lead.gain if math.isnan(taken) else gained / taken,
        gain_program=gained,
        gain_ns=gained * total_ns,
        bound=lead.bound,
        action=to_do,
        advice=advice,
        confidence=_confidence(group),
        cause=cause_key(lead),
        disprove=disproof(lead),
    )
    said = sentence(finding, group)
    return replace(finding, headline=headline(finding, lead), sentence=said)


def _evidence(judged: Judged) -> list[Evidence]:
    row = judged.row
    reached = 100 * number(row["roof_share"])
    name = f"{LABELS[judged.bound]} of its roof"
    held, rule = "60 % or more", "Nsight Compute rule SOLBottleneck"
    if judged.bound == "latency":
        name, held = "highest share of a roof", "under 60 %"
    if judged.bound == "issue":
        name, rule = "issue slots busy", source("issue_slots")
    seen = [Evidence(name, reached, "%", held, rule)]
    columns = (("dram_pct", "DRAM"), ("l2_pct", "L2"), ("l1_pct", "L1"), ("tensor_pct", "Tensor"))
    seen += [
        Evidence(f"{label} busy", number(row[column]), "%")
        for column, label in columns
        if not math.isnan(number(row[column]))
    ]
    more = dict.fromkeys(e for c in _leading(judged) for e in c.evidence if e not in seen)
    return [*seen, *more]


def _leading(judged: Judged) -> list[Cause]:
    """Return the causes with the explaining one first."""
    rest = [cause for cause in judged.causes if cause is not judged.why]
    return [judged.why, *rest] if judged.why is not None else rest


def _confidence(group: Sequence[Judged]) -> str:
    doubts = [_doubts(judged.row) for judged in group]
    worst, lead = max(doubts), group[0]
    if lead.why is not None:
        worst += CONFIDENCE.index(lead.why.rule.confidence)
    elif lead.bound == "latency":
        worst += 2
    return CONFIDENCE[min(worst, 2)]


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
