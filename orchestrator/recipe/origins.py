"""Writes a resolved recipe as YAML that says of each value which file or --set it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from nsight_prof.orchestrator.recipe.files import KeyPath, Layer

WIDTH = 10_000
"""No value is broken into several lines: its origin stands behind it."""


def with_origins(data: Mapping[str, Any], layers: Sequence[Layer]) -> str:
    """Return a resolved recipe with `# FILE:LINE` or `# --set …` behind what is no default.

    Args:
        data: the recipe as plain data.
        layers: what it was merged from, the last one above all others.
    """
    return "".join(_lines(data, (), layers))


def _lines(data: Mapping[str, Any], path: KeyPath, layers: Sequence[Layer]) -> Iterator[str]:
    indent = "  " * len(path)
    for key, value in data.items():
        here = (*path, str(key))
        if isinstance(value, dict) and value:
            yield f"{indent}{_dumped(key)}:\n"
            yield from _lines(value, here, layers)
            continue
        found = (layer.where(here) for layer in reversed(layers))
        origin = next((position for position in found if position is not None), None)
        line = f"{indent}{_dumped(key)}: {_dumped(value)}"
        yield f"{line}\n" if origin is None else f"{line}  # {' '.join(origin.split())}\n"


def _dumped(value: Any) -> str:
    """Return a value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=WIDTH)
    line = text.removesuffix("\n").removesuffix("\n...").strip()
    return json.dumps(value, ensure_ascii=False) if "\n" in line else line  # JSON is YAML
