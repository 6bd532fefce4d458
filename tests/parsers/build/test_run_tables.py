import importlib.util
import lzma
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build import run_tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.errors import StepFailed
from nsight_prof.parsers.join.ncu_only import chip_name
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences_file import SENTENCES
from nsight_prof.reports.profile.views import report_view

KERN_SUM = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),Name
75.0,3000,3,1000.0,1000.0,900,1100,"void scale<float>(float*, int)"
25.0,1000,1,1000.0,1000.0,1000,1000,"void add<float>(float*, int)"
"""


@pytest.fixture(scope="session")
def fakes(root: Path) -> Path:
    return root / "tests" / "fakes"


@pytest.fixture(scope="session")
def make_trace(fakes: Path) -> Any:
    spec = importlib.util.spec_from_file_location("fake_trace", fakes / "fake_trace.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_trace


@pytest.fixture
def bare(tmp_path: Path) -> RunDir:
    """A run with both steps and no artifact."""
    steps = [
        StepRecord("trace", "a", StepState.DONE, "steps/1-trace"),
        StepRecord("counters", "b", StepState.DONE, "steps/3-counters"),
    ]
    for step in steps:
        (tmp_path / step.directory).mkdir(parents=True)
    run = RunDir(tmp_path)
    write_manifest(run, Manifest("r", "2026-11-21", {"name": "r", "stages": []}, steps=steps))
    return run


@pytest.fixture
def whole(bare: RunDir, make_trace: Any, fakes: Path) -> RunDir:
    """A run with a trace of three kernels and counters of two."""
    make_trace(bare.path / "steps/1-trace/trace.sqlite", "", {})
    shutil.copy(fakes / "counters.csv", bare.path / "steps/3-counters/counters.csv")
    return bare


def made(run: RunDir) -> Run:
    build_tables(run)
    return load_run(run.path)


def reasons(run: Run) -> str:
    return " | ".join(run.gaps["reason"])


def test_every_table_is_written_in_both_formats(whole: RunDir) -> None:
    build_tables(whole)
    names = {path.name for path in whole.tables.iterdir()}
    written = {f"{t}.{ext}" for t in tables.tables() for ext in ("parquet", "csv")}
    assert names == written | {SENTENCES}


def test_counters_join_the_trace(whole: RunDir) -> None:
    run = made(whole)
    assert len(run.kernels) == 3
    assert run.joins["chosen"].all()
    assert set(run.counters["kernel_id"]) <= set(run.kernels["kernel_id"])
    assert report_view(run).tier == "trace and counters"


def test_a_compressed_artifact_gives_the_same_tables(whole: RunDir) -> None:
    plain = made(whole).kernels
    path = whole.path / "steps/1-trace/trace.sqlite"
    path.with_name("trace.sqlite.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    pd.testing.assert_frame_equal(plain, made(whole).kernels)


def test_a_trace_alone_keeps_its_tables_and_says_what_is_missing(whole: RunDir) -> None:
    (whole.path / "steps/3-counters/counters.csv").unlink()
    run = made(whole)
    assert len(run.kernels) == 3
    assert run.counters.empty
    assert "no counters" in reasons(run)
    assert not run.roofs.empty
    assert report_view(run).tier == "trace only"


def test_a_refusal_of_the_driver_is_the_reason(whole: RunDir) -> None:
    manifest = load_run(whole.path).manifest
    (whole.path / "steps/3-counters/counters.csv").unlink()
    manifest.steps[1].state = StepState.UNSUPPORTED
    manifest.steps[1].error = "the driver refuses the counters"
    write_manifest(whole, manifest)
    assert "the driver refuses the counters" in reasons(made(whole))


def test_counters_alone_make_kernels_of_unknown_share(whole: RunDir) -> None:
    (whole.path / "steps/1-trace/trace.sqlite").unlink()
    run = made(whole)
    assert len(run.kernels) == 2
    assert run.kernels[["calls", "total_ns", "share"]].isna().all(axis=None)
    assert len(run.counters) == 2
    view = report_view(run)
    assert view.tier == "counters only"
    assert [row.share for row in view.kernels] == [None, None]


def test_a_kernel_summary_stands_in_for_a_trace(bare: RunDir) -> None:
    (bare.path / "steps/1-trace/kern_sum.csv").write_text(KERN_SUM)
    run = made(bare)
    assert run.kernels["total_ns"].tolist() == [3000, 1000]
    assert "kernel summary" in reasons(run)
    assert report_view(run).tier == "trace only"


@pytest.mark.parametrize("mode", ["no-kernels", "unknown-schema"])
def test_a_trace_that_cannot_be_used_leaves_the_counters(
    whole: RunDir, make_trace: Any, mode: str
) -> None:
    path = whole.path / "steps/1-trace/trace.sqlite"
    path.unlink()
    make_trace(path, mode, {})
    run = made(whole)
    assert "trace.sqlite gave nothing" in reasons(run)
    assert len(run.counters) == 2


def test_a_cut_off_trace_leaves_the_counters(whole: RunDir) -> None:
    path = whole.path / "steps/1-trace/trace.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    assert len(made(whole).counters) == 2


def test_broken_counters_leave_the_trace(whole: RunDir) -> None:
    (whole.path / "steps/3-counters/counters.csv").write_text("<html>404</html>")
    run = made(whole)
    assert len(run.kernels) == 3
    assert "counters.csv gave nothing" in reasons(run)


def test_a_broken_report_of_ncu_falls_back_to_its_csv(whole: RunDir) -> None:
    pytest.importorskip("ncu_report")
    (whole.path / "steps/3-counters/counters.ncu-rep").write_bytes(b"NVR\0broken")
    run = made(whole)
    assert "counters.ncu-rep gave nothing" in reasons(run)
    assert len(run.counters) == 2


def test_a_run_without_anything_still_has_its_tables(bare: RunDir) -> None:
    run = made(bare)
    assert run.kernels.empty
    assert report_view(run).tier == "nothing"
    assert len(report_view(run).abstained) == 2


def test_many_launches_are_not_repeated_as_csv(
    whole: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tables, "ROWS_AS_CSV", 5)
    run = made(whole)
    assert len(run.launches) == 6
    assert not (whole.tables / "launches.csv").exists()
    assert "6 launches are in launches.parquet only" in reasons(run)


def test_tables_of_an_earlier_time_are_replaced_as_a_whole(whole: RunDir) -> None:
    whole.tables.mkdir()
    (whole.tables / "stale.csv").write_text("old")
    (whole.path / "tables.partial").mkdir()
    build_tables(whole)
    assert not (whole.tables / "stale.csv").exists()
    assert not (whole.path / "tables.partial").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_named(whole: RunDir) -> None:
    whole.path.chmod(0o500)
    try:
        with pytest.raises(StepFailed, match="cannot be written"):
            build_tables(whole)
    finally:
        whole.path.chmod(0o700)


def test_a_full_disk_keeps_the_old_tables(whole: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    build_tables(whole)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "write", full)
    with pytest.raises(StepFailed, match="No space left"):
        build_tables(whole)
    assert len(load_run(whole.path).kernels) == 3
    assert not (whole.path / "tables.partial").exists()


def test_a_real_report_of_ncu_tells_its_gpu(real_exports: Path, bare: RunDir) -> None:
    pytest.importorskip("ncu_report")
    found = next(real_exports.rglob("NVIDIA+JAX-Toolbox/*pdl*.ncu-rep"))
    shutil.copy(found, bare.path / "steps/3-counters/counters.ncu-rep")
    run = made(bare)
    assert run.gpus[["name", "chip", "sm_count"]].values.tolist() == [
        ["NVIDIA GB200", "GB100", 152]
    ]
    assert run.gpus["memory_bandwidth"].iloc[0] == pytest.approx(7.936e12)
    assert set(run.kernels["short_name"]) == {"kernelA", "kernelC", "kernelB"}
    assert set(run.counters["bound_by"]) == {"latency"}


@pytest.mark.parametrize(
    ("number", "name"),
    [(0x172, "GA102"), (0x180, "GH100"), (0x1A0, "GB100"), (0x168, "TU116"), (0x999, "")],
)
def test_chips_are_known_by_their_number(number: int, name: str) -> None:
    assert chip_name(float(number)) == name
