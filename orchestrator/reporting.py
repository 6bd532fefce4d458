"""Makes the tables and the report of a run, and the comparison of a sweep."""

from __future__ import annotations

from pathlib import Path

from parsers.run_dir import RunDir


def make_report(run: RunDir) -> tuple[tuple[str, ...], Path]:
    """Write tables/ and report/ of a run; return its first findings and the path of report.md."""
    from reports.analyse import build_tables
    from reports.load import load_run
    from reports.render import render_report

    build_tables(run)
    made = render_report(load_run(run.path))
    return made.headline, made.report


def compare_variants(run: RunDir) -> tuple[tuple[str, ...], Path]:
    """Write report/ of a sweep from the runs in variants/; return its answer and report.md."""
    from reports.render import render_sweep
    from reports.sweep import sweep_view

    made = render_sweep(sweep_view(run.path), run.report)
    return made.headline, made.report
