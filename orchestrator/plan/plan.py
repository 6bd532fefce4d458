"""Turns a recipe and the facts of a machine into the steps of a run; pure, nothing is started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import Bench

Tool = Literal["nsys", "ncu", "prof", "target"]
StepName = Literal[
    "bench", "untraced", "trace", "select", "counters", "operators", "values", "report"
]
# Steps whose failure leaves the others, and a report without what they would tell.
SPARE = ("untraced", "counters", "operators", "values")

VALUE_LIMITS = ("operators", "seconds")


@dataclass(frozen=True)
class Capabilities:
    """What this machine can do.

    `versions` is tool -> version of nsys and ncu where found. `unavailable` is step -> one sentence
    why this machine cannot do it (no GPU, no permission for counters). `target_digest` is the
    SHA-256 of the target's file and modules, so that a resumed run sees that the program changed;
    `kernels_digest` is that of the file which `select.kernels` names.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    target_digest: str = ""
    kernels_digest: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a run.

    `inputs` is all that matters for the result, as text; `id` is the hash of the name, the inputs
    and the ids of the steps in `needs`. `unsupported` says why this machine cannot do it, else "".
    """

    name: StepName
    tool: Tool
    directory: str
    inputs: dict[str, str]
    needs: tuple[str, ...] = ()
    timeout_s: float | None = None
    unsupported: str = ""
    id: str = ""


def plan(recipe: Recipe, capabilities: Capabilities) -> tuple[Step, ...]:
    """Return the steps of one run (no sweep: expand first) in the order in which they run.

    A step that the recipe leaves out is absent; one that the machine cannot do is present with the
    reason in `unsupported`.
    """
    if recipe.bench is not None:
        return _identify(_bench_steps(recipe, recipe.bench, capabilities))
    steps = []
    if recipe.untraced.enabled:
        steps.append(_by_target("untraced", "steps/0-untraced", recipe, capabilities))
    traced = []
    if recipe.trace.enabled or recipe.trace.from_run is not None:
        traced.append(_trace(recipe, capabilities))
    steps += traced
    if recipe.counters.enabled:
        needs = tuple(step.name for step in traced)
        steps.append(_select(recipe, capabilities, needs))
        steps.append(_counters(recipe, capabilities))
    if recipe.operators.enabled:
        steps.append(_by_target("operators", "steps/4-operators", recipe, capabilities))
    if recipe.values.enabled:
        step = _by_target("values", "steps/5-values", recipe, capabilities)
        limits = {f"values.{key}": str(getattr(recipe.values, key)) for key in VALUE_LIMITS}
        steps.append(replace(step, inputs=step.inputs | limits))
    return _identify([*steps, _report(steps)])


def _report(steps: list[Step]) -> Step:
    return Step("report", "prof", "", {}, needs=tuple(step.name for step in steps))


def _bench_steps(recipe: Recipe, bench: Bench, capabilities: Capabilities) -> list[Step]:
    """Return the steps of a benchmark: measured un-profiled, then each case counted under ncu.

    The counters do not need the measured times: more processes leave them as they are.
    """
    program = _program(recipe, capabilities)
    numbers = {"bench.processes": str(bench.processes), "bench.repeat": str(bench.repeat)}
    unsupported = capabilities.unavailable.get("bench", "")
    steps = [
        Step(
            "bench",
            "target",
            "steps/1-bench",
            program | numbers,
            timeout_s=bench.timeout,
            unsupported=unsupported,
        )
    ]
    if recipe.counters.enabled:
        counted = _counters(recipe, capabilities)
        inputs = counted.inputs | {"bench.count_args": _text(bench.count_args)}
        steps.append(replace(counted, directory="steps/2-counters", inputs=inputs, needs=()))
    return [*steps, _report(steps)]


def _program(recipe: Recipe, capabilities: Capabilities) -> dict[str, str]:
    """Return the inputs that nsys and ncu share: the program and what of it is captured."""
    target = recipe.target
    dataset = recipe.dataset
    given = {} if dataset is None else {"dataset": _text(dataset.model_dump())}
    given |= {} if target.url is None else {"target.url": target.url}
    return given | {
        "target.file": target.file or "",
        "target.command": _text(target.command),
        "target.args": _text(target.args),
        "target.python": target.python or "",
        "target.env": hashlib.sha256(_text(target.env).encode()).hexdigest()[:16],
        "target.cwd": target.cwd or "",
        "target file's content": capabilities.target_digest,
        "capture": _text(recipe.model_dump(mode="json")["capture"]),
    }


def _own_args(recipe: Recipe, step: str) -> dict[str, str]:
    """Return the arguments that only this step has, as an input; none where there are none."""
    args = getattr(recipe, step).args
    return {f"{step}.args": _text(args)} if args else {}


def _by_target(
    name: Literal["untraced", "operators", "values"],
    directory: str,
    recipe: Recipe,
    capabilities: Capabilities,
) -> Step:
    """Return a step that starts the program without Nsight."""
    return Step(
        name,
        "target",
        directory,
        _program(recipe, capabilities) | _own_args(recipe, name),
        timeout_s=getattr(recipe, name).timeout,
        unsupported=capabilities.unavailable.get(name, ""),
    )


def _trace(recipe: Recipe, capabilities: Capabilities) -> Step:
    directory = "steps/1-trace"
    if recipe.trace.from_run is not None:
        return Step("trace", "prof", directory, {"trace.from": recipe.trace.from_run})
    inputs = _program(recipe, capabilities) | {
        **_own_args(recipe, "trace"),
        "trace.extra_args": _text(recipe.trace.extra_args),
        "nsys": capabilities.versions.get("nsys", ""),
    }
    return Step(
        "trace",
        "nsys",
        directory,
        inputs,
        timeout_s=recipe.trace.timeout,
        unsupported=capabilities.unavailable.get("trace", ""),
    )


def _select(recipe: Recipe, capabilities: Capabilities, needs: tuple[str, ...]) -> Step:
    inputs = {f"select.{k}": _text(v) for k, v in recipe.select.model_dump(mode="json").items()}
    # In the order in which they are tried, which a mapping sorted by name would lose.
    stages = recipe.stages
    inputs["stages"] = _text([*stages.items()] if isinstance(stages, dict) else stages)
    inputs["kernel file's content"] = capabilities.kernels_digest
    return Step("select", "prof", "steps/2-select", inputs, needs=needs)


def _counters(recipe: Recipe, capabilities: Capabilities) -> Step:
    counters = recipe.counters.model_dump(mode="json", exclude={"enabled", "timeout", "args"})
    inputs = _program(recipe, capabilities) | {
        **{f"counters.{k}": _text(v) for k, v in counters.items()},
        **_own_args(recipe, "counters"),
        "ncu": capabilities.versions.get("ncu", ""),
    }
    return Step(
        "counters",
        "ncu",
        "steps/3-counters",
        inputs,
        needs=("select",),
        timeout_s=recipe.counters.timeout,
        unsupported=capabilities.unavailable.get("counters", ""),
    )


def _identify(steps: list[Step]) -> tuple[Step, ...]:
    """Give each step its id; ids of needed steps go in, so that a change reaches what follows."""
    identified: dict[str, Step] = {}
    for step in steps:
        matter = [step.name, step.inputs, [identified[name].id for name in step.needs]]
        digest = hashlib.sha256(_text(matter).encode()).hexdigest()[:16]
        identified[step.name] = replace(step, id=digest)
    return tuple(identified.values())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
