import json
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.parsers.nsys.kern_sum_csv import read_kernel_summary
from nsight_prof.parsers.run.directory import Manifest, RunDir, write_manifest


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from a real trace, with its tables not made yet."""
    trace = root / "captures" / "h200-known-gemm" / "steps" / "1-trace" / "trace.sqlite.xz"
    return import_files([trace], tmp_path_factory.mktemp("export") / "run").path


def test_a_timeline_tells_how_to_open_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("perfetto", "chrome"):
        assert main(["export", str(run), "--format", form, "-o", str(tmp_path / form)]) == 0
    printed = capsys.readouterr().out
    assert "https://ui.perfetto.dev" in printed
    assert "arrows from call to GPU work" in printed
    assert (tmp_path / "perfetto").read_bytes() == (tmp_path / "chrome").read_bytes()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_are_those_of_the_run(run: Path, tmp_path: Path, form: str) -> None:
    assert main(["export", str(run), "--format", form, "-o", str(tmp_path / "all")]) == 0
    written = {path.stem for path in (tmp_path / "all").iterdir()}
    assert {"kernels", "launches", "gpus"} <= written
    assert "bench" not in written
    read = pd.read_csv if form == "csv" else pd.read_parquet
    for name in written:
        here = read(tmp_path / "all" / f"{name}.{form}")
        there = pd.read_parquet(run / "tables" / f"{name}.parquet")
        assert list(here.columns) == list(there.columns)
        assert len(here) == len(there)


def test_one_table_goes_to_one_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsight_prof.reports.export.table_files.ROWS", 2)
    target = tmp_path / "mine.csv"
    command = ["export", str(run), "--format", "csv", "--table", "kernels", "-o", str(target)]
    assert main(command) == 0
    kernels = pd.read_parquet(run / "tables" / "kernels.parquet")
    written = pd.read_csv(target)
    assert written["kernel_id"].tolist() == kernels["kernel_id"].tolist()
    assert written["total_ns"].tolist() == kernels["total_ns"].tolist()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--format", "csv", "--table", "nothing"], "there is no table nothing"),
        (["--table", "kernels"], "--table does not go with a timeline"),
        (["--format", "svg"], "svg"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Path, tmp_path: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), *options, "-o", str(tmp_path / "x")]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_is_no_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "-o", str(tmp_path)]) == 2
    assert "timeline.json.gz" in capsys.readouterr().err


def test_a_sweep_names_its_first_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Manifest("s", "2026-01-01T00:00:00Z", {"name": "s"}, variants=["batch=1", "batch=8"])
    write_manifest(RunDir(tmp_path), sweep)
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "t.json")]) == 2
    assert "variants/batch=1" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for form in ("perfetto", "csv"):
        target = tmp_path / "file" / "below"
        assert main(["export", str(run), "--format", form, "-o", str(target)]) == 1
        told = capsys.readouterr().err
        assert f"{target}" in told
        assert "cannot be written" in told
        assert ".partial" not in told


def test_files_of_llm_perf_opt_hold_the_numbers_of_the_run(
    root: Path, tmp_path: Path, no_pictures: None
) -> None:
    """Its kernel summary has the heads of nsys, so that our reader of those is the oracle."""
    run, folder = tmp_path / "run", tmp_path / "out"
    recorded = ["run", "top-kernels", "--replay", str(root / "captures" / "h200-top-kernels")]
    assert main([*recorded, "--out", str(run)]) == 0
    assert main(["export", str(run), "--format", "llm-perf-opt", "-o", str(folder)]) == 0
    (dated,) = folder.iterdir()
    datetime.strptime(dated.name, "%Y%m%d-%H%M%S")
    kernels = pd.read_parquet(run / "tables" / "kernels.parquet")
    read = read_kernel_summary(dated / "nsys" / "summary_cuda_gpu_kern_sum.csv").kernels
    assert read["total_ns"].sum() == kernels["total_ns"].sum()
    assert set(read["name"]) == set(kernels["name"])
    counters = pd.read_parquet(run / "tables" / "counters.parquet").set_index("kernel_id")
    summary = pd.read_csv(dated / "ncu" / "analysis" / "metrics_summary.csv")
    assert len(summary) == len(counters)
    assert summary["duration_us"].sum() == pytest.approx(counters["duration_ns"].sum() / 1e3)
    assert json.loads((dated / "env.json").read_text())["gpu"] == "NVIDIA H200"
    assert not (dated / "torch_profiler").exists()  # the run has no operators
    assert not (dated / "sequence.csv").exists()
