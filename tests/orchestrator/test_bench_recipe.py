"""Recipes with `bench`: their defaults, what they inherit, and the counting run's arguments."""

import json
from collections.abc import Callable
from pathlib import Path

from nsight_prof.orchestrator.plan.program import counting_program
from nsight_prof.orchestrator.recipe.read import load_recipe, recipe_from_dict

Write = Callable[..., Path]
APP = "target: {command: [./app]}\n"


def test_a_benchmark_has_no_trace_and_counts_between_the_marks(write: Write) -> None:
    recipe = load_recipe(write(APP + "bench: {timeout: 5m}\n"), ["bench.processes=1"])
    assert recipe.bench is not None
    assert (recipe.bench.processes, recipe.bench.repeat, recipe.bench.timeout) == (1, 1, 300)
    assert not recipe.trace.enabled
    assert recipe.capture == "profiler-api"
    again = recipe_from_dict(json.loads(json.dumps(recipe.to_dict())), "manifest.json")
    assert again.to_dict() == recipe.to_dict()


def test_a_benchmark_builds_on_another_and_another_target_starts_without_arguments(
    write: Write,
) -> None:
    write("target: {file: gemm.py, args: {m: 1}}\nbench: {count_args: {only-if: a}}\n", "base.yaml")
    same = load_recipe(write("extends: base.yaml\nbench: {repeat: 3}\n"))
    assert same.bench is not None
    assert (same.bench.repeat, same.bench.count_args) == (3, {"only_if": "a"})
    other = load_recipe(write("extends: base.yaml\ntarget: {file: llm_block.py}\n"))
    assert other.bench is not None
    assert (other.target.args, other.bench.count_args) == ({}, {})


def test_the_counting_run_overrides_and_extends_the_arguments(write: Write) -> None:
    text = "target: {file: gemm.py, args: {m: 1, seed: 2}}\n"
    recipe = load_recipe(write(text + "bench: {count_args: {m: 8, seed: null, launches: 2}}\n"))
    argv = counting_program(recipe, Path("out")).argv[2:]
    assert argv == ("--m", "8", "--launches", "2", "--count", "--out", "out")
