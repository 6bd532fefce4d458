"""Predicted numbers of a row, with their intervals."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, known
from nsight_prof.reports.page import Number, Ref, Text, Value

TOKEN_RATE, REQUEST_RATE = "tokens/s", "requests/s"
THROUGHPUT = "output_tokens_per_s"


def predicted(row: Row, name: str, unit: str, *refs: Ref) -> Number:
    """Return a predicted value with its interval; an end that nothing bounds is open."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return Number(row[name], unit, refs, "not predicted", known(low), known(high))


def with_interval(value: Number) -> Value:
    """Return a value with its interval, for a sentence; the interval alone where an end is open."""
    if value.low is value.high is None:
        return value
    if None in (value.low, value.high):
        return value.interval
    return Text("{value} ({interval})", value=value, interval=value.interval)
