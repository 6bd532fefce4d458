"""Reads the YAML files that lie beside the code, such as the columns of all tables.

What only names tables and columns does so without pandas, which takes half a second to import.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

# LibYAML reads the same ten times as fast; PyYAML is built without it on some platforms. Recipes
# of users are not read with it: only the slow reader can quote the line that is wrong.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged_yaml(package: str, name: str) -> Any:
    """Return the data of file `name` of `package`, anew in each call."""
    return pickle.loads(_pickled(package, name))


@cache
def _pickled(package: str, name: str) -> bytes:
    """Return the data as bytes that are read again in a fiftieth of the time of its text."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return pickle.dumps(yaml.load(text, LOADER))


def read_again() -> None:
    """Forget what was read of all files: one was written anew."""
    _pickled.cache_clear()


@dataclass(frozen=True)
class Column:
    """One column: `dtype` is string, int, float, bool or category; `unit` may be empty."""

    name: str
    dtype: str
    unit: str
    meaning: str


@cache
def tables() -> dict[str, tuple[Column, ...]]:
    """Return all declared tables in the order of tables.yaml."""
    return {
        table: tuple(Column(name, *facts) for name, facts in columns.items())
        for table, columns in packaged_yaml("nsight_prof.parsers", "tables.yaml").items()
    }
