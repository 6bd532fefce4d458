"""Collects rows of table `gaps` while the other tables are made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.bench.counters import without_numbers
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.sentences import stored


class Gaps:
    """Rows of table `gaps`, in the order they are found."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, str, str]] = []

    def add(self, table: str, reason: str, column: str = "", row: str = "") -> None:
        """Say why `table` is not available, or one column or one row (kernel, case) of it."""
        self._rows.append((table, row, column, reason, ""))

    def unreadable(self, table: str, path: Path, error: ProfError) -> None:
        """Say that `table` is not available, as its file gave nothing."""
        self.add(table, stored("{file} gave nothing: {error}", file=path.name, error=error.message))

    def has_reason(self, reason: str) -> bool:
        """Whether this reason is there already, of whatever table."""
        return any(row[3] == reason for row in self._rows)

    def frame(self, *others: pd.DataFrame) -> pd.DataFrame:
        """Return the rows as table `gaps`, with those of `others` behind them."""
        return joined([pd.DataFrame(self._rows, columns=_columns()), *others])


def joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return several tables `gaps` as one."""
    found = [tables.check(frame, "gaps") for frame in frames if len(frame)]
    return pd.concat(found, ignore_index=True) if found else tables.empty("gaps")


def summed(gaps: pd.DataFrame) -> pd.DataFrame:
    """Return table `gaps` with one row per column and reason, however many kernels share it.

    A benchmark has hundreds of kernels, and its report is about cases.
    """
    rows = []
    of_kernels = gaps["kernel_id"].ne("")
    summable = gaps[of_kernels]
    keys = [summable["table"], summable["column"], summable["reason"].map(without_numbers)]
    for _, group in summable.groupby(keys, sort=False, dropna=False):
        table, kernel_id, column, reason, kind = (str(group[name].iloc[0]) for name in _columns())
        if len(group) > 1:
            kernel_id, reason = (
                "",
                stored("{reason} ({kernels} kernels alike)", reason=reason, kernels=len(group)),
            )
        rows.append((table, kernel_id, column, reason, kind))
    return joined([gaps[~of_kernels], pd.DataFrame(rows, columns=_columns())])


def _columns() -> list[str]:
    return [column.name for column in tables.tables()["gaps"]]
