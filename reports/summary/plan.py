"""What to do as a plan: steps that add up, repairs first, then choices that belong to the owner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.reports.page import Name, Number, Text, Value, Verbatim
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.summary.actions import SUBJECTS, remedy
from nsight_prof.reports.summary.choices import timed_choices
from nsight_prof.reports.summary.models import Narrowed, Step, TimedChoice
from nsight_prof.reports.summary.plain_words import COSTS, EFFORT, NO_COSTS
from nsight_prof.reports.summary.savings import comes_first, kernels_of, savings

LEAST = 0.001
"""Part of the run from which on a step is listed."""
NO_FASTER = Text("The same products with inputs of that type are no faster on this GPU.")


@dataclass(frozen=True)
class PlanStep:
    """One step: what it saves after all steps before it, and what remains of the run then.

    `number` counts from 1 over repairs and choices; `first` are the numbers of steps that must come
    before it. `saves` and `after` are in ns, `of_remaining` is the part of what the steps before
    leave; `is_bound`: it saves at most that, and how much of it is reached was not seen. `sure`
    and `effort` are low, medium or high. `evidence` is the evidence in a sentence, `wrong` what one
    would see if it were wrong, `costs` what it takes beside the effort. `anchor` leads to the
    finding in the report; empty for what no finding tells of.
    """

    number: int
    do: Text
    where: Text
    saves: Number
    is_bound: bool
    of_remaining: Number
    after: Number
    sure: str
    evidence: Text
    wrong: Text | None
    effort: str
    costs: Text
    first: tuple[int, ...]
    choice: bool
    anchor: str


@dataclass(frozen=True)
class Plan:
    """All steps in order, the time of the run in ns, and what is advised without a time.

    `run_time` is unknown where the run has no time. `basis` is "wall" or "gpu", as of the summary.
    `smaller` is what smaller steps, which are not listed, save together after all repairs, and
    `after_smaller` what is left then, both in ns: choices come after these.
    """

    run_time: Number
    basis: str
    steps: tuple[PlanStep, ...]
    smaller: Number
    after_smaller: Number
    advice: tuple[Text, ...]


def make_plan(view: ReportView) -> Plan:
    """Return the plan of a report, by the same calculation as the first screen."""
    whole_ns, saved = view.run_time.whole_ns or 0.0, savings(view)
    listed = [s for s in saved.steps if whole_ns and s.saves_ns >= LEAST * whole_ns]
    ordered = sorted(listed, key=lambda step: step.is_choice)
    repairs = [step for step in ordered if not step.is_choice]
    smaller = round(max(0.0, saved.gain_ns - sum(step.saves_ns for step in listed)))
    steps, remaining = [], whole_ns
    for step in repairs:
        steps.append(_of_step(view, step, ordered, remaining))
        remaining = max(0.0, remaining - step.saves_ns)
    remaining = after_smaller = max(0.0, remaining - smaller)
    for step in ordered[len(repairs) :]:
        steps.append(_of_step(view, step, ordered, remaining))
        remaining = max(0.0, remaining - step.saves_ns)
    for choice in timed_choices(view, saved) if whole_ns else ():
        if choice.saves_ns >= LEAST * whole_ns and after_smaller:
            # A choice is about what the choices before it leave.
            of_rest = choice.saves_ns * remaining / after_smaller
            steps.append(_of_choice(choice, len(steps) + 1, of_rest, remaining))
            remaining = max(0.0, remaining - choice.saves_ns)
    advice = (f.action for s in view.sections for f in s.findings if f.action and not f.technical)
    return Plan(
        Number(whole_ns or None, "ns", digits=3),
        view.run_time.basis,
        tuple(steps),
        Number(smaller if whole_ns else None, "ns", digits=3),
        Number(after_smaller if whole_ns else None, "ns", digits=3),
        tuple(advice),
    )


def _of_step(
    view: ReportView, step: Step, ordered: Sequence[Step], remaining_ns: float
) -> PlanStep:
    lead = step.findings[0]
    saves = min(step.saves_ns, remaining_ns)
    return PlanStep(
        number=ordered.index(step) + 1,
        do=remedy(view, step),
        where=_where(view, step),
        saves=Number(saves, "ns", digits=3),
        is_bound=not step.estimate_ns,
        of_remaining=Number(saves / remaining_ns if remaining_ns else None, "fraction"),
        after=Number(remaining_ns - saves, "ns", digits=3),
        sure=step.sure,
        evidence=lead.verdict,
        wrong=lead.disproof,
        effort=EFFORT.get(lead.rule) or EFFORT.get(lead.key, "medium"),
        costs=COSTS.get(lead.rule) or COSTS.get(lead.key) or NO_COSTS,
        first=tuple(
            number
            for number, candidate in enumerate(ordered, 1)
            if comes_first(view, candidate, step)
        ),
        choice=step.is_choice,
        anchor=lead.anchor,
    )


def _where(view: ReportView, step: Step) -> Text:
    """Return the stages and kernels that a step is about."""
    stages = {finding.stage for finding in step.findings} - {"", "(all)"}
    kernels = [kernel for finding in step.findings for kernel in kernels_of(view, finding)]
    stages |= {stage for kernel in kernels for stage in kernel.stages}
    names = list(dict.fromkeys(brief(kernel.short_name) for kernel in kernels))
    return _stages_text(sorted(stages), names)


def _stages_text(stages: Sequence[str], names: Sequence[str]) -> Text:
    if stages and names:
        return Text("{stages}: {kernels}", stages=_first(stages), kernels=_first(names))
    either = _first(stages or names)
    return Text("{names}", names=either) if either else Text("the whole run")


def _first(names: Sequence[str]) -> list[Value]:
    more = [Text("others")] if len(names) > SUBJECTS else []
    return [*(Name(name) for name in names[:SUBJECTS]), *more]


def _of_choice(choice: TimedChoice, number: int, saves_ns: float, remaining_ns: float) -> PlanStep:
    saves = min(saves_ns, remaining_ns)
    rows, finding = [product.kernel for product in choice.products], choice.finding
    stages = sorted({stage for row in rows for stage in row.stages})
    return PlanStep(
        number=number,
        do=choice.do,
        where=_stages_text(stages, list(dict.fromkeys(brief(row.short_name) for row in rows))),
        saves=Number(saves, "ns", digits=3),
        is_bound=math.isnan(choice.most_ns),
        of_remaining=Number(saves / remaining_ns if remaining_ns else None, "fraction"),
        after=Number(remaining_ns - saves, "ns", digits=3),
        sure=finding.confidence if finding else "low",
        evidence=finding.verdict if finding else _narrower(choice.products),
        wrong=finding.disproof if finding else NO_FASTER,
        effort="medium",
        costs=choice.costs,
        first=(),
        choice=True,
        anchor=finding.anchor if finding else "",
    )


def _narrower(products: Sequence[Narrowed]) -> Text:
    ends = (min(product.factor for product in products), max(p.factor for p in products))
    low, high = (Number(factor, "x", digits=2) for factor in ends)
    alike = quantity(ends[0], "x", 2) == quantity(ends[1], "x", 2)
    return Text(
        "Their roofs allow {speed} the speed with {smaller}: bytes halve where memory limits, and "
        "the roof of the pipe rises where arithmetic does.",
        speed=low if alike else Text("{low} to {high}", low=low, high=high),
        smaller=Verbatim(products[0].smaller),
    )
