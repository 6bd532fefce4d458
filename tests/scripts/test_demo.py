"""scripts/demo ends with how to call prof next, and with the exit code of the run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# In place of prof: `doctor` finds what the test says, `run` prints how it was called and fails.
PROF = """#!/bin/sh
if [ "$1" = doctor ]; then exit "$DOCTOR"; fi
echo "$*"
exit 7
"""


@pytest.mark.parametrize(
    ("doctor", "words"),
    [(0, "--set target.python=python3"), (3, "--replay captures/h200-top-kernels")],
)
def test_the_demo_ends_with_how_to_call_prof(
    doctor: int, words: str, root: Path, tmp_path: Path
) -> None:
    for name in ("scripts/demo", "scripts/venv.sh", "recipes/top-kernels.yaml", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "captures/h200-top-kernels").mkdir(parents=True)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("prof", "python"):
        (programs / name).write_text(PROF)
        (programs / name).chmod(0o755)
    stamp = tmp_path / ".venv/prof-.stamp"
    stamp.touch()
    later = (tmp_path / "pyproject.toml").stat().st_mtime + 60
    os.utime(stamp, (later, later))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCTOR": str(doctor)}
    done = subprocess.run(
        [tmp_path / "scripts/demo", "--out", "x"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    called, *after = done.stdout.splitlines()
    assert called == f"run recipes/top-kernels.yaml {words} --out x"
    assert after[-1].startswith("  .venv/bin/prof run own-command --set ")
