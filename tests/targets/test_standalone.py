"""Targets run as files in an interpreter that has neither prof nor what they need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS = {
    "comm_roofs.py": "torch",
    "data_parallel.py": "torch",
    "gemm.py": "torch",
    "gemm_staircase.py": "torch",
    "llm_block.py": "torch",
    "llm_kernels/run.py": "torch",
    "memory_patterns.py": "torch",
    "network_kernels/run.py": "torch",
    "roofline/compute.py": "torch",
    "roofline/host.py": "torch",
    "roofline/latency.py": "torch",
    "roofline/memory.py": "torch",
    "roofline/run.py": "torch",
    "roofline/tensor.py": "torch",
    "planted_lines.py": "torch",
    "train_mlp.py": "torch",
    "defects/run.py": "yaml",
    "inference/run.py": "torch",
    "static_compute.py": "torch",
    "serving/baseline.py": "vllm",
    "serving/layer_slice.py": "vllm",
    "serving/offline.py": "vllm",
    "serving/predict_ops.py": "torch",
    "serving/server.py": "vllm",
}
NOT_FOR_USERS = {
    "serving/sglang_launch.py",
    "serving/worker.py",
    "tiny_kernel.py",
    "under_torch_profiler.py",
    "value_profiler/run.py",
}
"""What server.py and baseline.py start, what needs no module, what takes a script (see below)."""


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    python = os.path.realpath(sys.executable)  # without the packages of a virtual environment
    return subprocess.run(
        [python, "-S", "-E", str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )


def test_every_target_is_listed(root: Path) -> None:
    folder = root / "targets"
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if '__name__ == "__main__"' in path.read_text("utf-8")
    }
    assert found == {*NEEDS, *NOT_FOR_USERS}


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_module_is_an_error_with_a_hint_and_exit_code_3(root: Path, name: str) -> None:
    done = run(root / "targets" / name)
    assert done.returncode == 3, done.stderr
    *notes, error, empty, hint = done.stderr.splitlines()
    assert all(line.startswith("note: ") for line in notes)
    assert error.startswith("error: the interpreter ")
    assert error.endswith(f" has no module {NEEDS[name]}")
    assert empty == ""
    assert hint.startswith("hint: name one that has it")


def test_the_torch_profiler_needs_torch(root: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    arguments = ("--out", str(tmp_path / "out"), "--", str(tmp_path / "script.py"))
    done = run(root / "targets/under_torch_profiler.py", *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "\n\nhint: name an interpreter that has it" in done.stderr
    assert done.stdout == ""
