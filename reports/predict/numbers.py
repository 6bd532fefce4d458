"""Predicted numbers of a row, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nsight_prof.parsers.cells import Row, known
from nsight_prof.reports.page import Column, Number, Ref, Text, Value

TOKEN_RATE, REQUEST_RATE = "tokens/s", "requests/s"
THROUGHPUT = "output_tokens_per_s"
ASKED = {
    "goodput_requests_per_s": (Text("Goodput"), REQUEST_RATE),
    "price_per_million_output_tokens": (Text("Price per million output tokens"), ""),
    "price_per_million_total_tokens": (Text("Price per million tokens, prompts as well"), ""),
}
"""What is predicted where it was asked for: goodput, and the price of tokens."""


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


def asked_for(rows: Sequence[Row], cell: Callable[..., Number] = predicted) -> list[Column[Row]]:
    """Return the columns of ASKED that some row has."""
    return [
        Column(heading, partial(cell, name=name, unit=unit), unit)
        for name, (heading, unit) in ASKED.items()
        if any(known(row.get(name)) is not None for row in rows)
    ]
