"""Loads a recipe by path or name, with what it extends and `--set`, and expands its sweep."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from nsight_prof.orchestrator.recipe.errors import explain
from nsight_prof.orchestrator.recipe.files import (
    GROUPS,
    Layer,
    find_choice,
    find_recipe,
    merge,
    parse_override,
    read_layers,
)
from nsight_prof.orchestrator.recipe.report_style import with_templates
from nsight_prof.orchestrator.recipe.schema import LONGEST_NAME, Recipe
from nsight_prof.parsers.errors import RecipeError

__all__ = ["Recipe", "expand", "load_recipe", "recipe_from_dict", "recipe_schema"]

MOST_VARIANTS = 1000
CHOICE = re.compile(r"[A-Za-z0-9][\w.-]*")


def load_recipe(path_or_name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe: its file, all that it extends, and the `--set` overrides, in this order.

    Raises:
        RecipeError: no such recipe, not YAML, an unknown key or a value that does not fit; the
            message names the file, the line and the dotted key.
    """
    return load_with_layers(path_or_name, overrides)[0]


def load_with_layers(
    path_or_name: str | Path, overrides: Sequence[str] = ()
) -> tuple[Recipe, list[Layer]]:
    """Return a recipe as `load_recipe` does, and the layers that it was merged from, in order."""
    path = find_recipe(str(path_or_name))
    files = read_layers(path)
    recipe_layer = len(files) - 1
    folders = _folders(files)
    choices, values = _choices(overrides)
    for group, choice in choices.items():
        files += read_layers(find_choice(group, choice, folders))
    folders = _folders(files)
    overriding = [parse_override(value) for value in values]
    layers = [*files, *overriding]
    data = merge(layers)
    if not any("name" in layer.data for layer in layers[recipe_layer:]):
        data["name"] = path.name.removesuffix(".yaml")
    recipe = with_templates(_validated(data, layers), folders).found_in(folders)
    recipe = recipe.merged_from(files, overriding)
    expand(recipe)
    return recipe, layers


def _folders(files: Sequence[Layer]) -> tuple[Path, ...]:
    return tuple(layer.folder for layer in reversed(files) if layer.folder is not None)


def _choices(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Divide overrides into choices of groups (model=vit-base) and values of keys."""
    choices: dict[str, str] = {}
    values: list[str] = []
    for text in overrides:
        group, _, name = text.partition("=")
        if group in GROUPS and CHOICE.fullmatch(name) and name != "null":
            choices[group] = name
        else:
            values.append(text)
    return choices, values


def recipe_from_dict(data: Mapping[str, Any], source: str) -> Recipe:
    """Rebuild the recipe that a manifest holds; `source` names it in errors."""
    return _validated(dict(data), [Layer(source, dict(data))])


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file.

    `name` may be absent in a file (it is the file's name then), and with `extends` so may `target`.
    """
    schema = Recipe.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    del schema["required"]
    schema["anyOf"] = [{"required": ["target"]}, {"required": ["extends"]}]
    return schema


def expand(recipe: Recipe) -> list[tuple[str, Recipe]]:
    """Return the variants of a sweep with readable names; without one, [("", recipe)].

    The order is that of nested loops over the keys as written, the last key fastest.

    Raises:
        RecipeError: a swept key or value that does not fit the schema, two equal variants, or
            more than MOST_VARIANTS.
    """
    if not recipe.sweep:
        return [("", recipe)]
    keys = list(recipe.sweep)
    short = _short_names(keys)
    count = math.prod(map(len, recipe.sweep.values()))
    if count > MOST_VARIANTS:
        raise RecipeError(
            f"sweep: its lists make {count:,} runs; a sweep has at most {MOST_VARIANTS:,}",
            "sweep fewer keys or values at a time: every combination is a run of the program",
        )
    variants: dict[str, Recipe] = {}
    for values in itertools.product(*recipe.sweep.values()):
        chosen = dict(zip(keys, values, strict=True))
        name = _bounded(",".join(f"{short[k]}={_readable(v)}" for k, v in chosen.items()))
        if name in variants:
            raise RecipeError(
                f"sweep: two variants are called {name}", "remove the value that stands twice"
            )
        variants[name] = _variant(recipe, chosen)
    return list(variants.items())


def _variant(recipe: Recipe, chosen: Mapping[str, Any]) -> Recipe:
    choices = {k: v for k, v in chosen.items() if k in GROUPS and isinstance(v, str)}
    files, values = recipe.layers
    layers_of_choices = [
        layer
        for group, name in choices.items()
        for layer in read_layers(find_choice(group, name, recipe.folders))
    ]
    recipe = recipe.found_in((*_folders(layers_of_choices), *recipe.folders))
    if layers_of_choices:  # as --set GROUP=NAME: over the recipe, under --set of single keys
        fields = {**merge([*files, *layers_of_choices, *values]), "name": recipe.name}
        fields.pop("sweep", None)
    else:
        fields = recipe.model_dump(mode="python", by_alias=True, exclude={"sweep"})
    layers = [Layer("recipe", fields)]
    for key, value in chosen.items():
        if key in choices:
            continue
        nested = parse_override(f"{key}=").data
        _set_leaf(nested, value)
        layers.append(Layer(f"sweep of {key}", nested))
    return _validated(merge(layers), layers).found_in(recipe.folders)


def _set_leaf(nested: dict[str, Any], value: Any) -> None:
    (key,) = nested
    if isinstance(nested[key], dict):
        _set_leaf(nested[key], value)
    else:
        nested[key] = value


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Name each swept key by its last part; by the whole key where two end alike."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: key if last.count(name) > 1 else name for key, name in zip(keys, last, strict=True)
    }


def _readable(value: Any) -> str:
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True)
    text = text.removesuffix("\n...\n").strip()
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") or "empty"


def _bounded(name: str) -> str:
    """Shorten a name that a folder could not have, and keep it unlike the others."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}-{digest}"


def _validated(data: dict[str, Any], layers: Sequence[Layer]) -> Recipe:
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise explain(error, layers) from error
