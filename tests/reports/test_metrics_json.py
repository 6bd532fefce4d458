import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.profile.links import page_links
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.metrics_json import render_metrics, render_section_metrics, schema
from nsight_prof.reports.sweep.section import SweepView, sweep_section
from tests.schemas import of_metrics


def loaded(run: Run) -> dict[str, Any]:
    view = report_view(run)
    found: dict[str, Any] = json.loads(render_metrics(view, page_links(run, view), run.gaps))
    return found


def test_a_whole_run_fits_the_schema(run: Run) -> None:
    of_metrics().validate(loaded(run))


def test_a_trace_alone_fits_the_schema(trace_only_run: Run) -> None:
    of_metrics().validate(loaded(trace_only_run))


def test_an_empty_comparison_fits_the_schema() -> None:
    view = SweepView("t", "q", "", ())
    text = render_section_metrics("sweep", view, sweep_section(view))
    of_metrics().validate(json.loads(text))


def test_the_schema_file_is_that_of_the_models(root: Path) -> None:
    path = root / "reports" / "metrics.schema.json"
    assert json.loads(path.read_text()) == schema(), "make it again: python scripts/docs.py"


def test_a_missing_key_does_not_fit_the_schema(run: Run) -> None:
    data = loaded(run)
    del data["kernels"]
    with pytest.raises(jsonschema.ValidationError):
        of_metrics().validate(data)


def test_nan_and_infinity_become_null(run: Run) -> None:
    view = replace(report_view(run), gpu_time_ns=math.nan, wall_ns=math.inf)
    data = json.loads(render_metrics(view, page_links(run, view), run.gaps))
    assert data["gpu_time_ns"] is None
    assert data["wall_ns"] is None


def test_reasons_of_what_is_missing_are_kept(run: Run) -> None:
    reasons = {gap["reason"] for gap in loaded(run)["gaps"]}
    assert "not in the sets that were collected" in reasons


def test_numbers_keep_full_precision(run: Run) -> None:
    share = next(k["share"] for k in loaded(run)["kernels"] if k["number"] == 1)
    assert share == run.kernels["share"].iloc[0]
