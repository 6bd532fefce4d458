"""`prof plan`: what to do, step by step, with what each saves, costs and leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say

if TYPE_CHECKING:
    from nsight_prof.reports.summary.plan import Plan, PlanStep

OF = {"wall": "of the run", "gpu": "of the GPU time"}


@click.command("plan")
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completion.runs)
@shared_options.as_json
def command(run: Path, as_json: bool) -> None:
    """Say what to do, in which order, what each step saves and what it costs.

    The steps add up: none counts what a step before it saves, and each says what remains after it.
    They are those of the first screen of the report, by the same calculation. Fixes come first:
    they give the same results. Choices that belong to the owner of the program (smaller number
    types) stand apart, with what they cost in accuracy. A step names those that must come before
    it: faster kernels save nothing while the GPU waits for the host. Needs no GPU.

    \b
    Examples:
      prof plan runs/mine
      prof plan runs/mine --json | jq '.steps[] | [.do, .saves_ns, .after_ns]'
    """
    from nsight_prof.orchestrator.report.run_tables import load_one_run
    from nsight_prof.reports.profile.views import report_view
    from nsight_prof.reports.summary.plan import make_plan

    loaded = load_one_run(run, "plan", refresh=True)
    plan = make_plan(report_view(loaded))
    if as_json:
        shared_options.say_json(as_data(run, plan))
    else:
        say(as_text(run, plan))


def as_data(run: Path, plan: Plan) -> dict[str, Any]:
    """Return the plan for --json: times in ns, parts 0 to 1, null for what is not known."""
    return {
        "run": str(run),
        "whole_ns": plan.run_time.value,
        "basis": plan.basis,
        "steps": [_step_data(step) for step in plan.steps],
        "smaller_steps": {
            "saves_ns": plan.smaller.value,
            "after_ns": plan.after_smaller.value,
        },
        "advice": [_words(text) for text in plan.advice],
    }


def _step_data(step: PlanStep) -> dict[str, Any]:
    return {
        "number": step.number,
        "kind": "choice" if step.choice else "repair",
        **{name: _words(getattr(step, name)) for name in ("do", "where")},
        "why": _words(step.evidence),
        "costs": _words(step.costs),
        "wrong_if": _words(step.wrong) if step.wrong is not None else None,
        "saves_ns": step.saves.value,
        "is_bound": step.is_bound,
        "of_remaining": step.of_remaining.value,
        "after_ns": step.after.value,
        "sure": step.sure,
        "effort": step.effort,
        "first": list(step.first),
        "finding": step.anchor or None,
    }


def as_text(run: Path, plan: Plan) -> str:
    """Return the plan for a terminal."""
    if plan.run_time.value is None:
        return f"{run}: no time is known, so nothing can be planned: it has no trace"
    lines = [f"{run}: {_words(plan.run_time)} {OF.get(plan.basis, '')}".rstrip()]
    groups = (("fixes", False), ("choices of the owner", True))
    for title, choice in groups:
        steps = [step for step in plan.steps if step.choice is choice]
        if steps:
            lines += ["", f"{title}:"]
        for step in steps:
            lines += _step_lines(step)
        if not choice and plan.smaller.value:
            lines += ["", _smaller(plan)]
    if not plan.steps:
        lines += ["", "no step saves a thousandth of it: less work alone helps"]
    if plan.advice:
        lines += ["", "without a time in this run:", *(f"  - {_words(a)}" for a in plan.advice)]
    return "\n".join(lines)


def _smaller(plan: Plan) -> str:
    smaller, after = _words(plan.smaller), _words(plan.after_smaller)
    return f"smaller steps, together: save at most {smaller}; {after} remain"


def _step_lines(step: PlanStep) -> list[str]:
    first = f", after step {', '.join(map(str, step.first))}" if step.first else ""
    saved = f"at most {_words(step.saves)}" if step.is_bound else _words(step.saves)
    saves = f"saves {saved} ({_words(step.of_remaining)} of what is left){first}"
    rows = [
        f"{step.number:3}. {_words(step.do)}",
        f"     {saves}; {_words(step.after)} remain",
        f"     sure: {step.sure}; effort: {step.effort}; costs: {_words(step.costs)}",
        f"     where: {_words(step.where)}",
        f"     why: {_words(step.evidence)}",
    ]
    return [*rows, f"     wrong if: {_words(step.wrong)}"] if step.wrong is not None else rows


def _words(value: Any) -> str:
    from nsight_prof.reports.page.writer import Writer

    return Writer().value(value)
