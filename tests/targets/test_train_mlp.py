import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


def test_trains_on_a_cpu_at_tiny_size(root: Path) -> None:
    script = root / "targets" / "train_mlp.py"
    sizes = ["--device", "cpu", "--width", "16", "--batch", "4", "--steps", "2", "--warmup", "1"]
    done = subprocess.run(
        [sys.executable, str(script), *sizes], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("loss ")
    assert done.stdout.endswith(" after 3 steps\n")


def test_work_of_the_phases_of_training_is_that_of_their_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nsight_prof.targets import train_mlp

    monkeypatch.setenv("PROF_RESULTS", str(tmp_path / "result.jsonl"))
    train_mlp.train(width=16, batch=8, steps=3, device="cpu", count_work=True)
    found = json.loads((tmp_path / "static_compute.json").read_text())
    stages = {stage["stage"]: stage for stage in found["stages"]}
    product = 2 * 8 * 16 * 16  # two layers forward; the first needs no gradient of its input
    assert stages["forward"]["flops"] == 3 * 2 * product
    assert stages["backward"]["flops"] == 3 * 3 * product
    weights = 2 * (16 * 16 + 16) * 2  # bf16
    assert stages["forward"]["weight_bytes"] == 3 * weights
    assert stages["backward"]["weight_bytes"] == 3 * weights
    # Parameter, gradient and two moments of each, and a count of steps of 4 bytes for each tensor.
    assert stages["optimizer"]["weight_bytes"] == 3 * (4 * weights + 4 * 4)
