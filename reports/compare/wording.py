"""Thresholds, operators and sentences of compare.yaml."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def _all() -> dict[str, Any]:
    text = resources.files("reports.compare").joinpath("compare.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def section(name: str) -> Any:
    """Return a section of compare.yaml as it stands."""
    return _all()[name]


def threshold(key: str) -> float:
    """Return a threshold, a fraction."""
    return float(section("thresholds")[key]["value"])


def threshold_source(key: str) -> str:
    """Return where a threshold comes from."""
    return str(section("thresholds")[key]["source"])
