"""Turns profiled kernels into findings: what limits each, how far its roof is, what that gains."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.metrics import catalogue
from nsight_prof.reports.evidence import Evidence, threshold
from nsight_prof.reports.findings.model import Finding, verbatim
from nsight_prof.reports.formats import duration, share
from nsight_prof.reports.kernel_evidence import confidence, evidence
from nsight_prof.reports.kernel_judge import Judged, judge
from nsight_prof.reports.kernel_sentences import (
    BY,
    action,
    cause_key,
    disproof,
    headline,
    sentence,
    title,
)
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import is_mixed, kernel_time


@dataclass(frozen=True)
class Abstention:
    """Rules that were not held to some kernels, and why: a counter or a fact is missing."""

    rules: tuple[str, ...]
    kernel_ids: tuple[str, ...]
    reason: str


BATCHED = ("small_grid", "few_blocks")
"""Rules whose remedy, more blocks at once, is also that of rows of tiny kernels."""


BACKENDS = ("slow_backend", "older_backend")
"""Keys of findings that name a better kernel."""


def kernel_findings(run: Run, told: Sequence[Finding] = ()) -> list[Finding]:
    """Return a finding for each group of kernels with one readable name, bound and cause.

    `told` are the findings about the program: what one kernel for a row of them saves is not
    counted again where the kernels of the row have few blocks.
    """
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    better = {key for f in told if f.key in BACKENDS for key in f.kernel_ids}
    for judged in judge(run):
        # An attention kernel for which a better one is named is not mended, but replaced.
        if judged.row["category"] == "attention" and text(judged.row["kernel_id"]) in better:
            continue
        groups[text(judged.row["short_name"]), judged.bound, cause_key(judged)].append(judged)
    total = kernel_time(run)
    found = [_finding(group, total, _left(group, told, total)) for group in groups.values()]
    listed = [finding for finding in found if _worth_saying(finding)]
    # What gains more than a finding that is listed anyway is listed, too.
    least = min((f.gain_program for f in listed if f.gain_program > 0), default=math.inf)
    least = max(least, threshold("listed_gain"))
    return [f for f in found if f in listed or f.gain_program >= least]


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
    first = f"{share(parts[ranked[0]])} of the GPU time is {BY[ranked[0]]}"
    return [
        Finding(
            key="bounds",
            rule="",
            title=verbatim("What limits the GPU time"),
            headline=verbatim(f"{first}; better kernels could save at most {share(gain)} in all"),
            verdict=verbatim(
                f"Of the GPU time, {', '.join(split)}{rest}. {_whose(known)} that do the "
                f"same work at their limits would save at most {share(gain)} of the GPU time "
                f"({duration(gain * total)}) in all; more takes less work or less data."
                f"{_mixed_note(judged)}"
            ),
            share=known,
            evidence=_split({key: parts[key] for key in ranked}, judged),
            gain_kernel=gain / known,
            gain_program=gain,
            gain_ns=gain * total,
            bound=ranked[0],
            confidence="medium",
        )
    ]


def _whose(known: float) -> str:
    return "Measured kernels" if 1 - known >= threshold("unmeasured") else "Kernels"


def _split(parts: dict[str, float], judged: Sequence[Judged]) -> tuple[Evidence, ...]:
    """Return the parts of the GPU time by bound, and what its kernels gain of it."""
    where = ("counters.bound_by", "kernels.share")
    rows = []
    for bound, part in parts.items():
        gain = sum(number(j.row["share"]) * j.gain for j in judged if j.bound == bound)
        rows += [
            Evidence(f"GPU time {BY[bound]}", 100 * part, "%", "", "nsys and ncu", where),
            Evidence("to gain of it", 100 * gain, "%", "", "sum over its kernels", where),
        ]
    return tuple(rows)


def _mixed_note(judged: Sequence[Judged]) -> str:
    part = sum(number(j.row["share"]) for j in judged if is_mixed(j.row))
    if part < threshold("small_share"):
        return ""
    return (
        f" Launches of kernels that take {share(part)} of the GPU time differ in their work; they "
        "count as if all were like the profiled one."
    )


def _left(group: Sequence[Judged], told: Sequence[Finding], total_ns: float) -> float:
    """Return the part of a kernel's time that one kernel for each row of them leaves; else 1."""
    if cause_key(group[0]) not in BATCHED:
        return 1.0
    ids = {text(judged.row["kernel_id"]) for judged in group}
    rows = [f for f in told if f.rule == "small_kernels" and ids & set(f.kernel_ids)]
    parts = [max(0.0, 1 - f.gain_ns / (f.share * total_ns)) for f in rows]
    return min(parts, default=1.0)


def _finding(group: Sequence[Judged], total_ns: float, left: float) -> Finding:
    lead = group[0]
    shares = [number(j.row["share"]) for j in group]
    taken = sum(shares)
    gained = sum(s * min(j.gain, left) for s, j in zip(shares, group, strict=True))
    to_do, advice = action(lead)
    finding = Finding(
        key="kernel",
        title=verbatim(title(lead)),
        verdict=verbatim(""),
        kernel_ids=tuple(text(j.row["kernel_id"]) for j in group),
        share=taken,
        evidence=evidence(lead),
        gain_kernel=min(lead.gain, left) if math.isnan(taken) else gained / taken,
        gain_program=gained,
        gain_ns=gained * total_ns,
        bound=lead.bound,
        action=verbatim(to_do),
        plain=verbatim(advice),
        confidence=confidence(group),
        rule=cause_key(lead),
        disproof=verbatim(disproof(lead)),
    )
    said = sentence(finding, group, in_rows=left < lead.gain)
    return replace(finding, headline=verbatim(headline(finding, lead)), verdict=verbatim(said))


def _worth_saying(finding: Finding) -> bool:
    if math.isnan(finding.share):
        return True
    large = finding.share >= threshold("small_share")
    return large or finding.gain_program >= threshold("small_gain")
