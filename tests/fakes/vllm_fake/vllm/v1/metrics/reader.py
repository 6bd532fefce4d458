"""Metrics as LLM.get_metrics returns them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counter:
    """A number that only grows."""

    name: str
    value: int
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Gauge:
    """A number that goes up and down."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Histogram:
    """Counts by bucket; it has no `value`."""

    name: str
    count: int
    sum: float
    buckets: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
