"""`prof top-kernels` on traces, summaries and files that are neither."""

import io
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from nsight_prof.orchestrator.commands import top_kernels
from nsight_prof.orchestrator.commands.top_kernels import Trace, command
from nsight_prof.orchestrator.imports import recognize
from nsight_prof.orchestrator.plan.select import SelectOptions, choose_kernels
from nsight_prof.orchestrator.system import export
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels, UsageError
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.selection import read_selection

NSYS_AI = "nsys/GindaChen+nsys-ai/h100_2gpu_1s.sqlite"
KERN_SUM = "nsys/CodeGandee+llm-perf-opt/summary_cuda_gpu_kern_sum.csv"


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)


def made_up() -> pd.DataFrame:
    frame = pd.DataFrame({"short_name": ["NCCL all-reduce", "cuBLAS GEMM [x]"]})
    frame["category"] = ["collective", "gemm"]
    frame["total_ns"], frame["share"], frame["calls"] = [3_000_000, 1_000_000], [0.75, 0.25], 1200
    frame["kernel_id"], frame["grid"], frame["block"] = ["k1", "k2"], "8x1x1", "32x1x1"
    frame["dtype"] = pd.array([pd.NA, "bf16"], dtype="string")
    return frame.assign(name=frame["short_name"], mangled_name="_Zx", library="cuBLAS")


def test_the_table_has_rank_names_calls_time_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_kernels, "_read", lambda _: Trace(made_up(), warnings=("look out",)))
    output = run("trace.sqlite").output
    row = next(line for line in output.splitlines() if "cuBLAS GEMM" in line)
    assert row.split()[0] == "1"
    assert "cuBLAS GEMM [x]" in row
    assert row.split()[-6:] == ["bf16", "8x1x1", "1,200", "1.000", "25.0%", "25.0%"]
    assert "1 of 2 kernels, 25.0% of GPU time" in output
    assert "left out: NCCL all-reduce, 1 kernel, 75.0%: collective" in output
    assert "note: look out" in output


def test_a_narrow_terminal_shows_whole_names() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    kernels = made_up()
    selection = choose_kernels(kernels, None, None, SelectOptions())
    console.print(top_kernels._table(selection, kernels, wide=False))
    text = console.export_text()
    assert "cuBLAS GEMM [x]" in text
    assert "bf16" not in text


def test_an_export_without_kernels_is_told_by_the_name_of_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = tmp_path / "mine.nsys-rep"
    monkeypatch.setattr(recognize, "recognize", lambda path: recognize.Kind.NSYS_REPORT)
    monkeypatch.setattr(export, "export_sqlite", lambda report, sqlite: sqlite)

    def no_kernels(sqlite: Path) -> Trace:
        raise NoKernels(f"{sqlite} holds no kernels", "trace CUDA")

    monkeypatch.setattr(top_kernels, "_read_sqlite", no_kernels)
    with pytest.raises(NoKernels, match=f"^{report} holds no kernels"):
        run(report)


def test_collectives_are_kept_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_kernels, "_read", lambda _: Trace(made_up()))
    assert "2 of 2 kernels" in run("trace.sqlite", "--collectives").output


def test_a_real_trace_becomes_a_selection_file(real_exports: Path, tmp_path: Path) -> None:
    target = tmp_path / "top.yaml"
    result = run(real_exports / NSYS_AI, "-k", 3, "-o", target)
    selection = read_selection(target)
    assert [kernel.short_name.split(",")[0] for kernel in selection.kernels] == ["cuBLAS GEMM"] * 3
    with open_trace(real_exports / NSYS_AI) as trace:
        assert selection.kernels[0].kernel_id == trace.kernels()["kernel_id"][0]
    assert "3 of " in result.output
    assert yaml.safe_load(target.read_text())["format_version"] == 2


def test_include_exclude_and_coverage_reach_the_choice(real_exports: Path) -> None:
    output = run(
        real_exports / NSYS_AI, "--include", "PyTorch", "--exclude", "softmax", "--coverage", 0.5
    ).output
    assert "cuBLAS GEMM" not in output.split("left out")[0]
    assert "excluded by regex softmax" in output
    assert "beyond 50% of the GPU time" in output


def test_a_kernel_summary_is_ranked_and_says_what_it_lacks(real_exports: Path) -> None:
    output = run(real_exports / KERN_SUM, "-k", 2).output
    assert "cuBLAS GEMV, bf16" in output
    assert "no mangled names" in output


def test_an_nsys_report_is_exported_first(
    real_exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(report: Path, target: Path) -> Path:
        assert report == tmp_path / "trace.nsys-rep"
        with sqlite3.connect(real_exports / NSYS_AI) as source, sqlite3.connect(target) as copy:
            source.backup(copy)
        source.close()
        copy.close()
        return target

    monkeypatch.setattr("nsight_prof.orchestrator.system.export.export_sqlite", export)
    (tmp_path / "trace.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + bytes(64))
    assert "1 of " in run(tmp_path / "trace.nsys-rep", "-k", 1).output


def test_counters_are_no_trace(tmp_path: Path) -> None:
    (tmp_path / "counters.ncu-rep").write_bytes(b"NVR\0" + bytes(64))
    with pytest.raises(UsageError, match="is an ncu report"):
        run(tmp_path / "counters.ncu-rep")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match="missing.sqlite"):
        run(tmp_path / "missing.sqlite")


@pytest.mark.parametrize("words", [("-k", "0"), ("--coverage", "0"), ("--coverage", "2")])
def test_limits_that_make_no_sense_are_refused(words: tuple[str, str]) -> None:
    assert run("trace.sqlite", *words).exit_code == 2


def test_the_trace_of_a_run_is_found(root: Path) -> None:
    done = run(root / "captures/h200-vllm-pages", "-k", 1, "--quiet")
    assert done.exit_code == 0, done.output
    assert "cuBLAS GEMM, bf16, tile 192x208x64" in done.output
    with pytest.raises(UsageError, match="h200-roofline has no trace"):
        run(root / "captures/h200-roofline")
