from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.tables import tables
from nsight_prof.reports.load import Run, load_run


def test_every_table_is_an_attribute_with_all_its_columns(run: Run) -> None:
    for name, columns in tables().items():
        assert list(getattr(run, name).columns) == [c.name for c in columns]


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
