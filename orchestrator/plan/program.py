"""Turns a recipe's target into the argv, environment and folder of the child process."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.plan.target_digest import digest_of
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import Target
from nsight_prof.parsers.errors import RecipeError

BUNDLED_TARGETS = Path(__file__).resolve().parents[2] / "targets"
BUNDLED_DATASETS = BUNDLED_TARGETS / "inference" / "datasets"
TORCH_PROFILER = BUNDLED_TARGETS / "under_torch_profiler.py"
VALUE_PROFILER = BUNDLED_TARGETS / "value_profiler" / "run.py"
LINE_TIMER = BUNDLED_TARGETS / "line_timer"
WRAPPERS = {"operators": "torch's profiler", "values": "the recorder of values"}
HEAD = 2000  # characters of a file that may say how it is run
INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?")
# Options of the interpreter that may stand before a script: -c and -m take no script.
OPTION = re.compile(r"-[bBdEiIOPqsSuvx]+|-[XW].*")


@dataclass(frozen=True)
class Program:
    """What nsys and ncu start.

    `env` holds only what the recipe adds to the environment. `digest` is the SHA-256 of the target
    file and of the modules of its package that it uses, "" for a command.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    digest: str = ""


@dataclass(frozen=True)
class Turn:
    """One process of a benchmark; both numbers count from 1."""

    repeat: int
    process: int

    @property
    def file(self) -> str:
        """Name of the file that the process writes its records to."""
        return f"result-{self.repeat}-{self.process}.jsonl"


def resolve_program(recipe: Recipe) -> Program:
    """Return the program of a recipe with its file found.

    Raises:
        RecipeError: the target's file or folder does not exist.
    """
    target = recipe.target
    cwd = Path(os.path.expanduser(target.cwd)).absolute() if target.cwd else Path.cwd()
    if not os.path.isdir(cwd):
        raise RecipeError(
            f"target.cwd is not a folder: {cwd}", "make the folder, or correct target.cwd"
        )
    digest = ""
    if target.file is not None:
        path = find_target(target.file, recipe.folders)
        digest = digest_of(path)
        argv = [_interpreter(target), str(path)]
    else:
        argv = _command(target)
    url = {} if target.url is None else {"url": target.url}
    args = _dataset_args(recipe) | url | target.args
    return Program((*argv, *render_args(args)), dict(target.env), cwd, digest)


def _dataset_args(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe's dataset as arguments of the program; none without one.

    Raises:
        RecipeError: its folder or its list is nowhere.
    """
    if recipe.dataset is None:
        return {}
    given = recipe.dataset.model_dump()
    root, filelist = (_find_data(key, given[key], recipe) for key in ("root", "filelist"))
    return {
        "dataset_root": root,
        "filelist": filelist,
        "dataset_seed": given["seed"],
        **{key: given[key] for key in ("samples", "epochs", "shuffle")},
    }


def _find_data(key: str, name: str | None, recipe: Recipe) -> str | None:
    if name is None:
        return None
    wanted = Path(os.path.expanduser(name))
    places = data_places(recipe)
    for path in places:
        if (path / wanted).exists():
            return str((path / wanted).resolve())
    raise RecipeError(
        f"dataset.{key} {name} does not exist; sought in {', '.join(map(str, places))}",
        "give a path, set DATASETS_ROOT to the folder that holds your data sets, or take the "
        "bundled pages: --set dataset.root=pages",
    )


def data_places(recipe: Recipe) -> list[Path]:
    """Return the folders in which the data of a recipe are sought, in their order."""
    root = os.environ.get("DATASETS_ROOT")
    return [*recipe.folders, *([Path(root)] if root else []), BUNDLED_DATASETS, Path.cwd()]


def measuring_program(program: Program, out: Path, turn: Turn) -> Program:
    """Return the program of one process of a benchmark: its records go to the file `out`."""
    numbers = ("--process", str(turn.process), "--repeat", str(turn.repeat))
    return replace(program, argv=(*program.argv, "--out", str(out), *numbers))


def step_program(recipe: Recipe, step: str) -> Program:
    """Return the program as a step starts it, with the arguments that only this step has.

    Raises:
        RecipeError: the target's file or folder does not exist.
    """
    target = recipe.target.model_copy(update={"args": recipe.args_in(step)})
    return resolve_program(recipe.model_copy(update={"target": target}).found_in(recipe.folders))


def counting_program(recipe: Recipe, out: Path) -> Program:
    """Return the benchmark as ncu runs it: each case once, with `bench.count_args`."""
    program = step_program(recipe, "counters")
    return replace(program, argv=(*program.argv, "--count", "--out", str(out)))


def operators_program(recipe: Recipe, out: Path) -> Program:
    """Return the target under the torch profiler, which leaves its trace in the file `out`.

    torch's profiler cannot begin at an NVTX range: `capture: {nvtx: …}` gives the whole program.

    Raises:
        RecipeError: the target is no Python script, or does not exist.
    """
    program = step_program(recipe, "operators")
    python, script = _script(program.argv)
    capture = recipe.capture if recipe.capture == "profiler-api" else "all"
    detailed = ("--detailed",) if recipe.operators.detailed else ()
    wrapper = (str(TORCH_PROFILER), "--out", str(out), "--capture", capture, *detailed, "--")
    return replace(program, argv=(*python, *wrapper, *script))


def values_program(recipe: Recipe, out: Path) -> Program:
    """Return the target under the recorder of values, which leaves them in the file `out`.

    As `operators_program`: `capture: {nvtx: …}` gives the whole program.

    Raises:
        RecipeError: the target is no Python script, or does not exist.
    """
    program, values = step_program(recipe, "values"), recipe.values
    python, script = _script(program.argv, "values")
    capture = recipe.capture if recipe.capture == "profiler-api" else "all"
    limits = ("--operators", str(values.operators), "--seconds", f"{values.seconds:g}")
    wrapper = (str(VALUE_PROFILER), "--out", str(out), "--capture", capture, *limits, "--")
    return replace(program, argv=(*python, *wrapper, *script))


def _script(
    argv: tuple[str, ...], step: str = "operators"
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command into the interpreter with its options, and the script with its arguments."""
    index = 1
    while index < len(argv) and OPTION.fullmatch(argv[index]):
        index += 2 if argv[index] in ("-X", "-W") else 1
    python = INTERPRETER.fullmatch(Path(argv[0]).name)
    if python is None or index >= len(argv) or argv[index].startswith("-"):
        raise RecipeError(
            f"{WRAPPERS[step]} needs a Python script, and the target is {shlex.join(argv[:3])} …",
            "give target.file, or a command of the form [python, script.py, …]; else leave the "
            f"step out: --set {step}.enabled=false",
        )
    return argv[:index], argv[index:]


def find_target(name: str, folders: tuple[Path, ...]) -> Path:
    """Return the absolute path of a target file.

    It is sought beside the recipe, among the bundled targets (roofline/run.py and
    serving/offline.py lie in folders) and in the current folder, in this order.

    Raises:
        RecipeError: it is nowhere; the hint names the nearest bundled targets.
    """
    wanted = Path(os.path.expanduser(name))
    places = [*folders, BUNDLED_TARGETS, Path.cwd()]
    for path in places:
        if os.path.isfile(path / wanted):
            return (path / wanted).resolve()
    bundled = bundled_targets()
    last = {Path(known).name: known for known in bundled if not known.endswith("/run.py")}
    near = [last[key] for key in difflib.get_close_matches(wanted.name, last, n=1, cutoff=0.75)]
    near = near or difflib.get_close_matches(name, bundled, n=1, cutoff=0.75)
    guess = f"did you mean {near[0]}? " if near else ""
    raise RecipeError(
        f"target.file {name} does not exist; sought in {', '.join(map(str, places))}",
        f"{guess}give a path to a Python file, or a bundled target: {', '.join(bundled)}",
    )


def bundled_targets() -> list[str]:
    """Return the bundled targets as `target.file` names them, sorted.

    They say at their head how they are run: `python offline.py …`. Of a folder that has a run.py,
    that one is the target.
    """
    packages = {path.parent for path in BUNDLED_TARGETS.glob("*/run.py")}
    files = [*BUNDLED_TARGETS.glob("*.py"), *BUNDLED_TARGETS.glob("*/*.py")]
    names = [
        path.relative_to(BUNDLED_TARGETS).as_posix()
        for path in files
        if path != TORCH_PROFILER
        and (path.name == "run.py" or path.parent not in packages)
        and re.search(
            rf"(?m)^ +python (?:\S+/)?{re.escape(path.name)}\b", path.read_text("utf-8")[:HEAD]
        )
    ]
    return sorted(names)


def render_args(args: dict[str, Any]) -> list[str]:
    """Render `target.args` to a command line: {prompt_len: 512} becomes --prompt-len 512."""
    words: list[str] = []
    for key, value in args.items():
        option = key if key.startswith("-") else "--" + key.replace("_", "-")
        if value is None or value is False:
            continue
        words.append(option)
        if value is not True:
            words += [str(item) for item in (value if isinstance(value, list) else [value])]
    return words


def _interpreter(target: Target) -> str:
    return os.path.expanduser(target.python) if target.python else sys.executable


def _command(target: Target) -> list[str]:
    words = list(target.command or ())
    if words[0] in ("python", "python3") and target.python:
        words[0] = _interpreter(target)
    return words
