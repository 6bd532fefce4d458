"""Thresholds of findings, and where they come from (findings.yaml)."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml


@cache
def thresholds() -> dict[str, dict[str, Any]]:
    """Return the value and the source of each threshold."""
    loaded: dict[str, dict[str, Any]] = packaged_yaml("nsight_prof.reports", "findings.yaml")
    return loaded["thresholds"]


def threshold(key: str) -> float:
    """Return a threshold of findings.yaml."""
    return float(thresholds()[key]["value"])


def source(key: str) -> str:
    """Return where a threshold comes from."""
    return str(thresholds()[key]["source"])
