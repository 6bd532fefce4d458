"""Compares two runs, or the variants of a sweep; its settings are in compare.yaml."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml


@cache
def settings(name: str) -> Any:
    """Return a section of compare.yaml as it stands."""
    return packaged_yaml("nsight_prof.reports.compare", "compare.yaml")[name]


def threshold(key: str) -> float:
    """Return a threshold, a fraction."""
    return float(settings("thresholds")[key]["value"])
