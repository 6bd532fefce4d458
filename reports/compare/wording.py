"""Thresholds, operators and sentences of compare.yaml."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml


@cache
def _all() -> dict[str, Any]:
    loaded: dict[str, Any] = packaged_yaml("nsight_prof.reports.compare", "compare.yaml")
    return loaded


def section(name: str) -> Any:
    """Return a section of compare.yaml as it stands."""
    return _all()[name]


def threshold(key: str) -> float:
    """Return a threshold, a fraction."""
    return float(section("thresholds")[key]["value"])
