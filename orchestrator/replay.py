"""Lets a recorded run stand in for the tools: same program, same raw captures, any machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.plan import Capabilities
from orchestrator.recipe import Recipe
from orchestrator.work import Result
from parsers.errors import UsageError
from parsers.run_dir import (
    Manifest,
    RunDir,
    StepState,
    decompress,
    plain_file,
    read_manifest,
)
from parsers.selection import Selection, read_selection

# Of the target; its interpreter, folder and values of variables differ between machines.
COMPARED = ("file", "command", "args")


def check_same_program(recipe: Recipe, recorded: Manifest, name: str) -> None:
    """Refuse to replay the captures of another program.

    Raises:
        UsageError: target or capture differ; the message says in what.
    """
    ours, theirs = recipe.to_dict(), recorded.recipe
    differences = [
        f"target.{key} is {_text(ours['target'].get(key))} here and "
        f"{_text(theirs.get('target', {}).get(key))} there"
        for key in COMPARED
        if _plain(ours["target"].get(key)) != _plain(theirs.get("target", {}).get(key))
    ]
    if _plain(ours["capture"]) != _plain(theirs.get("capture", "all")):
        differences.append(
            f"capture is {_text(ours['capture'])} here and {_text(theirs.get('capture'))} there"
        )
    if differences:
        raise UsageError(
            f"the recorded run {name} profiled something else: {'; '.join(differences)}",
            "replay a run of the same program, or leave --replay out to profile this one",
        )


def recorded_capabilities(recorded: Manifest) -> Capabilities:
    """Return what the recording machine could do: the plan of a replay is that of the record."""
    unavailable = {}
    for name in ("trace", "counters"):
        step = recorded.step(name)
        if step is None or step.state != StepState.DONE:
            why = step.error if step is not None and step.error else "it was not part of it"
            unavailable[name] = f"the recorded run has no {name}: {why}"
    trace = recorded.step("trace")
    digest = trace.inputs.get("target file's content", "") if trace is not None else ""
    return Capabilities(recorded.tools, unavailable, digest)


def copy_step(source: RunDir, name: str, folder: Path, result: Result) -> None:
    """Copy the files of a recorded step into `folder`, unpacked, and its record into `result`.

    Raises:
        UsageError: that run has no such finished step.
        ArtifactUnreadable: a packed file is damaged.
    """
    record = read_manifest(source).step(name)
    if record is None or record.state != StepState.DONE or not source.step(record).is_dir():
        raise UsageError(
            f"the run {source.path} has no finished {name} step",
            "name a run whose manifest.json says that the step is done",
        )
    for path in sorted(source.step(record).iterdir()):
        if path.suffix == ".xz":
            decompress(path, folder / path.stem)
        elif path.is_file():
            shutil.copyfile(path, folder / path.name)
    result.argv, result.exit_code = list(record.argv), record.exit_code
    result.warnings += record.warnings


def as_recorded(selection: Selection, source: RunDir) -> Selection:
    """Return `selection` with the launch window that the recorded counters were taken with.

    Which launch a result belongs to follows from the window; a choice made anew may have another.
    """
    path = source.artifact("select", "selection.yaml")
    if path is None:
        return selection
    with plain_file(path) as plain:
        recorded = read_selection(plain)
    if (recorded.skip, recorded.count) == (selection.skip, selection.count):
        return selection
    note = (
        f"the counters were recorded of {recorded.count} launches of each kernel after the first "
        f"{recorded.skip}; chosen anew, it would be {selection.count} after {selection.skip}"
    )
    launches = {kernel.kernel_id: kernel.launch for kernel in recorded.kernels}
    kernels = [replace(k, launch=launches.get(k.kernel_id, k.launch)) for k in selection.kernels]
    return replace(
        selection,
        kernels=kernels,
        skip=recorded.skip,
        count=recorded.count,
        notes=[*selection.notes, note],
    )


def _plain(value: Any) -> Any:
    """Return the value as JSON has it; empty and absent are the same."""
    return json.loads(json.dumps(value)) or None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
