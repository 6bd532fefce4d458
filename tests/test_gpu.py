"""The whole pipeline with real nsys and ncu on a real GPU; skipped, with the reason, elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.recorded import whole_report

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def prof(root: Path) -> Any:
    """Runs prof of this checkout; skips where this machine cannot profile."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nsight_prof", *arguments]
        variables = os.environ | (env or {})
        return subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, env=variables
        )

    checks = run("doctor", "--json", "--target-python", sys.executable)
    if checks.returncode:
        missing = [c for c in json.loads(checks.stdout) if c["state"] == "missing"]
        pytest.skip("; ".join(f"{c['name']}: {c['detail']}" for c in missing))
    return run


@pytest.fixture(scope="module")
def gemm(prof: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the product of known size."""
    folder = tmp_path_factory.mktemp("gpu") / "run"
    done = prof(
        "run", "known-gemm", "--out", str(folder), "--set", f"target.python={sys.executable}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_flop_counter_agrees_with_the_known_work_but_for_padding(gemm: Path) -> None:
    counters = pd.read_parquet(gemm / "tables" / "counters.parquet")
    product = counters.sort_values("flops_tensor").iloc[-1]
    ratio = product["flops_tensor"] / (2 * 8192**3)
    assert 1.0 <= ratio < 1.1
    assert "2·M·N·K" in whole_report(gemm / "report")


def test_both_tools_agree_on_how_long_a_long_kernel_takes(gemm: Path) -> None:
    counters = pd.read_parquet(gemm / "tables" / "counters.parquet")
    product = counters.sort_values("flops_tensor").iloc[-1]
    assert abs(product["duration_difference"]) < 0.1


def test_the_pass_budget_holds(gemm: Path) -> None:
    counters = pd.read_parquet(gemm / "tables" / "counters.parquet")
    assert counters["passes"].max() <= 12


def test_no_throughput_is_above_its_roof(gemm: Path) -> None:
    counters = pd.read_parquet(gemm / "tables" / "counters.parquet")
    for column in ("dram_pct", "l2_pct", "l1_pct", "tensor_pct"):
        assert counters[column].dropna().max() <= 105


@pytest.fixture(scope="module")
def pipes(prof: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the probes of the arithmetic pipes, in one process."""
    folder = tmp_path_factory.mktemp("gpu") / "pipes"
    options = ["bench.processes=1", "target.args.families=[compute]", "counters.sets=[roofline]"]
    words = [word for option in options for word in ("--set", option)]
    done = prof(
        "run",
        "roofline",
        "--out",
        str(folder),
        "--set",
        f"target.python={sys.executable}",
        *words,
        env={"XDG_CACHE_HOME": str(folder.parent / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pipes_run_full_and_counters_confirm_their_work(pipes: Path) -> None:
    roofs = pd.read_parquet(pipes / "tables" / "measured_roofs.parquet")
    ceilings = roofs[roofs["is_ceiling"].fillna(False)].set_index("level_or_pipe")
    assert set(ceilings.index) >= {"fp64", "fp32", "fp16"}
    assert ceilings["accepted"].all()
    counters = pd.read_parquet(pipes / "tables" / "roofs.parquet")
    peaks = counters[counters["source"] == "counters"].set_index("level_or_pipe")["value"]
    for pipe in ("fp32", "fp16"):
        assert 0.95 < ceilings.loc[pipe, "value"] / peaks[pipe] < 1.03


def test_measured_roofs_are_kept_for_later_reports(pipes: Path) -> None:
    kept = list((pipes.parent / "cache" / "prof" / "roofs").glob("*.json"))
    assert len(kept) == 1
    assert json.loads(kept[0].read_text(encoding="utf-8"))["gpu"]["uuid"]
