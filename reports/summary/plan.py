"""What to do as a plan: steps that add up, repairs first, then choices that belong to the owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.reports.page import Name, Number, Text, Value, Verbatim
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.actions import SUBJECTS, remedy
from nsight_prof.reports.summary.plain_words import COSTS, EFFORT
from nsight_prof.reports.summary.savings import Savings, Step, comes_first, kernels_of, savings

LEAST = 0.001
"""Part of the run from which on a step is listed."""
NARROWER = {"bf16": "fp8", "fp16": "fp8", "fp64": "fp32"}
"""The next smaller type of inputs."""
BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
PRODUCTS = ("gemm", "gemv")
"""Kinds of kernels whose inputs may have another type without another algorithm."""
SOURCES = ("measured", "counters", "datasheet")


@dataclass(frozen=True)
class PlanStep:
    """One step: what it saves after all steps before it, and what remains of the run then.

    `number` counts from 1 over repairs and choices; `first` are the numbers of steps that must come
    before it. `saves` and `after` are in ns, `of_remaining` is the part of what the steps before
    leave. `sure` and `effort` are low, medium or high. `evidence` is the evidence in a sentence,
    `wrong` what one would see if it were wrong, `costs` what it takes beside the effort. `anchor`
    leads to the finding in the report; empty for what no finding tells of.
    """

    number: int
    do: Text
    where: Text
    saves: Number
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
    """

    run_time: Number
    basis: str
    steps: tuple[PlanStep, ...]
    advice: tuple[Text, ...]


@dataclass(frozen=True)
class _Choice:
    """A smaller type for kernels: what it saves of what repairs leave, in ns of the run."""

    do: Text
    evidence: Text
    where: Text
    saves_ns: float
    costs: Text


def make_plan(view: ReportView) -> Plan:
    """Return the plan of a report, by the same calculation as the first screen."""
    whole_ns = view.run_time.whole_ns
    total = Number(whole_ns or None, "ns", digits=3)
    steps = _steps(view, whole_ns) if whole_ns else []
    advice = (f.action for s in view.sections for f in s.findings if f.action and not f.technical)
    return Plan(total, view.run_time.basis, tuple(steps), tuple(advice))


def _steps(view: ReportView, whole_ns: float) -> list[PlanStep]:
    saved = savings(view)
    listed = [step for step in saved.steps if step.saves_ns >= LEAST * whole_ns]
    ordered = sorted(listed, key=lambda step: step.is_choice)
    steps, remaining = [], whole_ns
    for step in ordered:
        steps.append(_of_step(view, step, ordered, remaining))
        remaining = max(0.0, remaining - step.saves_ns)
    for choice in _choices(view, saved):
        if choice.saves_ns >= LEAST * whole_ns:
            steps.append(_of_choice(choice, len(steps) + 1, remaining))
            remaining = max(0.0, remaining - choice.saves_ns)
    return steps


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
        of_remaining=Number(saves / remaining_ns if remaining_ns else None, "fraction"),
        after=Number(remaining_ns - saves, "ns", digits=3),
        sure=lead.confidence,
        evidence=lead.verdict,
        wrong=lead.disproof,
        effort=EFFORT.get(lead.rule) or EFFORT.get(lead.key, "medium"),
        costs=COSTS.get(lead.rule) or COSTS.get(lead.key) or Text("nothing beside the effort"),
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
    names = list(dict.fromkeys(kernel.short_name for kernel in kernels))
    return _stages_text(sorted(stages), names)


def _stages_text(stages: Sequence[str], names: Sequence[str]) -> Text:
    if not stages and not names:
        return Text("the whole run")
    more = [Text("others")] if len(names) > SUBJECTS else []
    kernels: Value = [*(Name(name) for name in names[:SUBJECTS]), *more]
    if not names:
        return Text("{stages}", stages=[Name(stage) for stage in stages])
    if not stages:
        return Text("{kernels}", kernels=kernels)
    return Text("{stages}: {kernels}", stages=[Name(stage) for stage in stages], kernels=kernels)


def _choices(view: ReportView, saved: Savings) -> Iterator[_Choice]:
    """Yield the next smaller type of matrix products that repairs leave at a roof."""
    for dtype, smaller in NARROWER.items():
        kernels = [k for k in view.kernels if k.category in PRODUCTS and k.dtype == dtype]
        factors = [(k, _factor(view, k, dtype, smaller)) for k in kernels]
        known = [(kernel, factor) for kernel, factor in factors if factor > 1]
        if not known:
            continue
        time = view.run_time
        saves = sum(
            max(0.0, (time.of_kernels(k.total_ns or 0.0) or 0.0) - (saved.kernels[k.number] or 0.0))
            * (1 - 1 / factor)
            for k, factor in known
        )
        lowest, highest = (f([factor for _, factor in known]) for f in (min, max))
        rows = [kernel for kernel, _ in known]
        yield _Choice(
            Text("{what}: inputs in {smaller} in place of {dtype}", what=_kinds(rows),
                 smaller=Verbatim(smaller), dtype=Verbatim(dtype)),
            Text(
                "Their roofs allow {least} to {most} times the speed with {smaller}: bytes halve "
                "where memory limits, and the roof of the pipe rises where arithmetic does.",
                least=Number(lowest, "").at_digits(3), most=Number(highest, "").at_digits(3),
                smaller=Verbatim(smaller),
            ),
            _stages_text(sorted({s for k in rows for s in k.stages}),
                   list(dict.fromkeys(k.short_name for k in rows))),
            saves,
            COSTS[smaller],
        )  # fmt: skip


def _kinds(rows: Sequence[KernelRow]) -> Text:
    several = {"gemm": Text("matrix products"), "gemv": Text("products of matrix and vector")}
    return Text("{kinds}", kinds=[several[kind] for kind in PRODUCTS
                                  if any(row.category == kind for row in rows)])  # fmt: skip


def _factor(view: ReportView, kernel: KernelRow, dtype: str, smaller: str) -> float:
    """Return how many times as fast a kernel may be with a smaller type; 0 where not known."""
    if kernel.bound_by == "dram":
        return BYTES[dtype] / BYTES[smaller]
    if kernel.bound_by not in ("tensor", "fp64", "fp16"):
        return 0.0
    pipe = "tensor" if kernel.bound_by == "tensor" else kernel.bound_by
    to = "fp32" if smaller == "fp32" else "tensor"
    for source in SOURCES:
        roofs = {(r.key, r.dtype): r.value for r in view.roofs if r.source == source}
        now, then = roofs.get((pipe, dtype)), roofs.get((to, smaller))
        if now and then:
            return then / now
    return 0.0


def _of_choice(choice: _Choice, number: int, remaining_ns: float) -> PlanStep:
    saves = min(choice.saves_ns, remaining_ns)
    return PlanStep(
        number=number,
        do=choice.do,
        where=choice.where,
        saves=Number(saves, "ns", digits=3),
        of_remaining=Number(saves / remaining_ns if remaining_ns else None, "fraction"),
        after=Number(remaining_ns - saves, "ns", digits=3),
        sure="low",
        evidence=choice.evidence,
        wrong=Text("The same products with inputs of that type are no faster on this GPU."),
        effort="medium",
        costs=choice.costs,
        first=(),
        choice=True,
        anchor="",
    )
