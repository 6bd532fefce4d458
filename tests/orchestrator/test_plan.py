"""The plan: which steps a recipe becomes, and what makes a finished step stale."""

import pytest

from nsight_prof.orchestrator.plan.plan import Capabilities, Step, plan
from nsight_prof.orchestrator.recipe.files import Layer, merge, parse_override
from nsight_prof.orchestrator.recipe.read import load_recipe, recipe_from_dict
from nsight_prof.parsers.errors import RecipeError


def steps(*overrides: str, capabilities: Capabilities | None = None) -> dict[str, Step]:
    recipe = load_recipe("top-kernels", overrides)
    return {step.name: step for step in plan(recipe, capabilities or Capabilities())}


def changed(*overrides: str) -> set[str]:
    """Names of the steps whose id differs from that of the plain recipe."""
    before, after = steps(), steps(*overrides)
    return {name for name in before if before[name].id != after[name].id}


def test_the_whole_pipeline_has_four_steps_in_order() -> None:
    planned = steps()
    assert list(planned) == ["trace", "select", "counters", "report"]
    assert [step.tool for step in planned.values()] == ["nsys", "prof", "ncu", "prof"]
    assert planned["trace"].directory == "steps/1-trace"
    assert planned["counters"].directory == "steps/3-counters"
    assert planned["report"].needs == ("trace", "select", "counters")


def test_the_steps_without_nsight_stand_around_the_others_and_need_none() -> None:
    planned = steps("untraced.enabled=true", "operators.enabled=true", "operators.timeout=5m")
    assert list(planned) == ["untraced", "trace", "select", "counters", "operators", "report"]
    first, last = planned["untraced"], planned["operators"]
    assert (first.directory, last.directory) == ("steps/0-untraced", "steps/4-operators")
    assert (first.tool, last.tool) == ("target", "target")
    assert (first.needs, last.needs) == ((), ())
    assert (first.timeout_s, last.timeout_s) == (900, 300)
    assert planned["report"].needs == ("untraced", "trace", "select", "counters", "operators")
    plain = steps()
    for name in ("trace", "select", "counters"):
        assert planned[name].id == plain[name].id
    assert list(steps("operators.enabled=true", "counters.enabled=false")) == [
        "trace",
        "operators",
        "report",
    ]


def test_the_order_of_named_stages_is_an_input() -> None:
    ordered, other = steps("stages={a: x, b: y}"), steps("stages={b: y, a: x}")
    assert ordered["select"].id != other["select"].id


def test_arguments_of_a_step_are_inputs_of_that_step_alone() -> None:
    whole = ("untraced.enabled=true", "operators.enabled=true")
    before, after = steps(*whole), steps(*whole, "operators.args.steps=2")
    assert {n for n in before if before[n].id != after[n].id} == {"operators", "report"}
    after = steps(*whole, "untraced.args.steps=2")
    assert {n for n in before if before[n].id != after[n].id} == {"untraced", "report"}


def test_a_trace_only_recipe_has_no_selection_and_no_counters() -> None:
    assert list(steps("counters.enabled=false")) == ["trace", "report"]


def test_counters_on_given_kernels_need_no_trace() -> None:
    planned = steps("trace.enabled=false", "select.kernels=[a, b]")
    assert list(planned) == ["select", "counters", "report"]
    assert planned["select"].needs == ()


def test_the_trace_of_another_run_is_taken_without_nsys() -> None:
    trace = steps("trace.from=runs/old")["trace"]
    assert (trace.tool, trace.inputs) == ("prof", {"trace.from": "runs/old"})


def test_timeouts_bound_the_steps() -> None:
    planned = steps("trace.timeout=90s", "counters.timeout=2h")
    assert (planned["trace"].timeout_s, planned["counters"].timeout_s) == (90, 7200)
    assert planned["select"].timeout_s is None


def test_what_the_machine_cannot_do_is_planned_with_the_reason() -> None:
    planned = steps(capabilities=Capabilities(unavailable={"counters": "no permission"}))
    assert planned["counters"].unsupported == "no permission"
    assert planned["trace"].unsupported == ""


def test_the_same_recipe_has_the_same_ids() -> None:
    assert steps() == steps()
    assert changed() == set()


@pytest.mark.parametrize(
    ("override", "stale"),
    [
        ("target.args.batch=1", {"trace", "select", "counters", "report"}),
        ("target.env.A=1", {"trace", "select", "counters", "report"}),
        ("capture=all", {"trace", "select", "counters", "report"}),
        ("trace.extra_args=[--gpu-metrics-devices=all]", {"trace", "select", "counters", "report"}),
        ("select.top_k=5", {"select", "counters", "report"}),
        ("counters.sets=[roofline]", {"counters", "report"}),
        ("trace.args.steps=2", {"trace", "select", "counters", "report"}),
        ("counters.args.steps=2", {"counters", "report"}),
        ("operators.args.steps=2", set()),
        ("stages={a: x}", {"select", "counters", "report"}),
        ("trace.timeout=1h", set()),
        ("counters.timeout=2h", set()),
        ("question=why?", set()),
        ("notes=[a]", set()),
    ],
)
def test_a_change_makes_stale_what_depends_on_it_and_no_more(
    override: str, stale: set[str]
) -> None:
    assert changed(override) == stale


def test_a_changed_program_or_tool_makes_the_captures_stale() -> None:
    old = steps(capabilities=Capabilities(versions={"nsys": "2025.3.1"}, target_digest="a"))
    new = steps(capabilities=Capabilities(versions={"nsys": "2025.5.2"}, target_digest="a"))
    other = steps(capabilities=Capabilities(versions={"nsys": "2025.3.1"}, target_digest="b"))
    assert old["trace"].id != new["trace"].id
    assert old["trace"].id != other["trace"].id
    assert old["counters"].id != other["counters"].id


def test_any_yaml_value_can_be_an_argument() -> None:
    assert "2026-01-01" in steps("target.args.day=2026-01-01")["trace"].inputs["target.args"]


def test_no_value_of_the_environment_stands_in_the_inputs() -> None:
    trace = steps("target.env.TOKEN=s3cret")["trace"]
    assert "s3cret" not in str(trace.inputs)


def test_a_recipe_that_does_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="nothing to do"):
        steps("trace.enabled=false", "counters.enabled=false")


def bench_steps(override: str = "", capabilities: Capabilities | None = None) -> dict[str, Step]:
    """The steps of a benchmark recipe."""
    layer = parse_override(override).data if override else {}
    plain = {"name": "b", "target": {"file": "gemm.py", "args": {"m": 32}}, "bench": {}}
    recipe = recipe_from_dict(merge([Layer("b", plain), Layer("o", layer)]), "b")
    return {step.name: step for step in plan(recipe, capabilities or Capabilities())}


def test_a_benchmark_is_measured_then_counted_then_reported() -> None:
    planned = bench_steps()
    assert list(planned) == ["bench", "counters", "report"]
    assert [step.tool for step in planned.values()] == ["target", "ncu", "prof"]
    assert [step.directory for step in planned.values()] == [
        "steps/1-bench",
        "steps/2-counters",
        "",
    ]
    assert planned["bench"].timeout_s == 1200
    assert planned["report"].needs == ("bench", "counters")
    assert list(bench_steps("counters.enabled=false")) == ["bench", "report"]


@pytest.mark.parametrize(
    ("override", "stale"),
    [
        ("target.args.m=64", {"bench", "counters", "report"}),
        ("bench.processes=5", {"bench", "report"}),
        ("bench.repeat=3", {"bench", "report"}),
        ("bench.count_args.launches=2", {"counters", "report"}),
        ("counters.sets=[roofline]", {"counters", "report"}),
        ("bench.timeout=2h", set()),
    ],
)
def test_a_change_of_a_benchmark_makes_stale_what_depends_on_it(
    override: str, stale: set[str]
) -> None:
    before, after = bench_steps(), bench_steps(override)
    assert {name for name in before if before[name].id != after[name].id} == stale


def test_a_changed_module_of_the_target_makes_a_benchmark_stale() -> None:
    old = bench_steps(capabilities=Capabilities(target_digest="a"))
    new = bench_steps(capabilities=Capabilities(target_digest="b"))
    assert old["bench"].id != new["bench"].id
    assert old["counters"].id != new["counters"].id
