"""Measures how the code of reports, orchestrator and parsers is built, and that it gets no worse.

    python scripts/measure_house.py            print the measures beside what is kept
    python scripts/measure_house.py --check    exit code 1 if a measure is worse than kept
    python scripts/measure_house.py --keep     keep the measures of today in scripts/house.yaml

A higher number is worse in all of them. Those that scripts/house.yaml names are held: `kept` is a
ceiling that may only fall, `goal` is where it shall go. Several packages are measured as one house.

files, lines                of all Python files of the package
chain                       modules of the longest chain of imports within the package
modules_per_folder          Python files of the fullest folder, `__init__.py` left out
both_ways                   pairs of folders that import each other
called_once                 private functions with one call in their module
dialect                     assigned names among `dialect` in scripts/house.yaml
own_text_read               modules that search text by `re`, outside of `outside_text`
dynamic_imports             calls of `import_module`, `find_spec` and `__import__`
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
HOUSE = "scripts/house.yaml"
HINT = f"""mend it: names of no dialect, a folder that is not full. `lines` and `called_once` rise
with what is added: scripts/measure_house.py --keep, and the reason at the head of {HOUSE}"""
TOP = "nsight_prof"
DYNAMIC = {"import_module", "find_spec", "__import__"}
SEARCHES = {"match", "search", "fullmatch", "findall", "finditer", "split", "sub", "compile"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """A Python file: its import name, the folder that holds it, and its syntax tree."""

    name: str
    folder: str
    is_package: bool
    lines: int
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))


def read(root: Path, packages: str) -> list[Module]:
    """Read the Python files of folders of `root`; `root`/a is imported as nsight_prof.a."""
    modules = []
    for path in sorted(path for name in packages.split() for path in (root / name).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join((TOP, *(parts[:-1] if is_package else parts)))
        folder = path.parent.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name, folder, is_package, len(text.splitlines()), ast.parse(text)))
    return modules


def imports(module: Module, names: Iterable[str]) -> set[str]:
    """Return those of the modules `names` that a module imports, also within functions."""
    known, found = set(names), set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.name.split(".")
                here = here[: len(here) - node.level + module.is_package]
                base = ".".join([*here, *([base] if base else [])])
            whole = {f"{base}.{alias.name}" for alias in node.names}
            found |= (whole & known) or {base}
    return (found & known) - {module.name}


def longest_chain(arrows: Mapping[str, set[str]]) -> int:
    """Return how many modules the longest chain of imports has; those of a circle count once."""
    depths: dict[str, int] = {}
    open_ones: set[str] = set()

    def depth(name: str) -> int:
        if name not in depths:
            open_ones.add(name)
            below = (depth(other) for other in sorted(arrows[name]) if other not in open_ones)
            depths[name] = 1 + max(below, default=0)
            open_ones.discard(name)
        return depths[name]

    return max((depth(name) for name in sorted(arrows)), default=0)


def _both_ways(modules: Sequence[Module], arrows: Mapping[str, set[str]]) -> int:
    folders = {m.name: m.folder for m in modules}
    pairs = {(folders[a], folders[b]) for a in arrows for b in arrows[a]}
    return sum(a < b and (b, a) in pairs for a, b in pairs)


def _called_once(module: Module) -> int:
    private = {
        node.name
        for node in module.nodes
        if isinstance(node, FUNCTIONS) and node.name.startswith("_") and node.name[-2:] != "__"
    }
    loads = [
        node.id
        for node in module.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    attributes = [node.attr for node in module.nodes if isinstance(node, ast.Attribute)]
    used = Counter([*loads, *attributes])
    return sum(used[name] == 1 for name in private)


def _assigned(module: Module) -> Iterator[str]:
    """Yield the names that a module gives: variables, parameters, functions and classes."""
    for node in module.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name


def _searches_text(module: Module) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in {("re", name) for name in SEARCHES}
        for node in module.nodes
    )


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _of_dialect(module: Module, dialect: Collection[str]) -> list[str]:
    """Return the names of the dialect that a module assigns, as often as it does."""
    return [name for name in _assigned(module) if name.strip("_") in dialect]


def measure(
    modules: Sequence[Module], dialect: Collection[str], outside_text: Iterable[str]
) -> dict[str, int]:
    """Return the measures of a package by name."""
    names = {module.name for module in modules}
    arrows = {module.name: imports(module, names) for module in modules}
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules),
        "chain": longest_chain(arrows),
        "modules_per_folder": max(_per_folder(modules).values(), default=0),
        "both_ways": _both_ways(modules, arrows),
        "called_once": sum(map(_called_once, modules)),
        "dialect": sum(len(_of_dialect(module, dialect)) for module in modules),
        "own_text_read": len(_readers(modules, outside_text)),
        "dynamic_imports": sum(_called(node) in DYNAMIC for m in modules for node in m.nodes),
    }


def _lines(found: Mapping[str, int], ceilings: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for name, value in found.items():
        ceiling = "".join(f", {key} {limit}" for key, limit in ceilings.get(name, {}).items())
        yield f"  {name} {value}{ceiling}"


def _where(measure: str, modules: Sequence[Module], house: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a measure counts, where that is few: names of the dialect, the fullest folders."""
    if measure == "dialect":
        for module in modules:
            if names := sorted(set(_of_dialect(module, house["dialect"]))):
                yield f"  {module.name}: {', '.join(names)}"
    elif measure == "modules_per_folder":
        full = _per_folder(modules)
        yield from (f"  {folder}" for folder, n in full.items() if n == max(full.values()))
    elif measure == "own_text_read":
        yield from (f"  {name}" for name in _readers(modules, house["outside_text"]))


def _per_folder(modules: Iterable[Module]) -> Counter[str]:
    return Counter(module.folder for module in modules if not module.is_package)


def _readers(modules: Iterable[Module], outside_text: Iterable[str]) -> list[str]:
    outside = {f"{TOP}.{name}" for name in outside_text}
    return [m.name for m in modules if _searches_text(m) and m.name not in outside]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print, check or keep the measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--keep", action="store_true")
    options = parser.parse_args(arguments)
    path = root / HOUSE
    house: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    worse = []
    for packages, ceilings in house["packages"].items():
        modules = read(root, packages)
        found = measure(modules, house["dialect"], house["outside_text"])
        if not options.check and not options.keep:
            print("\n".join([packages, *_lines(found, ceilings)]))
        for name, ceiling in ceilings.items():
            if found[name] > ceiling["kept"]:
                worse.append(f"{packages}: {name} is {found[name]}, kept is {ceiling['kept']}")
                worse += _where(name, modules, house)
            ceiling["kept"] = found[name]
    if options.keep:
        head = "".join(
            f"{line}\n" for line in path.read_text("utf-8").splitlines() if line[:1] == "#"
        )
        text = yaml.safe_dump(house, sort_keys=False, default_flow_style=None, width=100)
        path.write_text(head + text, encoding="utf-8")
        return 0
    if options.check and worse:
        print("\n".join(["error: the house got worse", *worse]), file=sys.stderr)
        print(f"\nhint: {HINT}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
