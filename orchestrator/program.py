"""Turns a recipe's target into the argv, environment and folder of the child process."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.recipe_schema import Recipe, Target
from parsers.errors import RecipeError

BUNDLED_TARGETS = Path(__file__).resolve().parent.parent / "targets"


@dataclass(frozen=True)
class Program:
    """What nsys and ncu start.

    `env` holds only what the recipe adds to the environment. `digest` is the SHA-256 of the target
    file, "" for a command.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    digest: str = ""


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
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        argv = [_interpreter(target), str(path)]
    else:
        argv = _command(target)
    return Program((*argv, *render_args(target.args)), dict(target.env), cwd, digest)


def find_target(name: str, folders: tuple[Path, ...]) -> Path:
    """Return the absolute path of a target file.

    A plain name is sought beside the recipe, among the bundled targets and in the current folder,
    in this order; a path beside the recipe and then from the current folder.
    """
    wanted = Path(name).expanduser()
    places = [*folders, Path.cwd()]
    if wanted.name == name:
        places.insert(len(folders), BUNDLED_TARGETS)
    for place in places:
        if (place / wanted).is_file():
            return (place / wanted).resolve()
    bundled = ", ".join(sorted(p.name for p in BUNDLED_TARGETS.glob("[!_]*.py")))
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
