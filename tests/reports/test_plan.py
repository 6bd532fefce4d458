"""The plan of a run: steps that add up, in an order in which each gains what it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.commands.plan import as_data, as_text
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Choice, Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.plan import Plan, _stages_text, make_plan
from nsight_prof.reports.summary.summary import summarise

WHOLE = 100e6


def idle(rule: str, gain_ns: float, stage: str = "") -> Finding:
    return Finding(
        key="idle", rule=rule, advice=Text(rule), rank=1, gain_ns=gain_ns, gain_of="wall time",
        stage=stage, verdict=Text("it waits"),
    )  # fmt: skip


def kernel(row: KernelRow, rule: str, gain_ns: float) -> Finding:
    return Finding(
        key="kernel", rule=rule, advice=Text(rule), rank=2, gain_ns=gain_ns, verdict=Text("it is"),
        kernel_ids=(row.kernel_id,), confidence="medium",
    )  # fmt: skip


def with_findings(view: ReportView, *found: Finding) -> ReportView:
    """Return a report of these findings whose run is 100 ms: 60 of two kernels, 40 idle."""
    plain: dict[str, Any] = {
        "gain_ns": None,
        "total_ns": 30e6,
        "bound_cause": "tail",
        "category": "copy",
    }
    first, second = (replace(row, **plain) for row in view.kernels[:2])
    time = replace(view.run_time, basis="wall", whole_ns=WHOLE, kernels_ns=60e6, copies_ns=0.0,
                   idle_ns=40e6, gpu_time_ns=60e6)  # fmt: skip
    return replace(view, findings=found, kernels=(first, second), run_time=time, sections=())


def adds_up(plan: Plan) -> None:
    left = plan.run_time.value or 0.0
    repairs = [step for step in plan.steps if not step.choice]
    for number, step in enumerate(plan.steps, 1):
        if number == len(repairs) + 1:
            left -= plan.smaller.value or 0.0
            assert plan.after_smaller.value == pytest.approx(left)
        assert step.number == number
        assert step.saves.value is not None
        assert step.of_remaining.value == pytest.approx(step.saves.value / left)
        left -= step.saves.value
        assert step.after.value == pytest.approx(left)
        assert set(step.first) <= set(range(1, number))
    assert left >= 0


def test_the_steps_of_a_run_add_up_and_are_those_of_the_first_screen(view: ReportView) -> None:
    plan = make_plan(view)
    assert plan.steps
    adds_up(plan)
    shown = summarise(view).first.actions
    repairs = [step for step in plan.steps if not step.choice]
    assert [a.saves.value for a in shown] == [s.saves.value for s in repairs[: len(shown)]]
    for step in plan.steps:
        assert step.sure in ("low", "medium", "high")
        assert Writer().text(step.evidence)
        assert Writer().text(step.where)


def test_faster_kernels_come_after_launches_that_the_gpu_waits_for(view: ReportView) -> None:
    slow = kernel(view.kernels[0], "uncoalesced_loads", 25e6)
    plan = make_plan(with_findings(view, slow, idle("launch_bound", 15e6)))
    assert [step.first for step in plan.steps] == [(), (1,)]
    assert plan.steps[0].saves.value == 15e6
    adds_up(plan)
    # Nobody knows that faster kernels wait, too, where the idle time has no known cause.
    plan = make_plan(with_findings(view, slow, idle("idle", 15e6)))
    assert [step.saves.value for step in plan.steps] == [25e6, 15e6]
    # What it waits for little does not hold back the kernels.
    plan = make_plan(with_findings(view, slow, idle("launch_bound", 5e6)))
    assert [step.saves.value for step in plan.steps] == [25e6, 5e6]
    assert [step.first for step in plan.steps] == [(), ()]


def test_a_wait_for_results_comes_before_slow_launches(view: ReportView) -> None:
    found = idle("launch_bound", 20e6), idle("sync_stalls", 15e6)
    plan = make_plan(with_findings(view, *found))
    assert plan.steps[1].first == (1,)
    assert "sync_stalls" not in Writer().text(plan.steps[1].do)
    adds_up(plan)


def test_the_headline_is_of_the_largest_step_which_others_may_come_before(view: ReportView) -> None:
    shown = with_findings(view, idle("launch_bound", 25e6), idle("sync_stalls", 12e6))
    first = summarise(shown).first
    assert [action.saves.value for action in first.actions] == [12e6, 25e6]
    verdict = Writer().text(first.verdict)
    assert verdict.startswith("The GPU is idle for 40 % of the run: the CPU starts the work too")
    assert "largest step saves" not in verdict


def test_smaller_types_are_a_choice_of_what_repairs_leave(view: ReportView) -> None:
    base = with_findings(view)
    rows = tuple(
        replace(row, category="gemm", dtype="bf16", bound_by="dram", gain_ns=6e6)
        for row in base.kernels
    )
    # A GPU without such a roof has no Tensor Cores for the type.
    assert make_plan(replace(base, kernels=rows)).steps == ()
    tensor = next(roof for roof in base.roofs if roof.key == "tensor")
    base = replace(base, roofs=(*base.roofs, replace(tensor, dtype="fp8")))
    plan = make_plan(replace(base, kernels=rows))
    (step,) = plan.steps
    assert step.choice
    # Half of the bytes of 30 ms each, less the 6 ms that a better kernel could save.
    assert step.saves.value == pytest.approx(2 * (30e6 - 6e6) / 2)
    assert "FP8" in Writer().text(step.costs)
    waiting = tuple(replace(row, bound_by="latency") for row in rows)
    assert make_plan(replace(base, kernels=waiting)).steps == ()


def test_tf32_is_a_choice_and_stands_after_all_repairs(view: ReportView) -> None:
    rows = view.kernels
    tf32 = replace(kernel(rows[0], "tensor_idle", 20e6), choice=True)
    plan = make_plan(with_findings(view, tf32, kernel(rows[1], "tail", 5e6)))
    assert [step.choice for step in plan.steps] == [False, True]
    assert plan.steps[1].saves.value == 20e6
    adds_up(plan)


def test_a_plan_names_the_first_of_many_stages() -> None:
    names = [f"stage {n}" for n in range(80)]
    text = Writer().text(_stages_text(names, []))
    assert text.startswith("stage 0, stage 1")
    assert text.endswith(" and others")
    assert len(text) < 60


def test_the_plan_of_a_run_without_time_says_so(view: ReportView) -> None:
    time = replace(view.run_time, basis="", whole_ns=None)
    plan = make_plan(replace(view, run_time=time))
    assert plan.steps == ()
    assert "nothing can be planned" in as_text(Path("runs/mine"), plan)


def test_text_and_json_say_the_same_steps(view: ReportView) -> None:
    plan = make_plan(view)
    data, text = as_data(Path("runs/mine"), plan), as_text(Path("runs/mine"), plan)
    assert len(data["steps"]) == len(plan.steps)
    for step in data["steps"]:
        assert f"{step['number']}. {step['do']}" in text
        assert step["kind"] in ("repair", "choice")
    assert data["whole_ns"] == pytest.approx(view.run_time.whole_ns)
    saved = sum(s["saves_ns"] for s in data["steps"]) + data["smaller_steps"]["saves_ns"]
    left = min(rows["after_ns"] for rows in (*data["steps"], data["smaller_steps"]))
    assert saved + left == pytest.approx(data["whole_ns"])


def test_what_the_plan_saves_lies_between_the_totals_of_the_first_screen(view: ReportView) -> None:
    """Repairs that are listed, and all smaller ones together, between estimates and bounds."""
    plan, first = make_plan(view), summarise(view).first
    repairs = sum(s.saves.value or 0.0 for s in plan.steps if not s.choice)
    saved = repairs + (plan.smaller.value or 0.0)
    assert (first.estimate.value or 0.0) <= saved <= (first.upper.value or 0.0) + 1
    assert plan.after_smaller.value == pytest.approx((first.total.value or 0.0) - saved, rel=1e-3)


def test_a_choice_is_about_what_the_choices_before_it_leave(view: ReportView) -> None:
    offer = Choice(Text("let it run faster"), Number(8e6, "ns"), Text("more heat"))
    choices = [
        replace(kernel(view.kernels[0], rule, 8e6), kernel_ids=(), offers=offer)
        for rule in ("throttling", "tf32")
    ]
    plan = make_plan(with_findings(view, *choices))
    first, second = plan.steps
    repaired = plan.after_smaller.value or 0.0
    assert first.saves.value == 8e6
    assert second.saves.value == pytest.approx(8e6 * (repaired - 8e6) / repaired)


def test_a_higher_clock_is_a_choice_with_the_gain_of_its_finding(view: ReportView) -> None:
    clock = replace(
        kernel(view.kernels[0], "throttling", 8e6),
        kernel_ids=(),
        offers=Choice(Text("let it run faster"), Number(8e6, "ns"), Text("more heat")),
    )
    shown = with_findings(view, clock, kernel(view.kernels[1], "tail", 5e6))
    plan, first = make_plan(shown), summarise(shown).first
    assert [(step.choice, step.saves.value) for step in plan.steps] == [(False, 5e6), (True, 8e6)]
    adds_up(plan)
    assert len(first.actions) == 1
    assert [Writer().value(choice.gains) for choice in first.choices] == ["up to 8.00 ms (8.0 %)"]
