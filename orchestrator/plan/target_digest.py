"""Hashes a target's file with the modules of its own package that it imports; runs none of them."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

# Sources in other languages, and data, that lie beside the modules which load them.
OTHER_SOURCES = (".cu", ".cuh", ".json", ".yaml")
# Holds `targets`, in a checkout and when installed: bundled targets have one digest in both.
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "nsight_prof"


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a target; of a lone script it is that of its bytes.

    Of a file in a package (`targets/roofline/run.py`) all modules of that package count which it
    imports, directly or not, and the CUDA sources and data beside them and in folders there.
    """
    digest = hashlib.sha256(path.read_bytes())
    root = _root(path)
    if root is not None:
        for used_file in sorted(_used(path, root) - {path}):
            digest.update(str(used_file.relative_to(root)).encode())
            digest.update(used_file.read_bytes())
    return digest.hexdigest()


def _root(path: Path) -> Path | None:
    """Return the folder that holds the file's outermost package, None for a lone script."""
    root = path.parent
    while root != PACKAGE_ROOT and (root / "__init__.py").is_file():
        root = root.parent
    return None if root == path.parent else root


def _used(path: Path, root: Path) -> set[Path]:
    """Return all files of the package that `path` needs, itself among them."""
    found: set[Path] = set()
    modules: set[tuple[str, ...]] = set()
    folders: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        # Modules of a package import the same ones, and lie beside the same data.
        imported = _imported(file, root) - modules
        modules |= imported
        waiting += [module for name in imported for module in _places(name, root)]
        folder = file.parent
        if folder.parent == root:
            # The outermost package holds targets that have nothing to do with each other.
            found |= {near for kind in OTHER_SOURCES for near in folder.glob(f"{file.stem}*{kind}")}
        elif folder not in folders:
            folders.add(folder)
            found |= set(_data_files(folder))
    return found


def _data_files(folder: Path) -> Iterator[Path]:
    """Give the sources in other languages, and data, in a folder and in those below it."""
    for inner, _, names in os.walk(folder):
        yield from (Path(inner, name) for name in names if name.endswith(OTHER_SOURCES))


def _imported(file: Path, root: Path) -> set[tuple[str, ...]]:
    """Return the modules that a file may import, and the packages around them."""
    names = _modules(file.read_bytes(), file.relative_to(root).parent.parts)
    if root == PACKAGE_ROOT:
        names = frozenset(name[1:] if name[:1] == (PACKAGE,) else name for name in names)
    return {name[: length + 1] for name in names for length in range(len(name))}


@lru_cache(1000)  # a sweep asks of the same files for each of its runs
def _modules(source: bytes, package: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """Return the modules that a file of `package` may import, as parts of dotted names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()  # the run itself will tell
    return frozenset(name for node in ast.walk(tree) for name in _names(node, package))


def _names(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give the modules that a statement may import, as parts of dotted names."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield tuple(alias.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        base = (*above, *(node.module.split(".") if node.module else ()))
        yield base
        for alias in node.names:
            yield (*base, alias.name)


def _places(name: tuple[str, ...], root: Path) -> list[Path]:
    """Return the files that a module may be, as far as they exist."""
    path = root.joinpath(*name)
    return [f for f in (path.with_name(f"{path.name}.py"), path / "__init__.py") if f.is_file()]
