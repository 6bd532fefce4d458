"""The recorded runs of captures/ through the whole pipeline, and the known answers they hold."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def replay(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Replays a recorded run with the recipe of the same name; gives the new run's folder."""

    def run(recipe: str) -> Path:
        folder = tmp_path_factory.mktemp("replay") / "run"
        recorded = root / "captures" / f"h200-{recipe}"
        command = ["run", f"recipes/{recipe}.yaml", "--replay", str(recorded), "--out", str(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *command],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return folder

    return run


def test_the_report_says_that_the_gemm_does_the_padding_of_its_tile(replay: Any) -> None:
    folder = replay("known-gemm")
    # 26 tiles of 320 columns cover 8192: 8320 / 8192 = 1.0156 times 2 x 8192^3 operations.
    (row,) = [
        line
        for line in (folder / "report" / "report.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| gemm | gemm |")
    ]
    assert "8192 x 8192 x 8192" in row
    assert "320x128x64" in row
    assert "1.0156" in row
    counters = pd.read_parquet(folder / "tables" / "counters.parquet")
    assert counters["flops_tensor"].iloc[0] / (2 * 8192**3) == pytest.approx(8320 / 8192, rel=1e-6)


def test_a_replay_leaves_all_that_others_rely_on(replay: Any) -> None:
    folder = replay("top-kernels")
    tables = {path.stem for path in (folder / "tables").glob("*.parquet")}
    assert {"launches", "kernels", "metrics", "counters", "roofs"} <= tables
    assert tables - {"launches"} <= {path.stem for path in (folder / "tables").glob("*.csv")}
    metrics = json.loads((folder / "report" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["replayed_from"] == "h200-top-kernels"
    kernels = pd.read_parquet(folder / "tables" / "kernels.parquet")
    assert kernels["share"].sum() == pytest.approx(1)
    stages = pd.read_parquet(folder / "tables" / "stages.parquet").set_index("stage")
    assert {"prefill", "decode"} <= set(stages.index)
    summary = (folder / "report" / "stakeholder_summary.md").read_text(encoding="utf-8")
    assert "n/a" not in summary.split("<details>")[0]


def test_recorded_runs_carry_nothing_of_the_host(root: Path) -> None:
    texts = [
        path for path in (root / "captures").rglob("*") if path.suffix in (".json", ".log", ".yaml")
    ]
    assert texts
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for trace in ("/root", "/home/", "/Users/", "HOSTNAME", "TOKEN"):
            assert trace not in text, path
