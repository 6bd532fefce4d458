import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


def test_two_processes_train_and_exchange_messages_on_a_cpu(root: Path) -> None:
    script = root / "targets" / "data_parallel.py"
    sizes = ["--device", "cpu", "--preset", "tiny", "--steps", "1", "--warmup", "0"]
    done = subprocess.run(
        [sys.executable, str(script), *sizes], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # of the first rank alone
    told = json.loads(line)
    hidden, layers = told["config"]["hidden"], told["config"]["layers"]
    assert told["parameters"] == layers * (12 * hidden**2 + 4 * hidden)
    assert told["gradient_bytes"] == 4 * told["parameters"]
    operations = {"all-reduce", "all-gather", "reduce-scatter", "broadcast"}
    assert {one["operation"] for one in told["collectives"]} == operations
