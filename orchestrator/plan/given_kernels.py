"""Turns `select.kernels` of a recipe, a file or a list of names, into a selection."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.plan.select import SelectOptions, choose_kernels
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.parsers.errors import RecipeError
from nsight_prof.parsers.join.join import plain_name
from nsight_prof.parsers.names.demangle import demangle
from nsight_prof.parsers.run.selection import SelectedKernel, Selection, read_selection
from nsight_prof.parsers.run.sentences import stored

NAMES_SHOWN = 5


def given_selection(recipe: Recipe) -> Selection | None:
    """Return the selection that the recipe gives itself, or None where it wants a ranking.

    Of a kernel given by its mangled name only, the first launch of each shape is profiled; grid,
    block and share stay unknown.

    Raises:
        RecipeError: the file does not exist; or a name is demangled, and no trace will tell by
            which mangled one ncu is to be asked.
        ArtifactUnreadable: the file is not a selection.
    """
    kernels = recipe.select.kernels
    if kernels is None:
        return None
    if isinstance(kernels, str):
        selection = read_selection(_find(kernels, recipe.folders))
    else:
        unknown = float("nan")
        selection = Selection(
            kernels=[SelectedKernel("", name, name, name, "", "", unknown, 0) for name in kernels],
            notes=[stored("the recipe names the kernels; there is no ranking")],
        )
    demangled = [kernel.name for kernel in selection.kernels if kernel.only_demangled]
    if demangled and recipe.counters.enabled and not is_traced(recipe):
        raise RecipeError(
            f"select.kernels: ncu is asked by mangled names, and these are not: {_some(demangled)}",
            "let the run trace the program too, which tells them: trace.enabled: true; or make the "
            "list from a trace: prof top-kernels TRACE.sqlite -o top-kernels.yaml",
        )
    return selection


def is_traced(recipe: Recipe) -> bool:
    """Return whether the run has a trace, its own or that of another run."""
    return recipe.trace.enabled or recipe.trace.from_run is not None


def resolved(
    selection: Selection, kernels: pd.DataFrame, launches: pd.DataFrame | None
) -> Selection:
    """Return a selection whose kernels, named as `nsys stats` does, are those of the trace.

    A row of a kernel summary stands for all kernels of its name: of every grid and block where it
    names none, of every instance of a template where it names the function alone (`:base`). What
    has a mangled name stays as it is, also where the trace does not have it.

    Raises:
        RecipeError: the trace has no kernel of a name.
    """
    known = set(kernels["mangled_name"].fillna(""))
    names = _Names.of(kernels)
    found: dict[str, list[str]] = {}
    stays, lacking = [], []
    for kernel in selection.kernels:
        if kernel.mangled_name in known:
            stays.append(kernel)
        elif ids := names.ids_of(kernel):
            found[kernel.name] = ids
        elif kernel.only_demangled:
            lacking.append(kernel.name)
        else:
            stays.append(kernel)
    if lacking:
        raise RecipeError(
            f"select.kernels: the trace has no kernel of the name {_some(lacking)}",
            "make the list from this trace, or take these names out: "
            "prof top-kernels steps/1-trace/trace.sqlite -o top-kernels.yaml",
        )
    if not found:
        return selection
    wanted = tuple(dict.fromkeys(key for ids in found.values() for key in ids))
    options = SelectOptions(top_k=None, coverage=None, collectives=True, kernels=wanted)
    chosen = choose_kernels(kernels, launches, None, options)
    first = min([chosen.skip] + [selection.skip] * bool(stays))
    last = max([chosen.skip + chosen.count] + [selection.skip + selection.count] * bool(stays))
    several = [
        stored(
            "{name} stands for {ids} kernels of the trace: all of them are profiled",
            name=name,
            ids=len(ids),
        )
        for name, ids in found.items()
        if len(ids) > 1
    ]
    return replace(
        chosen,
        kernels=[*stays, *chosen.kernels],
        skip=first,
        count=last - first,
        notes=[*chosen.notes, *several],
    )


@dataclass(frozen=True)
class _Names:
    """The kernels of a trace by their demangled names, as they are and as both tools write them."""

    kernels: pd.DataFrame
    full_name: pd.Series
    bare_name: pd.Series

    @staticmethod
    def of(kernels: pd.DataFrame) -> _Names:
        demangled = kernels["name"].fillna("").astype(str).map(demangle)
        return _Names(kernels, demangled, demangled.map(plain_name))

    def ids_of(self, kernel: SelectedKernel) -> list[str]:
        """Return the kernels that a name of `nsys stats` stands for, [] where none."""
        start, bare = kernel.name.rstrip(".\u2026"), plain_name(kernel.name)
        ways = [self.full_name == kernel.name, self.bare_name == bare]
        if start != kernel.name:  # a text table cuts long names
            ways.append(self.full_name.str.startswith(start))
        if "<" not in bare:
            ways.append(self.bare_name.str.partition("<")[0] == bare)
        shaped = pd.Series(True, index=self.kernels.index)
        if kernel.grid:
            same_grid = self.kernels["grid"] == kernel.grid
            shaped = same_grid & (self.kernels["block"] == kernel.block)
        for way in ways:
            if ids := self.kernels.loc[way & shaped, "kernel_id"].astype(str).tolist():
                return ids
        return []


def _some(names: Sequence[str]) -> str:
    shortened = [
        name if len(name) <= 120 else f"{name[:119]}\u2026" for name in names[:NAMES_SHOWN]
    ]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "; ".join(shortened) + more


def kernels_digest(recipe: Recipe) -> str:
    """Return the SHA-256 of the file that `select.kernels` names, "" where it names none.

    Raises:
        RecipeError: the file does not exist.
    """
    kernels = recipe.select.kernels
    if not isinstance(kernels, str):
        return ""
    return hashlib.sha256(_find(kernels, recipe.folders).read_bytes()).hexdigest()


def _find(name: str, folders: tuple[Path, ...]) -> Path:
    for folder in (*folders, Path.cwd()):
        path = folder / os.path.expanduser(name)
        if os.path.isfile(path):
            return path
    raise RecipeError(
        f"select.kernels: there is no file {name}",
        "make one with: prof top-kernels TRACE -k 20 -o top-kernels.yaml",
    )
