"""Runs whose tables are written by a test, and the finding of a program's rule on them."""

from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rules import program_findings
from nsight_prof.reports.page import Evidence, Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.links import column_name

US = 1000


def write(run: Run, table: str, rows: list[dict[str, Any]]) -> Run:
    """Write `rows` as a table of the run; columns that they do not name stay empty."""
    frame = pd.DataFrame(rows).reindex(columns=list(tables.empty(table).columns))
    tables.write(tables.check(frame, table), table, run.directory.tables, csv=False)
    return load_run(run.path)


def kernels(run: Run, rows: dict[str, dict[str, Any]]) -> Run:
    """Change columns of kernels by their readable name."""
    frame = run.kernels.copy()
    for name, values in rows.items():
        for column, value in values.items():
            frame.loc[frame["short_name"] == name, column] = value
    tables.write(frame, "kernels", run.directory.tables)
    return load_run(run.path)


def english(text: Text | str | None) -> str:
    """Return a text as the English report shows it, without markup; "" for none."""
    return Writer().text(text) if isinstance(text, Text) else text or ""


def amount(row: Evidence) -> float:
    """Return the number of a row of evidence."""
    assert isinstance(row.value, Number)
    assert row.value.value is not None
    return row.value.value


def amounts(finding: Finding) -> dict[str, float]:
    """Return the numbers of a finding's evidence by their labels."""
    rows = [row for row in finding.evidence if isinstance(row.value, Number)]
    return {english(row.label): amount(row) for row in rows}


def unit(row: Evidence) -> str:
    """Return the unit of the number of a row of evidence."""
    return row.value.unit if isinstance(row.value, Number) else ""


def where(row: Evidence) -> tuple[str, ...]:
    """Return the columns that a row of evidence names."""
    refs = row.value.refs if isinstance(row.value, Number) else ()
    return tuple(dict.fromkeys(column_name(ref) for ref in refs if ref.column))


def of_cause(run: Run, cause: str) -> Finding:
    (found,) = [f for f in program_findings(run) if f.rule == cause]
    return found
