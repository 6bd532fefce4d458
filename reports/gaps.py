"""Collects rows of table `gaps` while the other tables are made."""

from __future__ import annotations

import pandas as pd

from parsers import tables


class Gaps:
    """Rows of table `gaps`, in the order they are found."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, str]] = []

    def add(self, table: str, reason: str, column: str = "", row: str = "") -> None:
        """Say why `table` is not available, or one column or one row (kernel, case) of it."""
        self._rows.append((table, row, column, reason))

    def frame(self, *others: pd.DataFrame) -> pd.DataFrame:
        """Return the rows as table `gaps`, with those of `others` behind them."""
        mine = pd.DataFrame(self._rows, columns=[c.name for c in tables.tables()["gaps"]])
        found = [tables.check(frame, "gaps") for frame in (mine, *others) if len(frame)]
        return pd.concat(found, ignore_index=True) if found else tables.empty("gaps")
