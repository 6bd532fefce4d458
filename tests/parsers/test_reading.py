"""What a file's content makes go wrong is said of the file; a defect of ours looks like one."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers import tables
from nsight_prof.parsers.build import run_tables
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.ncu import read_csv
from nsight_prof.parsers.nsys import trace
from nsight_prof.parsers.nsys.trace import NsysTrace, open_trace

TRACE = "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz"


def fails(*_: object, **__: object) -> None:
    raise KeyError("of_ours")


def test_what_goes_wrong_in_a_reader_is_said_of_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "memory_operations", fails)
    with open_trace(root / TRACE) as opened:
        with pytest.raises(ArtifactUnreadable, match=r"trace\.sqlite\.xz cannot be read as"):
            opened.memory_operations()
        assert not opened.kernels().empty


def test_what_goes_wrong_in_the_work_of_a_caller_is_not(root: Path) -> None:
    with pytest.raises(KeyError, match="of_ours"), open_trace(root / TRACE):
        fails()


def test_every_method_of_a_trace_reads_its_file() -> None:
    own = {name: value for name, value in vars(NsysTrace).items() if not name.startswith("_")}
    assert {name for name, value in own.items() if not hasattr(value, "__wrapped__")} == {"close"}


def test_the_work_on_a_table_is_not_said_of_its_file(tmp_path: Path) -> None:
    tables.write(tables.empty("stages"), "stages", tmp_path)
    path = tmp_path / "stages.parquet"
    with pytest.raises(KeyError, match="of_ours"), tables.parquet_file(path):
        fails()
    pd.DataFrame({"a": range(10)}).to_parquet(path)
    for frame in tables.batches(path, 4):
        assert len(frame) <= 4
    with pytest.raises(ArtifactUnreadable, match=r"stages\.parquet cannot be read as a table"):
        tables.read(tmp_path, "stages")


def test_a_defect_is_called_one_and_shows_where_it_is(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tables, "trace_frames", fails)
    assert main(["--debug", "import", str(root / TRACE), "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert "defect of prof" in said
    assert "Traceback" in said
    assert "in fails" in said
    assert "cannot be read" not in said


def test_a_reader_of_ncu_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counters.csv"
    path.write_text("x\n")
    monkeypatch.setattr("nsight_prof.parsers.ncu.csv_file.read_banner", fails)
    with pytest.raises(ArtifactUnreadable, match=r"counters\.csv cannot be read as an output"):
        read_csv(path)


def test_a_column_that_older_runs_lack_is_empty(tmp_path: Path) -> None:
    gap = dict.fromkeys(tables.empty("gaps").columns, "") | {"table": "stalls", "reason": "none"}
    tables.write(pd.DataFrame([gap]), "gaps", tmp_path)
    path = tmp_path / "gaps.parquet"
    pd.read_parquet(path).drop(columns="kind").to_parquet(path)
    assert tables.read(tmp_path, "gaps")["kind"].tolist() == [""]
