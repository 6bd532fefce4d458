"""Importing: files are known by their content, and what cannot be reported on is refused."""

import codecs
import json
import lzma
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from nsight_prof.orchestrator.cli import group
from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.orchestrator.imports.recognize import Kind, recognize
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.parsers.build.refresh import refresh_tables
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    NoKernels,
    ProfError,
    SchemaTooNew,
    ToolMissing,
    UsageError,
)
from nsight_prof.parsers.run.artifacts import check_artifacts
from nsight_prof.parsers.run.directory import RunDir, StepState, decompress, read_manifest

KERN_SUM = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,600,2,300.0,300.0,290,310,14.1,saxpy
40.0,400,1,400.0,400.0,400,400,0.0,"void f<int, 2>(int *)"
"""
NCU_CSV = """\
==PROF== Connected to process 1 (/opt/app)
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","gpu__time_duration.sum"
"","","","","","","","","","","","ns"
"0","1","app","127.0.0.1","saxpy","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0","300"
"""


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    return path


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"SQLite format 3\0rest", Kind.SQLITE),
        (b"NVIDIA Tegra Profiler Report\0rest", Kind.NSYS_REPORT),
        (b"NVR\0\x02\0\0\0", Kind.NCU_REPORT),
        (KERN_SUM, Kind.KERN_SUM),
        ("\ufeff" + KERN_SUM.replace("\n", "\r\n"), Kind.KERN_SUM),
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n", Kind.KERN_SUM),
        (" Time (%)  Total Time (ns)  Instances   Avg (ns)   Name\n", Kind.KERN_SUM),
        (KERN_SUM.encode("utf-16"), Kind.KERN_SUM),
        ("loss = 0.5\n" * 30_000 + "\n" + KERN_SUM, Kind.KERN_SUM),
        ("SKIPPED: t.sqlite does not contain CUDA kernel data.\n", Kind.KERN_SUM),
        (NCU_CSV, Kind.NCU_TEXT),
        (codecs.BOM_UTF16_BE + NCU_CSV.encode("utf-16-be"), Kind.NCU_TEXT),
        ('"Process ID","Kernel Name","Invocations","Metric Name","Average"\n', Kind.NCU_TEXT),
        ("  saxpy (8, 1, 1)x(256, 1, 1)\n    Section: GPU Speed Of Light\n", Kind.NCU_TEXT),
        ("==PROF== Connected to process 1\n", Kind.NCU_TEXT),
    ],
)
@pytest.mark.parametrize("name", ["misleading.pdf", "packed.xz"])
def test_a_file_is_known_by_its_content_not_by_its_name(
    tmp_path: Path, content: str | bytes, kind: Kind, name: str
) -> None:
    assert recognize(write(tmp_path / name, content)) is kind


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n", "none of the files"),
        ("Range,Style,Total Time (ns),Instances\n", "none of the files"),
        ("hello\n", "none of the files"),
        (b"\x7fELF\0\0", "none of the files"),
        (b"U3w[END]NVIDIA Nsight Systems Stream 2023.3.3.42-233333266658v0!", "not converted"),
    ],
)
def test_a_file_that_is_nothing_known_is_refused(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    with pytest.raises(ArtifactUnreadable, match=words):
        recognize(write(tmp_path / "file", content))


def test_a_damaged_xz_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "a.xz"
    broken.write_bytes(lzma.compress(b"x" * 100_000)[:40])
    with pytest.raises(ArtifactUnreadable, match="cannot be unpacked"):
        recognize(broken)
    with pytest.raises(ArtifactUnreadable, match="No such file"):
        recognize(tmp_path / "absent")


def test_a_summary_and_counters_become_a_run(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.csv.xz", KERN_SUM), write(tmp_path / "b.log", NCU_CSV)]
    run = import_files(files, tmp_path / "runs" / "mine")
    manifest = read_manifest(run)
    assert manifest.run_id == "mine"
    assert manifest.imported == ["a.csv.xz", "b.log"]
    assert [step.name for step in manifest.steps] == ["trace", "counters"]
    assert all(step.state is StepState.DONE for step in manifest.steps)
    summary = run.artifact("trace", "kern_sum.csv")
    assert summary is not None
    assert summary.read_text(encoding="utf-8") == KERN_SUM
    assert run.artifact("counters", "counters.csv") is not None
    assert str(tmp_path) not in run.manifest_path.read_text(encoding="utf-8")


def test_an_imported_file_that_is_cut_later_is_noticed(tmp_path: Path) -> None:
    run = import_files([write(tmp_path / "a.csv", KERN_SUM)], tmp_path / "mine")
    check_artifacts(run)
    summary = run.artifact("trace", "kern_sum.csv")
    assert summary is not None
    summary.write_text(KERN_SUM[:-20])
    with pytest.raises(ArtifactUnreadable, match="kern_sum.csv has "):
        check_artifacts(run)


def test_the_report_keeps_the_tables_that_the_import_made(tmp_path: Path) -> None:
    run = import_files([write(tmp_path / "a.csv", KERN_SUM)], tmp_path / "mine")
    kernels = run.tables / "kernels.parquet"
    made = kernels.stat().st_ino
    assert list(pd.read_parquet(kernels)["total_ns"]) == [600, 400]
    refresh_tables(run)
    assert kernels.stat().st_ino == made


def test_a_trace_of_which_no_tables_can_be_made_is_refused_or_left_out_of_a_folder(
    root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "captured"
    folder.mkdir()
    trace = folder / "trace.sqlite"
    decompress(root / "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz", trace)
    with closing(sqlite3.connect(trace)) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'wide' WHERE rowid = 2")
        db.commit()
    write(folder / "counters.csv", NCU_CSV)
    with pytest.raises(ArtifactUnreadable, match="rows without an integer in"):
        import_files([trace], tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    run = import_files([folder], tmp_path / "mine")
    manifest = read_manifest(run)
    assert [step.name for step in manifest.steps] == ["counters"]
    assert manifest.imported == ["counters.csv"]
    assert any("trace.sqlite" in note for note in manifest.assumptions)
    assert list(pd.read_parquet(run.tables / "kernels.parquet")["name"]) == ["saxpy"]
    check_artifacts(run)


def test_one_trace_and_one_set_of_counters_are_all_that_a_run_holds(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.csv", KERN_SUM), write(tmp_path / "b.csv", KERN_SUM)]
    with pytest.raises(
        UsageError, match=r"2 traces were given: a\.csv \(a kernel summary"
    ) as caught:
        import_files(files, tmp_path / "out")
    assert "runs of their own" in caught.value.hint


def test_a_run_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").touch()
    with pytest.raises(UsageError, match="is there already"):
        import_files([write(tmp_path / "a.csv", KERN_SUM)], out)
    assert [p.name for p in out.iterdir()] == ["precious"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run = import_files([write(tmp_path / "a.csv", KERN_SUM)], tmp_path / "out")
    assert run.manifest_path.is_file()


def test_a_refused_import_leaves_nothing_and_names_the_file_that_was_given(tmp_path: Path) -> None:
    database = tmp_path / "mine.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(ProfError, match=r"mine\.sqlite") as caught:
        import_files([database], tmp_path / "out")
    assert "/steps/" not in caught.value.message
    assert [p.name for p in tmp_path.iterdir()] == ["mine.sqlite"]


def test_stages_go_into_the_manifest_and_have_to_be_regexes(tmp_path: Path) -> None:
    trace = write(tmp_path / "a.csv", KERN_SUM)
    run = import_files([trace], tmp_path / "out", ["^prefill$"])
    assert read_manifest(run).recipe["stages"] == ["^prefill$"]
    with pytest.raises(UsageError, match="not a regular expression"):
        import_files([trace], tmp_path / "other", ["(("])


def test_counters_without_a_kernel_are_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "ncu.log", "==PROF== Connected\n==WARNING== No kernels were profiled.\n")
    with pytest.raises(NoKernels):
        import_files([log], tmp_path / "out")


def test_a_report_needs_nsys_and_its_export_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_nsys(_environment: object) -> None:
        raise ToolMissing("nsys is not here", "install it")

    monkeypatch.setattr("nsight_prof.orchestrator.system.export.find_nsys", no_nsys)
    report = write(tmp_path / "a.nsys-rep", b"NVIDIA Tegra Profiler Report\0")
    with pytest.raises(ToolMissing, match=r"a\.nsys-rep must be exported") as caught:
        import_files([report], tmp_path / "out")
    assert f"nsys export --type=sqlite {report};" in caught.value.hint
    exported = write(tmp_path / "a.sqlite", b"")
    with pytest.raises(ToolMissing) as caught:
        import_files([report], tmp_path / "out")
    assert caught.value.hint == f"{exported} lies beside it: use that"


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (
            b" 2025@6@1@190-256136895201v0.\n\0",
            SchemaTooNew,
            "was made by nsys 2025.6.1, and nsys ",
        ),
        (b" 2025@3@1@190-256136895201v0.\n\0", ArtifactUnreadable, "Cannot read from stream"),
        (b" 1.\n\0", ArtifactUnreadable, "Cannot read from stream"),
    ],
)
def test_a_report_that_cannot_be_exported_is_named_as_it_was_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    kind: type[ProfError],
    words: str,
) -> None:
    fakes = Path(__file__).resolve().parent.parent / "fakes"
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NSYS", "export-fails")
    report = write(tmp_path / "mine.nsys-rep", b"NVIDIA Tegra Profiler Report" + content)
    with pytest.raises(kind) as caught:
        import_files([report], tmp_path / "out")
    assert type(caught.value) is kind
    assert str(report) in caught.value.message
    assert words in caught.value.message
    assert "trace.nsys-rep" not in caught.value.message + caught.value.hint


def test_counters_printed_from_a_report_are_named_as_it_was_given(
    real_exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = real_exports / "ncu/AveryClapp+ESMM-Research/profile.ncu-rep"

    def print_nothing(_tool: Tool, _report: Path, target: Path, _environment: object) -> None:
        target.write_text("==PROF== Connected to process 1\n", encoding="utf-8")

    tool = Tool("ncu", "", "", frozenset())
    monkeypatch.setattr("nsight_prof.parsers.ncu.can_read_rep", lambda: False)
    monkeypatch.setattr("nsight_prof.orchestrator.imports.importing.find_ncu", lambda _: tool)
    monkeypatch.setattr("nsight_prof.orchestrator.imports.importing.export_csv", print_nothing)
    with pytest.raises(ArtifactUnreadable) as caught:
        import_files([report], tmp_path / "out")
    assert str(report) in caught.value.message
    assert "/steps/" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("recorded", ["2022-10-01T19:28:45Z", ""])
def test_measured_is_when_the_trace_was_recorded(root: Path, tmp_path: Path, recorded: str) -> None:
    trace, out = tmp_path / "mine.sqlite", tmp_path / "out"
    decompress(root / "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz", trace)
    with closing(sqlite3.connect(trace)) as db:
        db.execute("DROP TABLE IF EXISTS TARGET_INFO_SESSION_START_TIME")
        db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
        if recorded:
            db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1664652525888489604)")
        db.commit()
    run = import_files([trace], out)
    assert read_manifest(run).created == recorded
    assert CliRunner().invoke(group, ["report", str(out)]).exit_code == 0
    report = (out / "report" / "report.md").read_text(encoding="utf-8")
    words = f"measured {recorded}" if recorded else "measured at a time that its files do not tell"
    assert f"Run out, {words}." in report


def test_an_ncu_report_is_read_by_ncu_where_ncu_report_is_missing(
    real_exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = real_exports / "ncu/AveryClapp+ESMM-Research/profile.ncu-rep"
    monkeypatch.setattr("nsight_prof.parsers.ncu.can_read_rep", lambda: False)

    def no_ncu(_environment: object) -> Tool:
        raise ToolMissing("ncu is not here", "install it")

    monkeypatch.setattr("nsight_prof.orchestrator.imports.importing.find_ncu", no_ncu)
    with pytest.raises(ToolMissing, match="neither is here"):
        import_files([report], tmp_path / "out")

    def print_csv(_tool: Tool, _report: Path, target: Path, _environment: object) -> None:
        target.write_text(NCU_CSV, encoding="utf-8")

    monkeypatch.setattr(
        "nsight_prof.orchestrator.imports.importing.find_ncu",
        lambda _: Tool("ncu", "", "", frozenset()),
    )
    monkeypatch.setattr("nsight_prof.orchestrator.imports.importing.export_csv", print_csv)
    run = import_files([report], tmp_path / "out")
    assert run.artifact("counters", "counters.csv") is not None
    assert run.artifact("counters", "counters.ncu-rep") is not None


def test_a_real_trace_and_real_counters_become_a_run(real_exports: Path, tmp_path: Path) -> None:
    trace = (
        real_exports / "nsys/openhackathons-org+nways_accelerated_programming/jacobi_report.sqlite"
    )
    counters = real_exports / "ncu/brycelelbach+ncu2markdown/copy_blocked.csv"
    before = trace.read_bytes()
    out = tmp_path / "mine"
    result = CliRunner().invoke(group, ["import", str(trace), str(counters), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"next: prof report {out}" in result.output
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["tools"]["nsys"].startswith("2023.4.1")
    assert manifest["gpus"][0]["name"] == "NVIDIA GH200 120GB"
    assert manifest["imported"] == ["jacobi_report.sqlite", "copy_blocked.csv"]
    assert trace.read_bytes() == before


def test_the_recorded_environment_is_not_imported(real_exports: Path, tmp_path: Path) -> None:
    trace = (
        real_exports / "nsys/openhackathons-org+nways_accelerated_programming/jacobi_report.sqlite"
    )
    run = import_files([trace], tmp_path / "mine")
    copy = RunDir(run.path).artifact("trace", "trace.sqlite")
    assert copy is not None
    with sqlite3.connect(copy) as connection:
        query = "SELECT count(*) FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%Environment%'"
        assert connection.execute(query).fetchone() == (0,)
    connection.close()
