"""`prof import` of files, into folders and at moments that are not as usual."""

import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports import importing
from nsight_prof.parsers.run import directory as run_dir

CAPTURE = "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz"


@pytest.fixture
def packed(root: Path) -> Path:
    return root / CAPTURE


def test_an_empty_folder_stays_the_same_folder(packed: Path, tmp_path: Path) -> None:
    """It may be a mount point, which nothing can take the place of."""
    out = tmp_path / "run"
    (out / "lost+found").mkdir(parents=True)
    number = out.stat().st_ino
    assert main(["import", str(packed), "--out", str(out)]) == 0
    assert out.stat().st_ino == number
    made = {path.name for path in out.iterdir()}
    assert made == {"lost+found", "manifest.json", "steps", "tables"}
    assert main(["import", str(packed), "--out", str(out)]) == 2


def test_a_link_to_an_empty_folder_is_followed(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "run").symlink_to("far")
    assert main(["import", str(packed), "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run").is_symlink()
    assert (tmp_path / "far/manifest.json").is_file()


def test_a_link_to_nothing_is_refused(
    packed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").symlink_to("nowhere")
    assert main(["import", str(packed), "--out", str(tmp_path / "run")]) == 2
    assert "is a link to nothing" in capfd.readouterr().err


def test_the_name_of_an_unset_variable_is_not_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "", "--out", str(tmp_path / "run")]) == 2
    assert "unset variable" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["import", "top-kernels"])
def test_a_pipe_is_refused_and_not_waited_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    more = ["--out", str(tmp_path / "run")] if command == "import" else []
    assert main([command, str(tmp_path / "pipe"), *more]) == 4
    assert "pipe is no regular file" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_bomb_is_unpacked_to_a_limit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_dir, "UNPACKED", 1 << 20)
    bomb = tmp_path / "trace.sqlite.xz"
    bomb.write_bytes(lzma.compress(b"SQLite format 3\0" + b"\0" * (32 << 20), preset=0))
    assert bomb.stat().st_size * run_dir.GROWTH < 32 << 20
    assert main(["import", str(bomb), "--out", str(tmp_path / "run")]) == 4
    error = capfd.readouterr().err
    assert "MiB, which no recording does" in error
    assert f"xz -dk {bomb}" in error
    assert os.listdir(tmp_path) == [bomb.name]


def test_too_little_memory_is_no_defect(
    packed: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(importing, "_fill", full)
    assert main(["import", str(packed), "--out", str(tmp_path / "run")]) == 1
    error = capfd.readouterr().err
    assert "not enough memory" in error
    assert "defect of prof" not in error
    assert os.listdir(tmp_path) == []


SLOW = """
import sys, time
from nsight_prof.orchestrator.imports import importing
from nsight_prof.orchestrator.cli import main

def slow(*_):
    print("begun", flush=True)
    time.sleep(600)

importing._fill = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(
    packed: Path, tmp_path: Path, root: Path, number: signal.Signals
) -> None:
    words = [sys.executable, "-c", SLOW, "import", str(packed), "--out", str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) as prof:
        assert prof.stdout is not None
        assert prof.stdout.readline() == b"begun\n"
        assert os.listdir(tmp_path)
        prof.send_signal(number)
        _, error = prof.communicate()
    assert prof.returncode == 130
    assert b"interrupted" in error
    assert os.listdir(tmp_path) == []
