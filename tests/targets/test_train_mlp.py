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
