"""Runs whose tables are written by a test, and the finding of a program's rule on them."""

import math
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import (
    backends,
    clock,
    collectives,
    copies,
    host_work,
    idle,
    launches,
    needless,
    streams,
)
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


OF_TABLES = {
    "blocking_launches": launches.blocking_launches,
    "casts_and_copies": copies.casts_and_copies,
    "fills": copies.fills,
    "host_functions": launches.host_functions,
    "needless_work": needless.needless_work,
    "throttling": clock.clock_findings,
}
OF_LAUNCHES = {
    "collectives_exposed": collectives.collectives,
    "graph_breaks": launches.graph_breaks,
    "growing_steps": launches.growing_steps,
    "one_by_one": launches.one_by_one,
    "padded_batches": launches.padded_batches,
    "serial_streams": streams.serial_streams,
}
OF_WAITS = {"allocation_stalls", "data_loading", "launch_bound", "optimizer_loop", "sync_stalls",
            "tensor_prints"}  # fmt: skip
"""Of the rules about waits those that no finding about copies or loads changes."""


def of_backends(run: Run) -> list[Finding]:
    """Return what `program_findings` has of slow kernels, without asking the other rules."""
    return backends.backend_findings(run, timeline(run))


def of_rule(run: Run, rule: str) -> list[Finding]:
    """Return what `program_findings` has of a rule, without asking those that do not bear on it.

    All of them take ten times as long. `test_a_rule_that_is_asked_alone_is_one_of_all` holds that
    `program_findings` asks each of these.
    """
    if math.isnan(kernel_time(run)):
        return []
    if rule in OF_TABLES:
        found = OF_TABLES[rule](run)
    elif rule in OF_LAUNCHES:
        frame = timeline(run)
        found = [] if frame is None else OF_LAUNCHES[rule](run, frame)
    elif rule in OF_WAITS:
        found = host_work.with_host_work(run, idle.idle_findings(run))
    else:
        found = program_findings(run)
    return [finding for finding in found if finding.rule == rule]


def of_cause(run: Run, cause: str) -> Finding:
    """Return the one finding of a rule."""
    (found,) = of_rule(run, cause)
    return found
