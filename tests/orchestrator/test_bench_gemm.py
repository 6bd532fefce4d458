"""The bundled matrix product measured through `prof run` on the CPU, from recipe to report."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main

pytest.importorskip("torch", reason="torch is not installed")


def test_a_product_is_measured_in_two_processes_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tiny.yaml").write_text(
        "target:\n  file: gemm.py\n"
        "  args: {device: cpu, m: [16, 32], n: 32, k: 64, dtype: fp32, min_samples: 3,"
        " case_time: 0.02}\n"
        "bench: {processes: 2}\ncounters: {enabled: false}\n"
    )
    assert main(["run", "tiny.yaml", "--out", "run"]) == 0
    bench = pd.read_parquet("run/tables/bench.parquet").sort_values("flops")
    assert list(bench["flops"]) == [2 * 16 * 32 * 64, 2 * 32 * 32 * 64]
    assert set(bench["status"]) == {"ok"}
    assert set(bench["processes"]) == {2}
    assert (bench["median_s"] > 0).all()
    runs = pd.read_parquet("run/tables/bench_runs.parquet")
    assert sorted(runs["process"]) == [1, 1, 2, 2]
    assert not Path("run/roofs.json").exists()  # a CPU has none
    assert main(["run", "tiny.yaml", "--replay", "run", "--out", "again"]) == 0
    again = pd.read_parquet("again/tables/bench.parquet").sort_values("flops")
    assert list(again["median_s"]) == list(bench["median_s"])
