"""Lets a recorded run stand in for the tools: same program, same raw captures, any machine."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.plan.plan import Capabilities
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.recipe.schema import PROFILED
from nsight_prof.orchestrator.run.work import Result
from nsight_prof.orchestrator.system.secrets import choose_environment
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.artifacts import differences
from nsight_prof.parsers.run.directory import (
    VARIANTS,
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    decompress,
    plain_file,
    read_manifest,
)
from nsight_prof.parsers.run.selection import Selection, read_selection
from nsight_prof.parsers.run.sentences import stored

# Of the target; its interpreter, folder and values of variables differ between machines.
COMPARED = ("file", "command", "args")


def check_same_program(recipe: Recipe, recorded: Manifest, name: str) -> None:
    """Refuse to replay the captures of another program; of a sweep each run is checked by itself.

    Raises:
        UsageError: target or capture differ; the message says in what. Or only one is a sweep.
    """
    if bool(recipe.sweep) != bool(recorded.variants):
        raise _sweep_or_not(recorded, name)
    differences = _differences(recipe, recorded)
    if differences and not recipe.sweep:
        raise UsageError(
            f"the recorded run {name} profiled something else: {'; '.join(differences)}",
            "replay a run of the same program, or leave --replay out to profile this one",
        )


def like_recorded(recipe: Recipe, recorded: Manifest) -> tuple[Recipe, str]:
    """Return a recipe with the arguments and steps that a record of it has, and what that changed.

    A recipe goes on changing after it was recorded, or was recorded with fewer cases. Of a record
    of another recipe nothing is taken, and nothing is changed ("") where the two agree.
    """
    if recipe.sweep or recorded.variants or recorded.recipe.get("name") != recipe.name:
        return recipe, ""
    before = recorded.recipe
    left_out = [
        step
        for step in PROFILED
        if getattr(recipe, step).enabled and not (before.get(step) or {}).get("enabled", True)
    ]
    differences = _differences(recipe, recorded) + [
        f"{step}.enabled is false there" for step in left_out
    ]
    if not differences:
        return recipe, ""
    places = {"target": "args", "bench": "count_args", **dict.fromkeys(PROFILED, "args")}
    sections = {}
    for name, key in places.items():
        if (section := getattr(recipe, name)) is not None:
            update = {key: (before.get(name) or {}).get(key) or {}}
            update |= {"enabled": False} if name in left_out else {}
            sections[name] = section.model_copy(update=update)
    return recipe.model_copy(update=sections), "; ".join(differences)


def without_later_steps(recipe: Recipe, replay: Path | None) -> Recipe:
    """Return the recipe without the step `values` for the replay of a record that is older."""
    if replay is None or "values" in read_manifest(RunDir(replay)).recipe:
        return recipe
    return recipe.model_copy(update={"values": recipe.values.model_copy(update={"enabled": False})})


def as_measured(recipe: dict[str, Any], recorded: Manifest) -> dict[str, Any]:
    """Return the resolved recipe with the processes and repeats that the record really holds."""
    given, recorded_bench = recipe.get("bench"), recorded.recipe.get("bench")
    if not given or not recorded_bench:
        return recipe
    numbers = {key: recorded_bench[key] for key in ("processes", "repeat") if key in recorded_bench}
    return recipe | {"bench": given | numbers}


def check_reused_trace(recipe: Recipe) -> list[str]:
    """Return what the reader should know of the run in `trace.from`: it may be another program's.

    Raises:
        UsageError: there is no such run, or it has no finished trace.
    """
    if recipe.trace.from_run is None:
        return []
    source = RunDir(Path(recipe.trace.from_run))
    _finished(source, "trace")
    differences = _differences(recipe, read_manifest(source))
    if not differences:
        return []
    return [f"the trace of {source.path} is of something else: {'; '.join(differences)}"]


def _sweep_or_not(recorded: Manifest, name: str) -> UsageError:
    if not recorded.variants:
        return UsageError(
            f"the recorded run {name} is no sweep, and the recipe is one",
            "replay a recorded sweep, or replay this one with the recipe that recorded it",
        )
    return UsageError(
        f"the recorded run {name} is a sweep, and the recipe is none",
        f"replay one of its runs: --replay {name}/{VARIANTS}/{recorded.variants[0]}",
    )


def _differences(recipe: Recipe, recorded: Manifest) -> list[str]:
    """Say in what the target and the capture of a recipe differ from those of a recorded run."""
    # As the record has it: without the values of secret variables.
    environment = choose_environment(os.environ, recipe.target.env, recipe.to_dict())
    given, before = environment.redact_all(recipe.to_dict()), recorded.recipe
    differences = []
    for key in COMPARED:
        pair = [_as_json(target.get(key)) for target in (given["target"], before.get("target", {}))]
        if pair[0] != pair[1]:
            here, there = map(_text, _differing(*pair) if key == "args" else pair)
            differences.append(f"target.{key} is {here} here and {there} there")
    ours_bench, theirs_bench = given["bench"], before.get("bench")
    if bool(ours_bench) != bool(theirs_bench):
        which = ("a benchmark", "none") if ours_bench else ("no benchmark", "one")
        differences.append(f"it is {which[0]} here and {which[1]} there")
    elif ours_bench and theirs_bench:
        counted = [bench.get("count_args") for bench in (ours_bench, theirs_bench)]
        if _as_json(counted[0]) != _as_json(counted[1]):
            text = f"{_text(counted[0])} here and {_text(counted[1])} there"
            differences.append(f"bench.count_args is {text}")
    if not ours_bench and not theirs_bench and not differences:
        both = [name for name in PROFILED if given[name]["enabled"] and recorded.step(name)]
        for step in both:
            if _arguments(given, step) != _arguments(before, step):
                pair = [recipe.get(step, {}).get("args") for recipe in (given, before)]
                here, there = map(_text, _differing(*pair))
                differences.append(f"{step}.args is {here} here and {there} there")
    if _as_json(given["capture"]) != _as_json(before.get("capture", "all")):
        differences.append(
            f"capture is {_text(given['capture'])} here and {_text(before.get('capture'))} there"
        )
    return differences


def _differing(*pair: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return of two mappings of arguments what they do not share."""
    here, there = (args or {} for args in pair)
    same = {key for key in here if key in there and here[key] == there[key]}
    return [{k: v for k, v in args.items() if k not in same} for args in (here, there)]


def _arguments(recipe: dict[str, Any], step: str) -> dict[str, Any]:
    """Return the arguments that the program gets in a step: null and false leave one out."""
    args = {**recipe.get("target", {}).get("args", {}), **recipe.get(step, {}).get("args", {})}
    return {
        k: v for k, v in json.loads(json.dumps(args)).items() if v is not None and v is not False
    }


def recorded_capabilities(recorded: Manifest) -> Capabilities:
    """Return what the recording machine could do: the plan of a replay is that of the record."""
    unavailable = {}
    for name in ("bench", *PROFILED):
        step = recorded.step(name)
        if step is None or step.state != StepState.DONE:
            reason = step.error if step is not None and step.error else "it was not part of it"
            unavailable[name] = f"the recorded run has no {name} step: {reason}"
    first = recorded.step("trace") or recorded.step("bench")
    digest = first.inputs.get("target file's content", "") if first is not None else ""
    return Capabilities(recorded.tools, unavailable, digest)


def copy_step(source: RunDir, name: str, folder: Path, result: Result) -> None:
    """Copy the files of a recorded step, and of folders in it, into `folder`, unpacked.

    Its record goes into `result`. A report of nsys is left behind: its export is what is read, and
    it holds environments.

    Raises:
        UsageError: that run has no such finished step.
        ArtifactUnreadable: a packed file is damaged, a file is not as the step left it, or a link
            leads out of that run.
    """
    record = _finished(source, name)
    step = source.step(record)
    for path in sorted(step.rglob("*")):
        if ".nsys-rep" in path.suffixes:
            continue
        source.inside(path)
        if path.is_dir():
            continue
        copy = folder / path.relative_to(step)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            decompress(path, copy.with_suffix(""))
        elif path.is_file():
            shutil.copyfile(path, copy)
    result.argv, result.exit_code = list(record.argv), record.exit_code
    result.warnings += record.warnings


def _finished(source: RunDir, name: str) -> StepRecord:
    record = read_manifest(source).step(name)
    if record is None or record.state != StepState.DONE or not source.step(record).is_dir():
        raise UsageError(
            f"the run {source.path} has no finished {name} step",
            "name a run whose manifest.json says that the step is done",
        )
    changed = list(differences(source.step(record), record.files))
    if changed:
        raise ArtifactUnreadable(
            f"{source.step(record)} is not what the {name} step left: {'; '.join(changed)}",
            "put the files back, or fetch the recorded run again",
        )
    return record


def as_recorded(selection: Selection, source: RunDir) -> Selection:
    """Return `selection` with the launch window that the recorded counters were taken with.

    Which launch a result belongs to follows from the window; a choice made anew may have another.
    """
    path = source.artifact("select", "selection.yaml")
    if path is None:
        return selection
    with plain_file(path) as unpacked:
        recorded = read_selection(unpacked)
    if (recorded.skip, recorded.count) == (selection.skip, selection.count):
        return selection
    note = stored(
        "the counters are those of {recorded} of each kernel, as they were recorded; chosen "
        "anew it would be {selection}",
        recorded=_window(recorded),
        selection=_window(selection),
    )
    launches = {kernel.kernel_id: kernel.launch for kernel in recorded.kernels}
    kernels = [
        replace(kernel, launch=launch, deviation=None)
        if (launch := launches.get(kernel.kernel_id, kernel.launch)) != kernel.launch
        else kernel
        for kernel in selection.kernels
    ]
    return replace(
        selection,
        kernels=kernels,
        skip=recorded.skip,
        count=recorded.count,
        notes=[*selection.notes, note],
    )


def _window(selection: Selection) -> str:
    """Name the profiled launches, counted from 0."""
    if selection.count == 1:
        return stored("launch {skip}", skip=selection.skip)
    return stored(
        "launches {skip:d} to {last:d}",
        skip=selection.skip,
        last=selection.skip + selection.count - 1,
    )


def _as_json(value: Any) -> Any:
    """Return the value as JSON has it; empty and absent are the same."""
    return json.loads(json.dumps(value)) or None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
