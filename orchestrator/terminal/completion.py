"""What a shell may complete: recipes, their keys, runs, metric sets, chips.

Everything is imported when a shell asks, so that no other call of prof waits for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem


def recipes(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the bundled recipes, else files."""
    from nsight_prof.orchestrator.recipe.files import bundled

    return _items((path.stem for path in bundled()), typed, "file")


def recipe_keys(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the keys for --set, and after `key=` its values where the schema names them."""
    from nsight_prof.orchestrator.recipe.errors import all_keys
    from nsight_prof.orchestrator.recipe.schema import Recipe

    keys = [".".join(path) for path in all_keys(Recipe)]
    key, equals, _ = typed.partition("=")
    if equals:
        return _items((f"{key}={value}" for value in _values(key)), typed)
    sections = {key.rpartition(".")[0] for key in keys}
    return _items((f"{key}=" for key in keys if key not in sections), typed)


def runs(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the run directories below runs/ and of the folder that is typed, else folders."""
    from nsight_prof.parsers.run.directory import MANIFEST

    folder = typed.rpartition("/")[0]
    found = [*Path("runs").glob(f"*/{MANIFEST}"), *Path(folder or ".").glob(f"*/{MANIFEST}")]
    return _items(sorted({str(path.parent) for path in found}), typed, "dir")


def metric_sets(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the metric sets of the catalogue."""
    from nsight_prof.parsers.metrics.catalogue import catalogue

    return _items(catalogue().sets, typed)


def chips(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the chips of the catalogue and the GPUs that it names, in any case."""
    from nsight_prof.parsers.metrics.catalogue import catalogue

    known = catalogue()
    gpus = [name for names in known.products.values() for name in names.split(", ")]
    return _items([*sorted(known.families), *gpus], typed)


def _items(names: Iterable[str], typed: str, otherwise: str = "") -> list[CompletionItem]:
    """Give the names that begin as is typed; `otherwise`, what the shell finds by itself."""
    from click.shell_completion import CompletionItem

    by_shell = [CompletionItem(typed, type=otherwise)] if otherwise else []
    fitting = (name for name in names if name.lower().startswith(typed.lower()))
    return [*by_shell, *map(CompletionItem, fitting)]


def _values(key: str) -> list[str]:
    """Return the values of a key that the schema of recipes lists."""
    from nsight_prof.orchestrator.recipe.read import recipe_schema

    schema = recipe_schema()
    node: dict[str, Any] = schema
    for name in key.split("."):
        options = [node, *node.get("anyOf", ()), *node.get("oneOf", ())]
        inner = [schema["$defs"][o["$ref"].rpartition("/")[2]] for o in options if "$ref" in o]
        node = next(
            (o["properties"][name] for o in (*options, *inner) if name in o.get("properties", ())),
            {},
        )
    values = node.get("enum", ())
    return ["true", "false"] if node.get("type") == "boolean" else [str(value) for value in values]
