"""First screen of report and summary: the verdict, what to do, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.reports.analysis.kinds import NO_LIBRARY
from nsight_prof.reports.analysis.run_time import WALL
from nsight_prof.reports.engine.step_costs import KEY as EXCHANGE
from nsight_prof.reports.findings.program.idle_rules import LAUNCH_BOUND
from nsight_prof.reports.page import Choice, Link, Number, Text, Value, adding_up
from nsight_prof.reports.page.frame import LEVELS
from nsight_prof.reports.page.values import Capital
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.actions import actions, problem, share_of, subjects
from nsight_prof.reports.summary.choices import choices, timed_choices
from nsight_prof.reports.summary.distance import over_floors
from nsight_prof.reports.summary.models import Action, FirstScreen, Savings, Step, SummaryRow
from nsight_prof.reports.summary.plain_words import PROBLEMS, WAITS
from nsight_prof.reports.summary.savings import OF_IDLE, gain_ns, is_repair, kernels_of
from nsight_prof.reports.summary.time_parts import (
    ALL_STEPS,
    EXPLAIN,
    FIRST_USED,
    IDLE,
    OTHER,
    PARTS,
    UNMEASURED,
    TimeParts,
    idle_cause,
    job,
    largest_job,
    limit_of,
    plain_name,
    reached,
    whole_of,
)

LARGE = 0.1
"""Part of the run that one step must save to be the verdict; a run that saves less in all is near
its limits."""
MOSTLY = 0.5
"""Part of the run that the GPU is idle, or of its work that was not measured, from which on that is
the verdict where nothing large is to be saved."""
COUNTED = 0.9
"""Part of the GPU time with counters from which on nothing large can have been missed."""
MORE = 1.02
"""Time of all kernels of a kind over that of the ones a step is about, from which on both are said:
they then differ in the digits that are shown."""
ESTIMATED_FROM = 0.1
"""Part of a bound from which on what was seen to be reached is said beside it."""
SMALLEST_SHOWN = 0.01
"""Part of the run from which on what a remedy saves, or the profiler adds, is said."""


def first_screen(
    view: ReportView, time_parts: TimeParts, saved: Savings, machine: Text, answer: Text
) -> FirstScreen:
    """Return the first screen of `view`; `answer` is the verdict where there is no other."""
    time = view.run_time
    found = actions(view, saved)
    (total,) = adding_up(Number(time.whole_ns, "ns"))
    if not time.gpu:
        machine = Text("{gpu}", gpu=Capital(machine))  # else a name
    facts: dict[str, Value] = {"gpu": machine, "time": total}
    line = Text("{gpu} · {time}", **facts) if time.whole_ns else machine
    if time.whole_ns and time.gpus > 1:
        line = Text(
            "{gpu} · {time} (times are means over {n} GPUs, GPU time is their sum)",
            **facts,
            n=time.gpus,
        )
    timed, (above, pieces) = timed_choices(view, saved), over_floors(view, saved)
    offered = choices(view, timed)
    verdict = _verdict(view, time_parts, saved, found, offered) or answer
    if time.whole_ns:
        line = _with_certainty(view, line, verdict, found)
    listed = {anchor for action in found for _, anchor in action.findings}
    return FirstScreen(
        line,
        verdict,
        Number(time.whole_ns, "ns"),
        estimate=Number(saved.estimate_ns, "ns"),
        upper=Number(saved.total_ns, "ns"),
        actions=found,
        smaller=tuple(
            (finding.rank or 0, finding.anchor)
            for finding in view.findings
            if is_repair(finding) and gain_ns(view, finding) and finding.anchor not in listed
        ),
        basis="wall" if time.basis == WALL else "gpu",
        choices=offered,
        narrowed=tuple(choice for choice in timed if choice.products),
        to_measure=view.to_measure if view.kernels else None,
        over_floors=above,
        floor_parts=pieces,
    )


def _with_certainty(view: ReportView, line: Text, verdict: Text, found: tuple[Action, ...]) -> Text:
    """Return the line with how sure the verdict is; of steps, times are sure and limits unknown."""
    if view.kernels and verdict == _of_unmeasured(view):
        return Text(
            "{line} · how sure: {sure} for the times; what limits the kernels was not measured",
            line=line,
            sure=LEVELS["high"],
        )
    sure, reason = _sure(view, found)
    return Text("{line} · how sure: {sure} ({why})", line=line, sure=LEVELS[sure], why=reason)


def _sure(view: ReportView, found: tuple[Action, ...]) -> tuple[str, Text]:
    """Return how sure the verdict is, and why: of one step as that step, of several as the least.

    That nothing is to be done is as sure as most of the time was counted.
    """
    if not found:
        counted = view.profiled_share or 0.0
        reason = Text("counters cover {part} of the GPU time", part=Number(counted, "fraction"))
        return "high" if counted >= COUNTED else "low", reason
    largest = max(found, key=_gain_of)
    if (largest.gain.value or 0.0) >= LARGE:
        return largest.sure, largest.because
    lowest = max(found, key=lambda action: list(LEVELS).index(action.sure))
    return lowest.sure, lowest.because


def _of_longest_launch(view: ReportView) -> Text | None:
    """Return what limits the longest profiled launch of a run that has counters alone.

    A study answers its own question instead.
    """
    profiled = [kernel for kernel in view.kernels if kernel.bound_by and kernel.ncu_duration_ns]
    if not profiled or view.sections:
        return None
    longest = max(profiled, key=lambda kernel: kernel.ncu_duration_ns or 0.0)
    return Text(
        "The longest profiled launch is {thing}, {time}. Its limit: {limit}.",
        thing=plain_name(longest),
        time=Number(longest.ncu_duration_ns, "ns"),
        limit=_used(limit_of(longest), reached([longest])),
    )


def _used(limit: Text, share: float | None) -> Text:
    """Return a limit with the part of it that was reached, where that is known."""
    if share is None:
        return limit
    return Text("{limit} ({part} used)", limit=limit, part=Number(share, "fraction"))


def _verdict(
    view: ReportView,
    time_parts: TimeParts,
    saved: Savings,
    found: tuple[Action, ...],
    offered: tuple[Choice, ...],
) -> Text | None:
    """Return the one sentence that says what is wrong; None where no time is known."""
    time = view.run_time
    if not time.whole_ns or not time_parts.rows:
        return _of_longest_launch(view)
    gain = _saving(view, saved.estimate_ns, saved.total_ns, ALL_STEPS if found else PARTS)
    # The first step may save less than one that must come after it.
    largest = max(found, key=_gain_of, default=None)
    idle = next((row for row in time_parts.rows if row.kind == IDLE), None)
    if saved.total_ns < LARGE * time.whole_ns:
        little = _of_little(view, time_parts, idle, saved.total_ns)
        if little is not None:
            return little
        if saved.total_ns < SMALLEST_SHOWN * time.whole_ns:
            less = Text("less than {part}", part=Number(SMALLEST_SHOWN, "fraction"))
            return _at_limits(view, time_parts, less, offered)
    if largest is None:
        return Text(
            "{gain} of the {whole} can be saved, but no single action saves much.",
            gain=gain,
            whole=whole_of(time),
        )
    if saved.total_ns < LARGE * time.whole_ns:
        return _at_limits(view, time_parts, gain, offered)
    step = next(step for step in saved.steps if step.saves_ns == largest.saves.value)
    lead = step.findings[0]
    if lead.key in OF_IDLE and idle is not None and _gain_of(largest) >= LARGE:
        cause = next((cause for cause, rules in EXPLAIN.items() if lead.rule in rules), None)
        of_idle = (step.saves_ns for step in saved.steps if step.findings[0].key in OF_IDLE)
        mends = cause is not None and sum(of_idle) >= (idle.time_ns or 0.0) / 2
        reason = WAITS[cause] if cause and mends else idle_cause(view)
        verdict = Text(
            "The GPU is idle for {part} of the run: {why}. The actions below save {gain} of "
            "the run.",
            part=Link(Number(idle.share, "fraction"), "whole-run"),
            why=reason,
            gain=gain,
        )
        return _with_profiler(view, verdict, saved)
    about_kernels = lead.key == "kernel" and lead.rule not in PROBLEMS
    values: dict[str, Value] = {
        "what": _where(view, step, largest.anchor) if about_kernels else problem(lead),
        "first": _saving(
            view, largest.estimate.value or 0.0, largest.upper.value or 0.0, largest.anchor
        ),
        "whole": whole_of(time),
    }
    verdict = Text("{what}: {first} of the {whole} can be saved there.", **values)
    if saved.total_ns > MORE * (largest.upper.value or 0.0):
        verdict = Text(
            "{what}: {first} of the {whole} can be saved there, {gain} in all.", **values, gain=gain
        )
    if idle is None or (idle.time_ns or 0.0) < max(MORE * saved.total_ns, MOSTLY * time.whole_ns):
        return verdict
    return Text(
        "{verdict} The GPU is idle for {part} of the run: {why}.",
        verdict=verdict,
        part=Link(Number(idle.share, "fraction"), "whole-run"),
        why=idle_cause(view),
    )


def _saving(view: ReportView, estimate_ns: float, most_ns: float, anchor: str) -> Text:
    """Return times as parts of the run, what was seen to be reached apart from a bound."""
    whole_ns = view.run_time.whole_ns or math.inf
    estimate, upper = (
        Link(Number(ns / whole_ns, "fraction"), anchor) for ns in (estimate_ns, most_ns)
    )
    if estimate_ns < ESTIMATED_FROM * most_ns:
        return Text("up to {most}", most=upper)
    if most_ns < MORE * estimate_ns:
        return Text("{seen}", seen=estimate)
    return Text("{seen} (at most {most})", seen=estimate, most=upper)


def _of_little(
    view: ReportView, time_parts: TimeParts, idle: SummaryRow | None, most_ns: float
) -> Text | None:
    """Return the verdict of a run of which little can be saved: it waits, or was not measured.

    Of the time in which the GPU works it is more.
    """
    kernels = [row for row in time_parts.rows if row.kind not in (IDLE, OTHER)]
    unknown = sum(row.share or 0.0 for row in kernels if row.gain is None)
    unmeasured = unknown >= MOSTLY * sum(row.share or 0.0 for row in kernels)
    waits = (idle.share or 0.0) if idle is not None else 0.0
    if idle is not None and (waits >= MOSTLY if unmeasured else LARGE <= waits < 1):
        works = Number((view.run_time.whole_ns or 0.0) - (idle.time_ns or 0.0), "ns")
        gain = Number(most_ns - (idle.gain_ns or 0.0), "ns").share_of(works)
        rest = Text(" Of the time in which it works, up to {gain} can be saved.",
                    gain=Link(gain, PARTS))  # fmt: skip
        once = Text(" A longer run loses no more by that: measure after a warm-up.")
        return Text(
            "The GPU is idle for {part} of the run: {why}.{once}{rest}",
            part=Link(Number(idle.share, "fraction"), "whole-run"),
            why=idle_cause(view),
            once=once if idle_cause(view) == FIRST_USED else "",
            rest=rest if gain.value else "",
        )
    return _of_unmeasured(view) if unmeasured else None


def _at_limits(
    view: ReportView, time_parts: TimeParts, gain: Text, offered: tuple[Choice, ...]
) -> Text:
    """Return the verdict of a run whose fixes save little: what limits it, and what would help.

    That is the largest choice of the owner, where it saves enough to be a verdict.
    """
    kernels = (row for row in time_parts.rows if row.kind not in (IDLE, OTHER) and row.measured)
    longest = max(kernels, key=lambda row: row.time_ns or 0.0, default=None)
    if longest is None:
        return Text("Nothing in this run shows how the same work could be done faster.")
    (kind, share), thing = largest_job(view), longest.what
    if kind in {job(kernel) for kernel in view.kernels if kernel.number in longest.kernels}:
        thing = Text("{thing} (of {all} in all)", thing=kind, all=Number(share, "fraction"))
    verdict = Text(
        "Fixes save little: {gain} of the {whole}. {part} of it is {thing}, limited by: {limit}.",
        gain=gain,
        whole=whole_of(view.run_time),
        part=Number(longest.share, "fraction"),
        thing=thing,
        limit=_used(longest.limited_by or UNMEASURED, longest.reached),
    )
    if not offered or offered[0].saves < LARGE:
        return verdict
    return Text('{verdict} A choice below gains more: "{do}".', verdict=verdict, do=offered[0].do)


def _of_unmeasured(view: ReportView) -> Text:
    """Return the verdict of a run that does not tell what limits its kernels."""
    found = (f for section in view.sections for f in section.findings if f.rule == EXCHANGE)
    exchange = next(found, None)
    if exchange is not None and exchange.lay_verdict is not None:
        return exchange.lay_verdict
    longest, share = largest_job(view)
    time = view.run_time
    facts: dict[str, Value] = {"thing": longest, "part": Number(share, "fraction")}
    if time.idle_ns is None:
        return Text(
            "{thing} takes {part} of the {whole}; what limits it was not measured.",
            **facts,
            whole=whole_of(time),
        )
    return Text(
        "{thing} takes {part} of the run, and the GPU is idle for {idle}: kernels decide how long "
        "it takes, and what limits them was not measured.",
        **facts,
        idle=Number(time.idle_ns, "ns").share_of(Number(time.whole_ns, "ns")),
    )


def _gain_of(action: Action) -> float:
    return action.gain.value or 0.0


def _with_profiler(view: ReportView, verdict: Text, saved: Savings) -> Text:
    """Return a verdict about idle time with what the profiler adds to that, where it is known."""
    time = view.run_time
    if (time.profiler_ns or 0.0) < SMALLEST_SHOWN * (time.whole_ns or math.inf):
        return verdict
    anchor = next((f.anchor for f in view.findings if f.rule == LAUNCH_BOUND.key), "caveats")
    without = (time.whole_ns or 0.0) - (time.profiler_ns or 0.0)
    return Text(
        "{verdict} About {time} of the idle time is there only while nsys records: without it the "
        "run takes about {without}, and the actions save up to {less} less.",
        verdict=verdict,
        time=Link(Number(time.profiler_ns, "ns"), anchor),
        without=Number(without, "ns"),
        less=Number(min(time.profiler_ns or 0.0, saved.total_ns), "ns"),
    )


def _where(view: ReportView, step: Step, anchor: str) -> Text:
    """Return which kernels a step is about, what part of the run they take, and their limit.

    `anchor` leads to the row that shows this part. Where these are some of a kind, the part that
    the whole kind takes is said too.
    """
    kernels = [kernel for finding in step.findings for kernel in kernels_of(view, finding)]
    share = share_of(view, step)
    values: dict[str, Value] = {
        "thing": subjects(view, step.findings),
        "part": Link(Number(share, "fraction"), anchor),
        "whole": whole_of(view.run_time),
        "limit": limit_of(kernels[0]),
    }
    of_kind, row = _of_kind(view, kernels)
    if of_kind < MORE * (share or 0.0):
        return Text("{thing} takes {part} of the {whole} (limit: {limit})", **values)
    return Text(
        "{thing} takes {all} of the {whole}, {n} kernel of it {part} (limit: {limit})",
        "{thing} takes {all} of the {whole}, {n} kernels of it {part} (limit: {limit})",
        **{**values, "thing": Link(Capital(values["thing"]), row)},
        all=Number(of_kind, "fraction"),
        n=len(kernels),
    )


def _of_kind(view: ReportView, kernels: Sequence[KernelRow]) -> tuple[float, str]:
    """Return what part of the run all kernels take that do the same, in the one stage of these.

    And the id of its row; 0 where it is not known, or one of them goes by its own name.
    """
    categories, kinds = {"" if k.library in NO_LIBRARY else k.category for k in kernels}, view.kinds
    rows = [] if kinds is None else [row for row in kinds.rows if categories <= {*row.categories}]
    if kinds is None or not rows or len(categories) > 1 or not view.gpu_time_ns:
        return 0.0, ""
    stages = [*dict.fromkeys(stage for kernel in kernels for stage in kernel.stages)]
    time_ns: float | None = rows[0].total_ns
    if len(stages) == 1 and len(view.stages) > 2:  # as `subjects` names it
        time_ns = dict(zip(kinds.stages, rows[0].by_stage, strict=True)).get(stages[0])
    share = None if time_ns is None else view.run_time.of_whole(time_ns / view.gpu_time_ns)
    return share or 0.0, f"kind-{kinds.rows.index(rows[0]) + 1}"
