"""Numbers and tables of the page in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.cells import Row


def error_numbers(row: Row) -> tuple[str, ...]:
    """Return mean absolute error, 90th percentile, bias and coverage of a row of `summary`."""
    bias = f"{row['bias']:+.1%}"
    return percent(row["mape"]), percent(row["p90"]), bias, f"{row['coverage']:.0%}"


def percent(value: float) -> str:
    """Return a share with one decimal."""
    return f"{value:.1%}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows below their heads."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"
