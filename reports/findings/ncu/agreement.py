"""Compares what a rule of ncu says of a kernel with what prof says, and tells why they differ.

A verdict is one of: agrees; differs (prof does not say it, and there is a reason: a threshold, a
bound, a missing counter); contradicts (prof says the opposite of what ncu measured).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nsight_prof.parsers.build.bound import BOUND_FROM, LABELS, LATENCY_BELOW
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.causes import Judged
from nsight_prof.reports.findings.kernels.fact import Condition, Context, Facts
from nsight_prof.reports.findings.kernels.measure import measure
from nsight_prof.reports.findings.kernels.roofs import unit_of
from nsight_prof.reports.findings.kernels.rule import Rule
from nsight_prof.reports.findings.kernels.rules import BY_KEY
from nsight_prof.reports.findings.ncu.topics import Topic, limiters_of, reason, stall_of
from nsight_prof.reports.page.formats import percent, quantity, share
from nsight_prof.reports.page.values import Text, Word
from nsight_prof.reports.page.writer import in_english

STALL_RULE = "latency"
"""The rule of prof that names what warps wait for."""
AGREES, DIFFERS, CONTRADICTS = "agrees", "differs", "contradicts"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
ELAPSED = ".pct_of_peak_sustained_elapsed"
NEAR = 10.0
"""Points between compute and memory up to which ncu itself calls them balanced (SOLBottleneck)."""
MEASURES_APART = 10.0
"""Points that two measures of one resource may differ: peak of the chip, roof that was reached."""


@dataclass(frozen=True)
class Verdict:
    """How prof's answer stands to that of a rule: `answer` is what prof says, `reason` the reason.

    A contradiction without a reason is an error of one of the two. `gain` is the part of the
    kernel's time (0 to 1) that prof estimates for the same cause; NaN where it has none.
    `abstained`: prof lacks the counters to judge it.
    """

    state: str
    answer: str
    reason: str = ""
    gain: float = math.nan
    abstained: bool = False


@dataclass(frozen=True)
class Subject:
    """One kernel that both judged: prof's row and judgement, and the counters as ncu gave them."""

    row: Row
    judged: Judged | None
    context: Context
    metrics: Mapping[str, float]

    @property
    def fired(self) -> tuple[str, ...]:
        """Keys of prof's rules that fired, the most telling first."""
        return tuple(cause.key for cause in self.judged.causes) if self.judged else ()

    @property
    def bound(self) -> str:
        """What bounds the kernel, "" where prof cannot tell."""
        return text(self.row["bound_by"])


def compare(topic: Topic, messages: Iterable[str], subject: Subject) -> Verdict:
    """Return how prof stands to what ncu's rules said of `topic` in `messages`."""
    if topic.compare == "limiter":
        return _limiter(frozenset().union(*(limiters_of(m) for m in messages)), subject)
    if subject.judged is None:
        return Verdict(DIFFERS, "", reason("no_judgement"))
    if topic.compare in ("bounds", "full"):
        return _bound(topic, subject)
    if topic.compare == "stall":
        return _stall({stall_of(message) for message in messages}, subject)
    return _causes(topic, subject)


def _causes(topic: Topic, subject: Subject) -> Verdict:
    assert subject.judged is not None
    same = [cause for cause in subject.judged.causes if cause.key in topic.causes]
    if same:
        return Verdict(AGREES, in_english(same[0].clause), gain=same[0].gain)
    known = measure(subject.row, subject.context)
    abstained = {rule.key for rule in subject.judged.abstained}
    # A rule that could be held to the kernel tells more than one that abstains.
    keys = sorted(topic.causes, key=lambda key: key in abstained)
    silent = _silent(BY_KEY[keys[0]], subject, known)
    return Verdict(DIFFERS, "", silent, abstained=keys[0] in abstained)


def _silent(rule: Rule, subject: Subject, known: Facts) -> str:
    """Return why a rule of prof did not fire."""
    assert subject.judged is not None
    abstained = {found.key: found for found in subject.judged.abstained}
    if rule.key in abstained:
        found = abstained[rule.key]
        if found.reason is not None:
            return in_english(found.reason)
        return reason("abstains", columns=_labels(found.columns))
    others = [cause.clause for cause in subject.judged.causes if cause.key in rule.unless]
    if others:
        return reason("other_first", others=others[0])
    failed = [c for c in rule.when.decisive(known) if c.evaluate(known) is False]
    labelled = [c for c in failed if c.fact.label is not None]
    if labelled:
        return _under(labelled[0], known)
    if failed:
        return reason("not_matrix") if failed[0].fact == facts.IS_MATRIX else reason("no_rule")
    if rule.bounds and subject.bound not in rule.bounds:
        return _other_bound(rule.bounds, subject)
    return reason("no_rule")


def _labels(columns: Iterable[str]) -> list[Word]:
    known = catalogue().columns
    return [Word(known[c].label if c in known else c.replace("_", " ")) for c in columns]


def _under(condition: Condition, known: Facts) -> str:
    fact = condition.fact
    assert fact.label is not None
    return reason(
        "threshold",
        label=fact.label,
        value=quantity(known[fact.name], fact.unit),
        words=condition.threshold,
    )


def _other_bound(bounds: tuple[str, ...], subject: Subject) -> str:
    labels = [Word(LABELS[bound]) for bound in bounds]
    return reason("other_bound", bounds=labels, bound=Word(LABELS[subject.bound]))


def _limiter(limiters_of_ncu: frozenset[str], subject: Subject) -> Verdict:
    limiter = text(subject.row["occupancy_limiter"])
    if not limiter:
        return Verdict(DIFFERS, "", reason("no_limiter"))
    allowed = percent(subject.row["theoretical_occupancy_pct"])
    names = [Word(name) for name in limiter.split(", ")]
    statement = in_english(Text("{limiters}: {part} of the warps", limiters=names, part=allowed))
    # ncu 2022 names the first limiter alone where several are equal.
    agrees = bool(limiters_of_ncu) and limiters_of_ncu <= frozenset(limiter.split(", "))
    return Verdict(AGREES if agrees else CONTRADICTS, statement)


def _stall(stalls_of_ncu: set[str], subject: Subject) -> Verdict:
    top = text(subject.row["top_stall"])
    if not top:
        silent = reason("abstains", columns=_labels(("top_stall",)))
        return Verdict(DIFFERS, "", silent, abstained=True)
    stall_share = number(subject.row["stall_share"])
    stall = Word(top.replace("_", " "))
    statement = in_english(
        Text("{stall}, {part} of the stalls", stall=stall, part=share(stall_share))
    )
    if top in stalls_of_ncu:
        causes = subject.judged.causes if subject.judged else ()
        gains = [cause.gain for cause in causes if cause.key == STALL_RULE]
        return Verdict(AGREES, statement, gain=next(iter(gains), math.nan))
    shares: Mapping[str, float] = subject.row["stalls"]
    fired = {reason_: shares[reason_] for reason_ in stalls_of_ncu if reason_ in shares}
    if not fired:
        return Verdict(DIFFERS, statement, reason("unknown_stall"))
    # Both rest on the same ratios: another order would be an error.
    highest = max(fired.values())
    state = CONTRADICTS if highest < stall_share - NEAR / 100 else DIFFERS
    return Verdict(state, statement, reason("other_stall", share=share(highest), top=top))


def _bound(topic: Topic, subject: Subject) -> Verdict:
    row, bound = subject.row, subject.bound
    reached = 100 * number(row["roof_share"])
    words = Text("{bound}, {part} of its roof", bound=Word(LABELS[bound]), part=percent(reached))
    if (unit := unit_of(row)) is not None:
        words = Text(
            "{bound}: {unit}, busy in {part} of all cycles",
            bound=Word(LABELS[bound]),
            unit=unit,
            part=percent(reached),
        )
    if bound == "latency":
        words = Text("latency, {part} of any roof at most", part=percent(reached))
    statement = in_english(words)
    if topic.compare == "full":
        if max(reached / 100, number(row["second_share"])) >= BOUND_FROM:
            return Verdict(AGREES, statement)
        return Verdict(CONTRADICTS, statement, _between(reached, subject, BOUND_FROM))
    if bound in topic.bounds or text(row["bound_unit"]) in topic.units:
        return Verdict(AGREES, statement)
    if topic.key in ("issue_slots", "idle_pipes", "full_pipe"):
        return Verdict(DIFFERS, statement, _other_bound(topic.bounds, subject))
    verdict = _why_bound(bound, reached, subject, "latency" in topic.bounds)
    return Verdict(CONTRADICTS, statement, verdict)


def _between(reached: float, subject: Subject, limit: float) -> str:
    """Return that a threshold lies between what ncu and prof measured; "" where they are apart."""
    highest = max(subject.metrics.get(name, math.nan) for name in (COMPUTE, MEMORY))
    if abs(highest - reached) > MEASURES_APART:
        return ""
    limits = percent(100 * limit)
    return reason("between", theirs=percent(highest), ours=percent(reached), limit=limits)


def _why_bound(bound: str, reached: float, subject: Subject, idle: bool) -> str:
    """Return why ncu and prof call a kernel bound by different things; "" for no known reason."""
    if idle or bound == "latency":
        return _between(reached, subject, LATENCY_BELOW)
    compute, memory = (subject.metrics.get(name, math.nan) for name in (COMPUTE, MEMORY))
    if abs(compute - memory) > MEASURES_APART:
        return ""
    measured = {"compute": percent(compute), "memory": percent(memory)}
    if bound == "tensor":
        return reason("operands", **measured)
    margin = Text("{points} points", points=f"{MEASURES_APART:g}")
    return reason("close", **measured, margin=margin)
