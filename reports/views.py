"""Turns a run into the view models that reports and plots are made from.

The models themselves are in reports/view_models.py, reports/figure_models.py and
reports/sweep_models.py.
"""

from __future__ import annotations

from reports.load import Run
from reports.view_models import ReportView, SummaryView


def report_view(run: Run) -> ReportView:
    """Return everything that the report of `run` shows."""
    raise NotImplementedError(run.path)


def summary_view(run: Run) -> SummaryView:
    """Return half a page for a reader who decides and does not tune kernels."""
    raise NotImplementedError(run.path)
