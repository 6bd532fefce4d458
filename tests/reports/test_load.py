import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables as table_files
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.parsers.tables import tables
from nsight_prof.reports.analysis import timeline
from nsight_prof.reports.findings.kernels import judge as kernel_judge
from nsight_prof.reports.findings.program import rules
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.verdicts.ranking import findings, headline
from tests.recorded import with_tables


def test_every_table_is_an_attribute_with_all_its_columns(run: Run) -> None:
    for name, columns in tables().items():
        assert list(getattr(run, name).columns) == [c.name for c in columns]


def test_a_run_is_the_same_however_pandas_keeps_text(
    recorded_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    known = load_run(recorded_folder("h200-top-kernels"))
    said, kept = [repr(one) for one in findings(known)], known.kernels["name"].dtype
    by_arrow = pd.StringDtype("pyarrow")
    with (
        pd.option_context("mode.string_storage", "pyarrow"),  # as in a notebook
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(table_files._TYPES, "string", by_arrow)
        patch.setitem(table_files._NOTHING, "string", pd.Series([], dtype=by_arrow))
        for kept_once in ("_empty", "_schema_of", "_empty_schema", "_empty_files"):
            patch.setattr(table_files, kept_once, getattr(table_files, kept_once).__wrapped__)
        with_tables("h200-top-kernels", tmp_path / "run")
        run = load_run(tmp_path / "run")
        assert run.kernels["name"].dtype == by_arrow != kept
        assert [repr(one) for one in findings(run)] == said
    for name in tables():
        pd.testing.assert_frame_equal(
            getattr(run, name),
            getattr(known, name),
            check_dtype=False,
            check_index_type=False,
            check_column_type=False,
            check_categorical=False,  # how the names of categories are kept differs, too
        )


def test_who_reads_a_run_keeps_the_options_of_pandas() -> None:
    code = """import pandas
before = pandas.get_option("mode.string_storage")
from nsight_prof import load_run
assert load_run and pandas.get_option("mode.string_storage") == before"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_table_is_read_once(run: Run) -> None:
    assert run.kernels is run.kernels


def test_an_absent_table_is_empty(trace_only_run: Run) -> None:
    assert trace_only_run.counters.empty
    assert not trace_only_run.kernels.empty


def test_the_selection_comes_with_the_run(run: Run) -> None:
    assert run.selection is not None
    assert len(run.selection.kernels) == 11


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        load_run(tmp_path)


def test_a_damaged_table_is_named(run: Run) -> None:
    path = run.directory.tables / "kernels.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(ArtifactUnreadable, match=r"kernels\.parquet"):
        _ = run.kernels


def test_an_analysis_is_done_once_per_run(run: Run) -> None:
    asked: list[Run] = []

    @once
    def count(run: Run) -> int:
        asked.append(run)
        return len(run.kernels)

    other = replace(run)
    assert count(run) == count(run) == count(other) == len(run.kernels)
    assert list(map(id, asked)) == [id(run), id(other)]


def test_a_report_judges_each_kernel_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: Counter[str] = Counter()
    programs: list[Run] = []
    judge, program = kernel_judge._judged, timeline.timeline

    def counted(row: Any, *rest: Any) -> Any:
        judged[row["kernel_id"]] += 1
        return judge(row, *rest)

    def listed(run: Run) -> Any:
        programs.append(run)
        return program(run)

    monkeypatch.setattr(kernel_judge, "_judged", counted)
    monkeypatch.setattr(rules, "timeline", listed)
    report_view(run)
    headline(run)
    findings(run)
    assert len(programs) == 1
    assert set(judged) <= set(run.counters["kernel_id"])
    assert set(judged.values()) == {1}
