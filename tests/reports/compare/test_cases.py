"""Comparison of benchmark cases and serving points."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.compare.cases import case_changes, point_changes
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.limits import parse_limit
from nsight_prof.reports.compare.section import github, markdown
from nsight_prof.reports.compare.sides import Side

BenchMaker = Callable[..., Run]
Row = Callable[..., dict[str, Any]]


def runs_frame(medians: dict[str, list[float]]) -> pd.DataFrame:
    """Table `bench_runs`: the median of each process."""
    columns = [c.name for c in tables.tables()["bench_runs"]]
    rows = [
        {"case_id": f"{name}|cold|normal", "repeat": 1, "process": i, "median_s": value, "n": 10}
        for name, values in medians.items()
        for i, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def side(make_bench_run: BenchMaker, bench_row: Row) -> Callable[..., Side]:
    def make(label: str, medians: dict[str, list[float]], **frames: pd.DataFrame) -> Side:
        rows = [bench_row(name, median_s=float(np.median(v))) for name, v in medians.items()]
        return Side(label, make_bench_run(rows, bench_runs=runs_frame(medians), **frames))

    return make


def test_processes_tell_change_from_noise(side: Callable[..., Side]) -> None:
    a = side("A", {"steady": [1e-3, 1.001e-3, 0.999e-3], "noisy": [1e-3, 1.3e-3, 0.8e-3],
                   "faster": [2e-3, 2.01e-3, 1.99e-3], "gone": [1e-3] * 3})  # fmt: skip
    b = side("B", {"steady": [1.0005e-3, 1e-3, 1.001e-3], "noisy": [1.2e-3, 0.9e-3, 1.1e-3],
                   "faster": [1e-3, 1.01e-3, 0.99e-3], "new": [1e-3] * 3})  # fmt: skip
    verdicts = {change.label: change.verdict for change in case_changes(a, b, 0.0)}
    assert verdicts == {
        "steady": "same",
        "noisy": "same",
        "faster": "faster",
        "gone": "gone",
        "new": "new",
    }
    assert case_changes(a, b, 0.0)[0].label == "faster"


def test_the_mean_of_cases_is_geometric(side: Callable[..., Side]) -> None:
    """Twice as fast and half as fast cancel out."""
    a = side("A", {"x": [1e-3] * 3, "y": [1e-3, 1.0001e-3, 1e-3]})
    b = side("B", {"x": [2e-3] * 3, "y": [0.5e-3, 0.50005e-3, 0.5e-3]})
    view = compare(a, b, [parse_limit("cases>+1%"), parse_limit("case:^x>+50%")])
    assert view.totals[0].ratio == pytest.approx(1.0, rel=1e-3)
    assert [limit.state for limit in view.limits] == ["kept", "broken"]
    assert "+100.0 %" in markdown(view)
    assert "> [!CAUTION]" in github(view)


def test_cases_that_only_one_run_has_are_no_difference(side: Callable[..., Side]) -> None:
    view = compare(side("A", {"x": [1e-3] * 3}), side("B", {"y": [1e-3] * 3}))
    text = markdown(view)
    assert "No quantity was measured in both runs." in text
    assert "1 case ran in A only." in text


def test_a_trace_is_no_benchmark(side: Callable[..., Side], recorded_run: Path) -> None:
    from nsight_prof.parsers.errors import UsageError
    from nsight_prof.reports.compare.sides import open_side

    with pytest.raises(UsageError, match="kind of run"):
        compare(side("A", {"x": [1e-3] * 3}), open_side("B", recorded_run))


def points_frame(rate: float, ttft: float) -> pd.DataFrame:
    columns = [c.name for c in tables.tables()["serving_points"]]
    row = {"source": "bench", "case_id": "b8|hot|normal", "case": "b8", "status": "ok",
           "repeats": 3, "output_tokens_per_s": rate, "ttft_p50_s": ttft}  # fmt: skip
    return pd.DataFrame([row], columns=columns)


def requests_frame(rates: list[float], ttft: float) -> pd.DataFrame:
    """Eight requests of 100 tokens a repeat, which last as long as the rate says."""
    columns = [c.name for c in tables.tables()["requests"]]
    rows = [
        {"source": "bench", "process": 1, "case": "b8", "repeat": repeat, "request": str(i),
         "output_tokens": 100, "arrival_s": 0.0, "finish_s": 800 / rate,
         "ttft_s": ttft * (1 + i / 1e4), "status": "ok"}
        for repeat, rate in enumerate(rates, 1)
        for i in range(8)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def test_a_higher_rate_is_better_and_a_longer_wait_worse(side: Callable[..., Side]) -> None:
    a = side("A", {"x": [1e-3] * 3}, serving_points=points_frame(1000, 0.1),
             requests=requests_frame([1000, 1001, 999], 0.1))  # fmt: skip
    b = side("B", {"x": [1e-3] * 3}, serving_points=points_frame(1100, 0.2),
             requests=requests_frame([1100, 1101, 1099], 0.2))  # fmt: skip
    (point,) = point_changes(a, b)
    verdicts = {change.key: change.verdict for change in point.changes}
    assert verdicts == {"output_tokens_per_s": "faster", "ttft_p50_s": "slower"}
    view = compare(a, b, [parse_limit("point:b8:ttft_p50_s>+10%")])
    assert view.limits[0].state == "broken"
    assert "Output rate: better at 1, worse at 0" in markdown(view)
    for rule in ("point:b64:ttft_p50_s>+10%", "point:b8:ttft>+10%", "point:b8>+10%"):
        with pytest.raises(UsageError, match="names nothing that both runs know") as refused:
            compare(a, b, [parse_limit(rule)])
        assert "point:b8:ttft_p50_s, " in f"{refused.value.hint.partition(';')[0]}, "
        assert "point:b8:output_tokens_per_s" in refused.value.hint
    with pytest.raises(UsageError, match="names nothing") as refused:
        compare(a, b, [parse_limit("case:y>+10%")])
    assert "there: case:x" in refused.value.hint
