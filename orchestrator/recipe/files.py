"""Turns recipe files, the recipes that they extend and `--set` options into one merged mapping."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nsight_prof.parsers import safe_yaml
from nsight_prof.parsers.errors import RecipeError

KeyPath = tuple[str, ...]
SUFFIXES = (".yaml", ".yml")
GROUPS = ("model", "dataset", "hardware", "workload", "profiling")
"""Folders of parts of recipes, of which --set GROUP=NAME chooses one."""
# Where a recipe has arguments of the program.
ARGUMENTS = (
    ("target", "args"),
    ("bench", "count_args"),
    ("untraced", "args"),
    ("trace", "args"),
    ("counters", "args"),
    ("operators", "args"),
    ("values", "args"),
)


@dataclass(frozen=True)
class Layer:
    """One source of keys: a file, or one `--set`. `lines` is key path -> 1-based line."""

    source: str
    data: dict[str, Any]
    folder: Path | None = None
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str | None:
        """Say where this layer sets the key at `path`, or None where it does not."""
        here: Any = self.data
        for key in path:
            if not isinstance(here, dict) or key not in here:
                return None
            here = here[key]
        line = self.lines.get(path)
        return f"{self.source}:{line}" if line else self.source


def bundled_folder() -> Path:
    """Folder of the bundled recipes."""
    return Path(__file__).resolve().parents[2] / "recipes"


def bundled() -> list[Path]:
    """Return the bundled recipe files, sorted by name."""
    return sorted(bundled_folder().glob("*.yaml"))


def own_folders() -> list[Path]:
    """Return the user's folders of recipes: those of PROF_RECIPES, then ~/.config/prof."""
    configured = os.environ.get("PROF_RECIPES", "").split(os.pathsep)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return [Path(os.path.expanduser(folder)) for folder in (*configured, f"{home}/prof") if folder]


def user_recipes() -> list[Path]:
    """Return the recipe files of the user's folders, each name once."""
    found = {p.stem: p for folder in reversed(own_folders()) for p in folder.glob("*.yaml")}
    return [found[name] for name in sorted(found)]


def find_recipe(name: str, start: Path | None = None, exclude: Path | None = None) -> Path:
    """Return the file of a recipe given by path or by name.

    A name is sought in the user's folders, then among the bundled ones; recipes/NAME.yaml is a name
    where there is no such file.

    Args:
        name: a path or a name.
        start: folder of the recipe that extends it, where a path is sought first and a name last.
        exclude: that recipe's file, which is not meant where its own name stands for a bundled one.

    Raises:
        RecipeError: there is none; the hint names the nearest bundled ones.
    """
    wanted = Path(os.path.expanduser(name))
    places = [start / wanted] if start else []
    places.append(wanted)
    if wanted.parent in (Path("."), Path("recipes")):
        file = f"{wanted.name.removesuffix('.yaml')}.yaml"
        candidates = [folder / file for folder in (*own_folders(), bundled_folder())]
        places += [
            path for path in candidates if exclude is None or path.resolve() != exclude.resolve()
        ]
        places += [start / file] if start else []
    for candidate in places:
        if os.path.isfile(candidate):  # also for what no file can be called: too long, a NUL in it
            return candidate
    names = [path.stem for path in bundled()]
    near = difflib.get_close_matches(wanted.stem, names, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise RecipeError(
        f"there is no recipe {name}",
        f"{guess}give a path to a YAML file or a bundled name: {', '.join(names)}",
    )


def read_layers(path: Path) -> list[Layer]:
    """Read a recipe file and all that it extends, the farthest ancestor first, each file once.

    Of several recipes that one extends, the later ones go over the earlier ones.

    Raises:
        RecipeError: not readable, not YAML, a key twice, or a circle of `extends`.
    """
    layers: dict[Path, Layer] = {}
    _read_with_parents(path, (), layers)
    return list(layers.values())


def _read_with_parents(path: Path, below: tuple[Path, ...], layers: dict[Path, Layer]) -> None:
    resolved = path.resolve()
    if resolved in below:
        chain = " -> ".join(p.name for p in (*below, resolved))
        raise RecipeError(
            f"{below[0]}: the recipes extend each other in a circle: {chain}",
            "remove `extends` from one of them",
        )
    if resolved in layers:
        return
    layer = _read_layer(path)
    parents = layer.data.get("extends")
    for name in [parents] if isinstance(parents, str) else parents or []:
        if isinstance(name, str):  # the schema refuses all else
            _read_with_parents(_parent(layer, name, path), (*below, resolved), layers)
    layers[resolved] = layer


def _parent(layer: Layer, name: str, path: Path) -> Path:
    """Return the file of a recipe that `layer`, the file `path`, extends."""
    try:
        return find_recipe(name, path.parent, path)
    except RecipeError as error:
        raise RecipeError(
            f"{layer.where(('extends',))}: extends: {error.message}", error.hint
        ) from error


def find_choice(group: str, name: str, recipe_folders: Sequence[Path]) -> Path:
    """Return the file `group`/`name`.yaml of a choice: beside a recipe, the user's, bundled.

    Raises:
        RecipeError: there is none; the hint names those that there are.
    """
    near = [folder for folder in recipe_folders if folder != bundled_folder()]
    folders = [folder / group for folder in (*near, *own_folders(), bundled_folder())]
    for folder in folders:
        if os.path.isfile(folder / f"{name}.yaml"):
            return folder / f"{name}.yaml"
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise RecipeError(
        f"--set {group}={name}: there is no {group}/{name}.yaml",
        f"there are: {', '.join(known)}"
        if known
        else "make it in a folder that PROF_RECIPES names",
    )


def parse_override(text: str) -> Layer:
    """Parse one `--set a.b=value`; the value is YAML.

    Raises:
        RecipeError: no `=`, an empty key or a value that is not YAML.
    """
    key, equals, value = text.partition("=")
    path = tuple(key_part.strip() for key_part in key.split("."))
    if path[0] == "sweep":  # its keys are dotted themselves
        path = ("sweep", ".".join(path[1:])) if path[1:] else path
    if not equals or not all(path):
        raise RecipeError(
            f"--set {text} is not of the form key=value",
            "write the dotted key and the value: --set target.args.batch=16",
        )
    try:
        data: Any = safe_yaml.parse(value)[1]
    except yaml.YAMLError as error:
        raise RecipeError(
            f"--set {text}: the value is not YAML: {_first_line(error)}",
            "quote the value for the shell: --set 'select.exclude=[nccl, memset]'",
        ) from error
    return Layer(f"--set {text}", _nested(path, data))


def merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Merge the layers in order: mappings are merged, lists and other values replaced.

    A layer that names another program (`target.file`, `target.command`) starts with empty
    `target.args`, `bench.count_args` and `args` of single steps, because the arguments of the old
    program mean nothing to the new one.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        data = _canonical(layer.data)
        target = data.get("target")
        inherited = merged.get("target")
        if (
            isinstance(target, dict)
            and isinstance(inherited, dict)
            and {"file", "command"} & target.keys()
        ):
            for section, key in (("target", "file"), ("target", "command"), *ARGUMENTS):
                if isinstance(merged.get(section), dict):
                    merged[section] = {k: v for k, v in merged[section].items() if k != key}
        merged = _merge(merged, data)
    return merged


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key != "capture":
            result[key] = _merge(old, value)
        else:
            result[key] = value
    return result


def _canonical(data: dict[str, Any]) -> dict[str, Any]:
    """Spell the target's arguments with underscores: prompt-len and prompt_len are the same."""
    for section, key in ARGUMENTS:
        inner = data.get(section)
        args = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(args, dict):
            spelled = {_spell(name): value for name, value in args.items()}
            data = data | {section: {**inner, key: spelled}}
    return data


def _spell(key: Any) -> Any:
    return key if not isinstance(key, str) or key.startswith("-") else key.replace("-", "_")


def _nested(path: KeyPath, value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def _read_layer(path: Path) -> Layer:
    if path.suffix not in SUFFIXES:
        raise RecipeError(
            f"{path} is not a recipe: a recipe is a .yaml file",
            f"to profile a Python file: prof run torch-script --set target.file={path}; any "
            f"other program: prof run own-command --set 'target.command=[{path}]'",
        )
    try:
        node, data = safe_yaml.read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}", "give a readable YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise RecipeError(
            f"{path}{line} is not YAML: {_first_line(error)}",
            "check the indentation and the quotes on and above that line",
        ) from error
    if not isinstance(data, dict):
        raise RecipeError(
            f"{path} is not a recipe: it holds no mapping of keys",
            "start from a bundled one: prof recipe show top-kernels > mine.yaml",
        )
    lines = dict(_lines(node, (), str(path)))
    return Layer(str(path), data, path.resolve().parent, lines)


def _lines(node: Any, path: KeyPath, source: str) -> Iterator[tuple[KeyPath, int]]:
    """Give each key path with its line; refuse a key that stands twice in one mapping."""
    if not isinstance(node, yaml.MappingNode):
        return
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in first_lines:
            raise RecipeError(
                f"{source}:{line}: the key {'.'.join((*path, key.value))} stands twice (first in "
                f"line {first_lines[key.value]})",
                "keep one of them",
            )
        first_lines[key.value] = line
        yield (*path, key.value), line
        yield from _lines(value, (*path, key.value), source)


def _first_line(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or str(error).splitlines()[0])
