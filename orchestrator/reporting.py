"""Makes the tables and the report of a run, and the comparison of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parsers.run_dir import RunDir

if TYPE_CHECKING:
    from reports.findings import Finding


def make_report(run: RunDir) -> tuple[list[Finding], Path]:
    """Write tables/ and report/ of a run; return its findings and the path of report.md."""
    from reports.analyse import build_tables
    from reports.findings import findings
    from reports.load import load_run
    from reports.render import render_report

    build_tables(run)
    loaded = load_run(run.path)
    return findings(loaded), render_report(loaded).report


def compare_variants(run: RunDir) -> Path:
    """Write report/ of a sweep from the runs in variants/; return the path of report.md."""
    from reports.render import render_sweep
    from reports.sweep import sweep_view

    return render_sweep(sweep_view(run.path), run.report).report
