"""Runs whose tables are written by a test, and the finding of a program's rule on them."""

from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.reports.evidence import Finding
from nsight_prof.reports.load import Run, load_run
from nsight_prof.reports.program_findings import program_findings

US = 1000


def write(run: Run, table: str, rows: list[dict[str, Any]]) -> Run:
    """Write `rows` as a table of the run; columns that they do not name stay empty."""
    frame = pd.DataFrame(rows).reindex(columns=list(tables.empty(table).columns))
    tables.write(tables.check(frame, table), table, run.directory.tables)
    return load_run(run.path)


def kernels(run: Run, rows: dict[str, dict[str, Any]]) -> Run:
    """Change columns of kernels by their readable name."""
    frame = run.kernels.copy()
    for name, values in rows.items():
        for column, value in values.items():
            frame.loc[frame["short_name"] == name, column] = value
    tables.write(frame, "kernels", run.directory.tables)
    return load_run(run.path)


def of_cause(run: Run, cause: str) -> Finding:
    (found,) = [f for f in program_findings(run) if f.cause == cause]
    return found
