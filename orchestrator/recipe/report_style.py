"""Finds the templates of a recipe before its program runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.parsers.errors import RecipeError, UsageError


def with_templates(recipe: Recipe, folders: Sequence[Path]) -> Recipe:
    """Return the recipe with its folder of templates as a whole path, after a look into it.

    A relative folder is sought beside the recipe, then in the current folder. A fault is told
    before the program runs, not after it.

    Raises:
        RecipeError: there is no such folder, or it holds no template of a name that there is.
    """
    if recipe.templates is None:
        return recipe
    from nsight_prof.reports.render.style import Style, check_style

    places = [folder / recipe.templates for folder in (*folders, Path.cwd())]
    path = next(
        (candidate for candidate in places if os.path.isdir(candidate)), places[-1]
    ).absolute()
    try:
        check_style(Style(path))
    except UsageError as error:
        raise RecipeError(f"templates: {error.message}", error.hint) from error
    return recipe.model_copy(update={"templates": str(path)})
