"""What points of the offline baseline and of a load test have in common."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, count, number, text
from nsight_prof.reports.load import Run


@dataclass(frozen=True)
class ServingPoint:
    """A measured point: its `row` of table serving_points."""

    row: Row

    @property
    def prompt(self) -> int:
        """Tokens of each prompt."""
        return count(self.row["prompt_tokens"]) or 0

    @property
    def output(self) -> int:
        """Tokens that each request generates."""
        return count(self.row["output_tokens"]) or 0

    def value(self, column: str) -> float:
        """Return a number of the row; NaN where it was not measured."""
        return number(self.row[column])


def model_row(run: Run) -> tuple[tuple[str, str], ...]:
    """Return the row of the summary that names the model; none where it has no name."""
    names = dict.fromkeys(text(name) for name in run.engines["model"] if text(name))
    return (("Model", ", ".join(names)),) if names else ()
