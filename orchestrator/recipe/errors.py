"""Turns pydantic's findings about a recipe into one error with file, line, key and remedy."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from nsight_prof.orchestrator.recipe.files import Layer
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.parsers.errors import RecipeError

SCHEMA_HINT = "all keys with their meaning: prof recipe schema"
WANTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
}


def explain(error: ValidationError, layers: Sequence[Layer]) -> RecipeError:
    """Return the error that names each wrong key, where it stands, and the nearest right one."""
    items = error.errors()
    findings = [_finding(item, layers) for item in items if not _follows(item, items)]
    if len(findings) == 1:
        message, remedy = findings[0]
        return RecipeError(message, remedy or SCHEMA_HINT)
    lines = [f"{message} ({remedy})" if remedy else message for message, remedy in findings]
    return RecipeError("\n       ".join(lines), SCHEMA_HINT)


def _follows(item: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a list is only too short because its items were refused."""
    inner = (second["loc"][: len(item["loc"])] for second in items if second is not item)
    return item["type"] == "too_short" and item["loc"] in inner


def _finding(item: Mapping[str, Any], layers: Sequence[Layer]) -> tuple[str, str]:
    # Tags of unions, and pydantic's mark of a key that is wrong itself, stand in no recipe.
    path = tuple(str(key) for key in item["loc"] if str(key)[:1] != "<" and key != "[key]")
    keys = tuple(key for key in path if not key.isdigit())
    dotted = ".".join(path)
    where = _where(keys, layers)
    prefix = f"{where}: " if where else ""
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"{prefix}unknown key {dotted}", _nearest_key(keys)
    if kind == "missing":
        return f"{prefix}the key {dotted} is missing", f"add {dotted} to the recipe"
    if kind == "value_error":
        reason = str(item["ctx"]["error"])
        return f"{prefix}{dotted}: {reason}" if dotted else f"{prefix}{reason}", ""
    if kind == "literal_error":
        return f"{prefix}{dotted}: {item['input']!r} is not one of its values", _literal(item)
    if kind == "too_short":
        return f"{prefix}{dotted}: the list is empty", "give at least one value"
    if item["loc"] == ("name",) and kind == "string_pattern_mismatch":
        return (
            f"{prefix}name: {_show(item['input'])} cannot be the name of a folder",
            "use letters, digits, dots, dashes and underscores",
        )
    wanted = WANTED.get(kind)
    reason = f"it wants {wanted}" if wanted else item["msg"][:1].lower() + item["msg"][1:]
    return f"{prefix}{dotted}: {_show(item['input'])} does not fit: {reason}", ""


def _where(keys: tuple[str, ...], layers: Sequence[Layer]) -> str:
    """Name the last layer that sets the key; else, for a rule over several keys, the last file."""
    for length in range(len(keys), 0, -1):
        for layer in reversed(layers):
            position = layer.where(keys[:length])
            if position is not None:
                return position
    files = [layer.source for layer in layers if layer.folder is not None]
    return files[-1] if files else layers[-1].source


def _nearest_key(keys: tuple[str, ...]) -> str:
    """Name the nearest right key at the same place, or in the whole schema."""
    everywhere = list(all_keys(Recipe))
    parent, wrong = (keys[:-1], keys[-1]) if keys else ((), "")  # the wrong key is a number
    here = [path[-1] for path in everywhere if path[:-1] == parent]
    near = difflib.get_close_matches(wrong, here, n=1)
    if near:
        return f"did you mean {'.'.join((*parent, near[0]))}?"
    elsewhere = [path for path in everywhere if path[-1] == wrong]
    if elsewhere:
        return f"{wrong} belongs elsewhere: {'.'.join(elsewhere[0])}"
    section = ".".join(parent) or "a recipe"
    return f"keys of {section}: {', '.join(here)}"


def all_keys(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the path of each key of a model and of the models inside it."""
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        yield path
        for inner in _models(field.annotation):
            yield from all_keys(inner, path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in get_args(annotation):
        yield from _models(argument)


def _literal(item: Mapping[str, Any]) -> str:
    expected = str(item["ctx"]["expected"])
    values = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(str(item["input"]), values, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"{guess}values: {', '.join(values)}"


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
