"""scripts/setup-gpu-host tells what it would do, and refuses what it cannot."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def setup(root: Path, os_release: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = root / "scripts" / "setup-gpu-host"
    environment = {"PATH": os.environ["PATH"], "HOME": "/home/me", "OS_RELEASE": str(os_release)}
    return subprocess.run(
        [script, *options], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def ubuntu(tmp_path: Path) -> Path:
    path = tmp_path / "os-release"
    path.write_text('NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n')
    return path


def test_a_dry_run_names_each_command_and_changes_nothing(
    root: Path, ubuntu: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    done = setup(root, ubuntu, "--dry-run", "--venv", str(venv), "--engine", "vllm")
    assert done.returncode == 0, done.stderr
    commands = re.findall(r"^\+ (.*)$", done.stdout, re.MULTILINE)
    assert any("repos/ubuntu2404/" in line for line in commands)
    assert any("cuda-nsight-systems-13-0 cuda-nsight-compute-13-0" in line for line in commands)
    assert any("/etc/modprobe.d/nvidia-profiling.conf" in line for line in commands)
    assert any(".[ncu,targets,serving]" in line for line in commands)
    assert commands[-1] == f"{venv}/bin/prof doctor"
    assert not venv.exists()
    bare = setup(root, ubuntu, "--dry-run", "--no-nsight")
    assert "developer.download.nvidia.com" not in bare.stdout
    assert "libdw1" in bare.stdout
    without = setup(root, ubuntu, "--dry-run", "--no-permission", "--cuda", "12-9")
    assert "modprobe" not in without.stdout
    assert "cuda-nsight-systems-12-9" in without.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cuda", "latest"], "--cuda latest is no version"),
        (["--engine", "tgi"], "--engine tgi is not known"),
        (["--venv"], "--venv needs a value"),
        (["--what"], "unknown option --what"),
    ],
)
def test_what_is_not_known_is_refused(
    root: Path, ubuntu: Path, options: list[str], told: str
) -> None:
    done = setup(root, ubuntu, "--dry-run", *options)
    assert done.returncode == 2
    assert told in done.stderr
    assert "hint: " in done.stderr


def test_another_distribution_is_refused(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text("ID=fedora\nVERSION_ID=42\n")
    done = setup(root, path, "--dry-run")
    assert done.returncode == 3
    assert "this is fedora" in done.stderr


def test_shellcheck_finds_nothing(root: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run(["shellcheck", root / "scripts" / "setup-gpu-host"], check=True)
