"""Disks that are full, folders that are gone, files that the system refuses."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from nsight_prof.orchestrator import cli
from nsight_prof.orchestrator.run.work import Call, failure
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.process import Finished


def test_a_program_whose_words_do_not_fit_has_a_full_disk(lab: Any, small: Path) -> None:
    """Python ends with exit code 120 where it cannot flush its output."""
    recipe = lab.recipe("print('x' * 1_000_000)", counters__enabled=False)
    with pytest.raises(Exception, match="the disk is full") as caught:
        lab.run(recipe, out=small / "run")
    assert "exit code" not in str(caught.value)


def test_a_full_disk_of_the_logs_is_found_without_words(tmp_path: Path, small: Path) -> None:
    what = Call("trace", Tool("nsys", sys.executable, "1", frozenset()), [], small, 5.0)
    ended = Finished(120, 1.0, False, "", "")
    assert "exit code 120 under nsys" in failure(ended, what, ()).message
    (small / "fill").write_bytes(b"x" * 200_000)
    with pytest.raises(OSError, match="No space"):
        (small / "more").write_bytes(b"x" * 200_000)
    assert failure(ended, what, ()).message == f"the disk is full: {small}"


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Returns a function that gives exit code and message of a command that raises an error."""

    def with_error(error: BaseException) -> tuple[int, str]:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
        return cli.main(["run"]), capsys.readouterr().err

    return with_error


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EIO, "dmesg"),
        (errno.ENOLCK, "locks"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EPERM, "may read and write"),
        (errno.EROFS, "cannot be written"),
        (errno.ENOMEM, "memory"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ESTALE, "may read and write"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_what_the_system_refuses_is_no_defect_of_prof(
    fails: Any, number: int, hint: str, named: bool
) -> None:
    error = OSError(number, os.strerror(number), *(["runs/x"] if named else []))
    code, said = fails(error)
    assert code == 1
    assert os.strerror(number) in said
    assert ("runs/x: " in said) == named
    assert hint in said
    assert "defect" not in said


def test_a_name_that_is_too_long_was_asked_for_wrongly(fails: Any) -> None:
    code, said = fails(OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5_000))
    assert code == 2
    assert "File name too long" in said
    assert len(said) < 1_000


@pytest.mark.parametrize("number", [errno.EEXIST, errno.ENOTDIR])
def test_a_file_in_place_of_a_folder_was_asked_for_wrongly(fails: Any, number: int) -> None:
    code, said = fails(OSError(number, os.strerror(number), "runs"))
    assert code == 2
    assert "a folder is needed there" in said


def test_no_memory_is_no_defect_of_prof(fails: Any) -> None:
    code, said = fails(MemoryError("Unable to allocate 9. GiB for an array"))
    assert code == 1
    assert "there is not enough memory: Unable to allocate 9. GiB" in said
    assert "defect" not in said


def test_no_temporary_folder_is_said(
    fails: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = "No usable temporary directory found in ['/tmp', '/var/tmp']"
    code, said = fails(FileNotFoundError(errno.ENOENT, words))
    assert (code, words in said, "TMPDIR" in said) == (1, True, True)


def test_a_current_folder_that_is_gone_is_said(root: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    line = (
        f"mkdir {gone} && cd {gone} && rmdir {gone} && "
        f"PYTHONPATH={root} {sys.executable} -P -m nsight_prof doctor"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the current folder is gone" in done.stderr
    assert "defect" not in done.stderr
