"""What could be saved of a run: one calculation for first screen, table and sentences."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.findings.model import CAUSE_OF, Finding
from nsight_prof.reports.findings.program.idle_rules import IDLE
from nsight_prof.reports.page import Text
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.models import Savings, Step

OF_IDLE = ("idle", "idle_outside")
"""Keys of findings about time in which the GPU has nothing to do."""
ENOUGH = 0.1
"""Part of the run that waiting for the host must cost to absorb what faster kernels save: the GPU
then only waits longer."""
FEWER_LAUNCHES = ("small_kernels", "elementwise_chain", "optimizer_passes")
"""Rules whose repair leaves the host less to launch, so that it need not wait for others."""


def savings(view: ReportView) -> Savings:
    """Return what the findings of a report save together.

    A kernel saves the most that its own counters or one finding about it promise. Steps that say
    only that a kernel is near its limit are not among `steps`; its kernels count. What a finding
    offers the owner to choose is none of them.
    """
    groups: dict[Text, list[Finding]] = defaultdict(list)
    for finding in view.findings:
        if finding.advice and is_repair(finding) and gain_ns(view, finding):
            groups[finding.advice].append(finding)
    ranked = sorted(groups.values(), key=lambda found: -sum(gain_ns(view, f) for f in found))
    pool, bounds = _Pool(view, gain_ns), _Pool(view, most_ns)
    steps = [_step(found, pool, bounds) for found in ranked]
    useful = [step for step in steps if step.saves_ns and not is_near(view, step.findings[0])]
    ordered = _in_order(view, sorted(useful, key=lambda step: -step.saves_ns))
    return replace(_saved(view, ordered, bounds), gain_ns=_saved(view, ordered, pool).total_ns)


def _step(found: Sequence[Finding], pool: _Pool, bounds: _Pool) -> Step:
    taken = [pool.take(finding) for finding in found]
    estimate = sum(ns for f, ns in zip(found, taken, strict=True) if not f.is_bound)
    upper = sum(map(bounds.take, found))
    # Where larger steps save the most that they can, less is left for this one.
    return Step(tuple(found), sum(taken), min(estimate, upper), upper)


def _saved(view: ReportView, steps: tuple[Step, ...], pool: _Pool) -> Savings:
    kernels = {kernel.number: _kernel(view, kernel, pool) for kernel in view.kernels}
    saved = pool.saved
    return Savings(
        steps, kernels, _idle(view, pool), saved["copies"] or None, saved["other"] or None
    )


def comes_first(view: ReportView, first: Step, then: Step) -> bool:
    """Return whether a step gains what it says only after another one.

    Faster kernels save nothing where the GPU waits for the host, and a cause goes before its
    symptom. Idle time that the trace does not explain holds back only what saves less.
    """
    if first is then or first.findings[0].key not in OF_IDLE or not _meet(view, first, then):
        return False
    if then.findings[0].key in OF_IDLE:
        return then.rule in CAUSE_OF.get(first.rule, ())
    large = first.saves_ns >= ENOUGH * (view.run_time.whole_ns or math.inf)
    if first.rule == IDLE.key and then.saves_ns > first.saves_ns:
        return False
    return large and then.rule not in FEWER_LAUNCHES


def _meet(view: ReportView, idle: Step, then: Step) -> bool:
    """Return whether a step about idle time and another one are about one stage."""
    stages = {finding.stage for finding in idle.findings} - {"(all)"}
    if "" in stages or not stages:
        return True
    finding_stages = {finding.stage for finding in then.findings} - {"", "(all)"}
    rows = (kernel for kernel in view.kernels if kernel.kernel_id in then.kernel_ids)
    return bool(stages & (finding_stages | {stage for row in rows for stage in row.stages}))


def _in_order(view: ReportView, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, the largest first, each after those that must come before it."""
    found: list[Step] = []
    pending = list(steps)
    while pending:
        ready = (
            s for s in pending if not any(comes_first(view, candidate, s) for candidate in pending)
        )
        found.append(next(ready, pending[0]))
        pending.remove(found[-1])
    return tuple(found)


def is_repair(finding: Finding) -> bool:
    """Return whether a finding tells of what can be mended, and offers the owner no choice."""
    return finding.rank is not None and finding.offers is None


def gain_ns(view: ReportView, finding: Finding) -> float:
    """Return what a finding saves by itself, in ns of the run; 0 where it is not known."""
    return _of_run(view, finding, finding.gain_ns)


def most_ns(view: ReportView, finding: Finding) -> float:
    """Return the most that a finding saves by itself, in ns of the run; 0 where not known."""
    return _of_run(view, finding, max(finding.gain_ns, finding.most_ns))


def _of_run(view: ReportView, finding: Finding, saved_ns: float) -> float:
    time = view.run_time
    if math.isnan(saved_ns) or not time.whole_ns:
        return 0.0
    wall = finding.gain_of == "wall time"
    return min(time.whole_ns, (saved_ns if wall else time.of_kernels(saved_ns)) or 0)


def kernels_of(view: ReportView, finding: Finding) -> Sequence[KernelRow]:
    """Return the kernels of a finding that the report lists."""
    return [kernel for kernel in view.kernels if kernel.kernel_id in finding.kernel_ids]


def is_near(view: ReportView, finding: Finding) -> bool:
    """Return whether a finding says of a kernel that only less work helps."""
    lead = next(iter(kernels_of(view, finding)), None)
    if finding.key != "kernel" or lead is None or lead.bound_cause:
        return False
    if lead.bound_by in ("", "issue", "latency") or lead.bound_unit or lead.roof_share is None:
        return False
    return lead.roof_share >= threshold(
        "near_dram_roof" if lead.bound_by == "dram" else "near_roof"
    )


class _Pool:
    """Parts of the run's time, and how much of each is saved already, by `gain` of findings."""

    def __init__(self, view: ReportView, gain: Callable[[ReportView, Finding], float]) -> None:
        time = view.run_time
        listed = {k.number: time.of_kernels(k.total_ns or 0.0) or 0.0 for k in view.kernels}
        rest = (time.kernels_ns or 0.0) - sum(listed.values())
        self.view, self.gain = view, gain
        self.time: dict[int | str, float] = {
            **{number: kernel_ns for number, kernel_ns in listed.items()},
            **{"idle": time.idle_ns or 0.0, "copies": time.copies_ns or 0.0},
            "other": max(0.0, rest),
        }
        self.saved = dict.fromkeys(self.time, 0.0)
        self.shared_ns = 0.0

    def take(self, finding: Finding) -> float:
        """Return what a finding saves beyond what was taken before."""
        gain = self.gain(self.view, finding)
        if self.gain is gain_ns and not math.isnan(finding.shared_ns):
            gain = max(0.0, gain - self.shared_ns)
            self.shared_ns += gain
        if finding.key in OF_IDLE and finding.gain_of == "wall time":
            return self._from("idle", self.saved["idle"] + gain)
        if finding.rule == "copies":
            return self._from("copies", self.saved["copies"] + gain)
        targets: list[int | str] = [kernel.number for kernel in kernels_of(self.view, finding)]
        if finding.rule == "collectives_exposed":
            targets = [k.number for k in self.view.kernels if k.category == "collective"]
        # What says of no kernel that it is slow, as a low clock, is about all of them.
        targets = targets or [kernel.number for kernel in self.view.kernels]
        available = sum(self.time[target] for target in targets)
        within = min(gain, available)
        taken = (
            sum(self._from(p, within * self.time[p] / available) for p in targets)
            if available
            else 0.0
        )
        rest = gain - within
        for target in ("other", "idle") if finding.gain_of == "wall time" else ("other",):
            more = self._from(target, self.saved[target] + rest)
            taken, rest = taken + more, rest - more
        return taken

    def _from(self, target: int | str, wanted: float) -> float:
        """Let a part save as much as `wanted` in all; return what is new of that."""
        before = self.saved[target]
        self.saved[target] = max(before, min(wanted, self.time[target]))
        return self.saved[target] - before


def _kernel(view: ReportView, kernel: KernelRow, pool: _Pool) -> float | None:
    """Return what a kernel could save by its counters, or by a finding about it."""
    found = pool.saved[kernel.number]
    by_counters = None if kernel.gain_ns is None else view.run_time.of_kernels(kernel.gain_ns)
    if by_counters is None:
        return found or None
    # A collective kernel that waits is not slow by itself.
    exposed = kernel.category == "collective" and found
    return found if exposed else min(max(by_counters, found), pool.time[kernel.number])


def _idle(view: ReportView, pool: _Pool) -> float | None:
    """Return what shorter pauses save: what findings say about them.

    Without a finding it is at most what is not between operations that were issued before. A
    finding without a gain, what happens once, has none here either.
    """
    time = view.run_time
    about = [f for f in view.findings if f.key in OF_IDLE and f.gain_of == "wall time"]
    if pool.saved["idle"]:
        return pool.saved["idle"]
    if about or time.idle_ns is None:
        return None
    return time.idle_ns if time.queued_ns is None else max(0.0, time.idle_ns - time.queued_ns)
