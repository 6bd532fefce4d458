"""Evaluates the catalogue's columns over tool metrics: values, and why where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.metrics.catalogue import TENSOR_INPUTS, Catalogue, MetricColumn, Source
from nsight_prof.parsers.metrics.formulas import FORMULAS
from nsight_prof.parsers.metrics.tensor import tensor_inputs
from nsight_prof.parsers.run.sentences import stored

IMPOSSIBLE, NOT_COLLECTED = "impossible", "not collected"
"""Kinds of table `gaps`."""


@dataclass(frozen=True)
class Hole:
    """A value that is not available or approximate, and why; `row` is the kernel, None for all.

    `kind` is as in table `gaps`.
    """

    row: str | None
    column: str
    reason: str
    kind: str = ""


@dataclass(frozen=True)
class Evaluated:
    """Columns of the catalogue (index as the input), and their holes."""

    values: pd.DataFrame
    holes: list[Hole]


def evaluate(wide: pd.DataFrame, chip: str, catalogue: Catalogue) -> Evaluated:
    """Compute all columns of the catalogue.

    `wide` has one row per kernel (index kernel_id) and one column per tool metric, in base units,
    NaN where ncu has no value.
    `chip` may be unknown to the catalogue: sources are then taken by what the capture has.
    """
    evaluation = _Evaluation(wide, chip, catalogue)
    for column in catalogue.columns.values():
        evaluation.compute(column)
    columns = [c for c in catalogue.columns.values() if not c.helper]
    values = pd.DataFrame({c.name: evaluation.values[c.name] for c in columns}, index=wide.index)
    holes = [
        Hole(str(row), c.name, reason, evaluation.kinds.get((c.name, str(row)), ""))
        for c in columns
        if not c.quiet
        for row, reason in evaluation.reasons[c.name].items()
        if reason
    ]
    return Evaluated(values, holes)


class _Evaluation:
    """Values and reasons so far; a column may use those before it."""

    def __init__(self, wide: pd.DataFrame, chip: str, catalogue: Catalogue) -> None:
        self.wide = wide
        self.catalogue = catalogue
        self.chip = chip
        self.family = catalogue.family(chip)
        self.inputs = {name: wide[name] for name in wide.columns}
        tensor = tensor_inputs(wide)
        self.inputs |= {name: tensor[name] for name in TENSOR_INPUTS}
        self.values: dict[str, pd.Series] = {}
        self.reasons: dict[str, pd.Series] = {}
        self.kinds: dict[tuple[str, str], str] = {}

    def compute(self, column: MetricColumn) -> None:
        value, reasons = self._first_known(column)
        self.values[column.name] = value
        missing = value.isna().to_numpy()
        rows = [str(row) for row in value.index[missing]]
        found = list(self._missing_reasons(column, rows)) if rows else []
        # Into an array: pandas 3.0 refuses a list for all rows of a column.
        reasons[missing] = [reason for reason, _ in found]
        for row, (_, kind) in zip(rows, found, strict=True):
            self.kinds[column.name, row] = kind
        self.reasons[column.name] = pd.Series(reasons, index=value.index)
        if column.gate is not None:
            self._gate(column, *column.gate)

    def _first_known(self, column: MetricColumn) -> tuple[pd.Series, NDArray[np.object_]]:
        """Return each row's value by the first source that gives one, and that source's note."""
        value = pd.Series(float("nan"), index=self.wide.index)
        notes = np.full(len(value), "", dtype=object)
        known, unknown = np.zeros(len(value), bool), np.ones(len(value), bool)
        for source in column.sources:
            found = [self._input(name) for name in source.of]
            inputs = [series for series in found if series is not None]
            if not self._usable(source) or len(inputs) < len(found):
                continue
            result = FORMULAS[source.formula](*inputs)
            fresh = unknown & result.notna().to_numpy()
            value = value.where(~fresh, result) if known.any() else result.where(fresh)
            notes[fresh] = source.note
            known |= fresh
            unknown &= ~fresh
            if source.final:
                unknown &= ~np.all([series.notna() for series in inputs], axis=0)
            if not unknown.any():
                break
        return value, notes

    def _usable(self, source: Source) -> bool:
        return not source.strict or self.family in source.chips or self.chip in source.chips

    def _input(self, name: str) -> pd.Series | None:
        return self.values[name] if name in self.values else self.inputs.get(name)

    def _missing_reasons(
        self, column: MetricColumn, rows: Sequence[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield why the value of each row is missing, and the kind of the reason.

        It is that of the first source which could have given it.
        """
        source = self._expected(column)
        if source is None:
            yield from [(stored("{chip} has no counter for it", chip=self.chip), "")] * len(rows)
            return
        absent = [n for n in source.of if self._input(n) is None]
        if absent:
            reason = stored("not collected: {absent}", absent=absent[0])
            if len(absent) > 1:
                reason = stored(
                    "not collected: {absent} and {more:d} more",
                    absent=absent[0],
                    more=len(absent) - 1,
                )
            yield from [(reason, NOT_COLLECTED)] * len(rows)
            return
        yield from (self._missing_reason(column, source, row) for row in rows)

    def _missing_reason(self, column: MetricColumn, source: Source, row: str) -> tuple[str, str]:
        for name in source.of:
            series = self._input(name)
            if series is None or pd.notna(series[row]):
                continue
            if name in TENSOR_INPUTS:
                return stored("not collected: operations of a Tensor dtype"), NOT_COLLECTED
            if name not in self.values:
                return stored("ncu has no value for {name}", name=name), ""
            root = str(self.reasons[name][row])
            return root if root.startswith("needs ") else stored(
                "needs {name}, which is {root}", name=name, root=root
            ), ""
        return self._why_empty(column, source, row), ""

    def _expected(self, column: MetricColumn) -> Source | None:
        """Return the first source that the capture has, or else the one that `prof` asks for."""
        usable = [s for s in column.sources if self._usable(s)]
        for source in usable:
            if all(self._input(name) is not None for name in source.of):
                return source
        if self.family:
            return self.catalogue.source(column.name, self.family)
        return next((s for s in usable if not s.foreign), None)

    def _why_empty(self, column: MetricColumn, source: Source, row: str) -> str:
        """Say why a formula gives nothing: the reason of the first input that is 0, or the only."""
        reasons = dict(zip(source.of, column.empty, strict=False))
        zero = [n for n in reasons if (series := self._input(n)) is not None and series[row] == 0]
        if zero:
            return reasons[zero[0]]
        return " ".join(column.empty[:1]) or column.unclear or stored("the denominator is 0")

    def _gate(self, column: MetricColumn, low: float, high: float) -> None:
        value = self.values[column.name]
        for row in map(str, value.index[value.notna() & ~value.between(low, high)]):
            measured = f"{value[row]:.4g} {column.unit}".strip()
            reason = stored(
                "{label} came out at {measured}, outside of {low:g} to {high:g}",
                label=column.label,
                measured=measured,
                low=low,
                high=high,
            )
            for name in (column.name, *column.gate_closes):
                self.values[name] = self.values[name].mask(self.values[name].index == row)
                self.reasons[name][row] = reason
                self.kinds[name, row] = IMPOSSIBLE
