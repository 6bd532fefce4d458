import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


def test_states_its_shape_and_its_known_operation_count(root: Path) -> None:
    sizes = ["--device", "cpu", "--m", "8", "--n", "16", "--k", "32", "--repeats", "2"]
    done = subprocess.run(
        [sys.executable, str(root / "targets" / "gemm.py"), *sizes],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["flops"] == 2 * 8 * 16 * 32
    assert result["gemms"] == [
        {"name": "gemm", "stage": "gemm", "m": 8, "n": 16, "k": 32, "calls": 2}
    ]
    assert result["median_ms"] is None  # nothing is claimed about a CPU
