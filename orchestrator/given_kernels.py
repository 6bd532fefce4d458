"""Turns `select.kernels` of a recipe, a file or a list of names, into a selection."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from nsight_prof.orchestrator.recipe_schema import Recipe
from nsight_prof.parsers.errors import RecipeError
from nsight_prof.parsers.selection import SelectedKernel, Selection, read_selection


def given_selection(recipe: Recipe) -> Selection | None:
    """Return the selection that the recipe gives itself, or None where it wants a ranking.

    Of a kernel given by its mangled name only, the first launch of each shape is profiled; grid,
    block and share stay unknown.

    Raises:
        RecipeError: the file does not exist.
        ArtifactUnreadable: the file is not a selection.
    """
    kernels = recipe.select.kernels
    if kernels is None:
        return None
    if isinstance(kernels, str):
        return read_selection(_find(kernels, recipe.folders))
    return Selection(
        kernels=[SelectedKernel("", name, name, name, "", "", float("nan"), 0) for name in kernels],
        notes=["the recipe names the kernels; there is no ranking"],
    )


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
    for place in (*folders, Path.cwd()):
        path = place / Path(name).expanduser()
        if os.path.isfile(path):
            return path
    raise RecipeError(
        f"select.kernels: there is no file {name}",
        "make one with: prof top-kernels TRACE -k 20 -o top-kernels.yaml",
    )
