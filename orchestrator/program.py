"""Turns a recipe's target into the argv, environment and folder of the child process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.recipe_schema import Recipe
from orchestrator.recipe_sections import Target
from orchestrator.target_digest import digest_of
from parsers.errors import RecipeError

BUNDLED_TARGETS = Path(__file__).resolve().parent.parent / "targets"


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
    cwd = Path(target.cwd).expanduser().absolute() if target.cwd else Path.cwd()
    if not cwd.is_dir():
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
    return Program((*argv, *render_args(target.args)), dict(target.env), cwd, digest)


def measuring_program(program: Program, out: Path, turn: Turn) -> Program:
    """Return the program of one process of a benchmark: its records go to the file `out`."""
    numbers = ("--process", str(turn.process), "--repeat", str(turn.repeat))
    return replace(program, argv=(*program.argv, "--out", str(out), *numbers))


def counting_program(recipe: Recipe, out: Path) -> Program:
    """Return the benchmark as ncu runs it: each case once, with `bench.count_args`."""
    assert recipe.bench is not None
    args = {**recipe.target.args, **recipe.bench.count_args}
    counted = recipe.model_copy(
        update={"target": recipe.target.model_copy(update={"args": args})}
    ).found_in(recipe.folders)
    program = resolve_program(counted)
    return replace(program, argv=(*program.argv, "--count", "--out", str(out)))


def find_target(name: str, folders: tuple[Path, ...]) -> Path:
    """Return the absolute path of a target file.

    It is sought beside the recipe, among the bundled targets (roofline/run.py lies in a folder of
    its own) and in the current folder, in this order.
    """
    wanted = Path(name).expanduser()
    places = [*folders, BUNDLED_TARGETS, Path.cwd()]
    for place in places:
        if (place / wanted).is_file():
            return (place / wanted).resolve()
    found = [*BUNDLED_TARGETS.glob("[!_]*.py"), *BUNDLED_TARGETS.glob("*/run.py")]
    bundled = ", ".join(sorted(str(p.relative_to(BUNDLED_TARGETS)) for p in found))
    raise RecipeError(
        f"target.file {name} does not exist; sought in {', '.join(map(str, places))}",
        f"give a path to a Python file, or a bundled target: {bundled}",
    )


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
    return str(Path(target.python).expanduser()) if target.python else sys.executable


def _command(target: Target) -> list[str]:
    words = list(target.command or ())
    if words[0] in ("python", "python3") and target.python:
        words[0] = _interpreter(target)
    return words
