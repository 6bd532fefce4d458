"""What prof writes replaces no device and no link, follows the umask, and commands no terminal."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import report_error
from nsight_prof.orchestrator.system.environment import read_git
from nsight_prof.orchestrator.terminal.console import make_console
from nsight_prof.parsers.csv_cells import write_csv
from nsight_prof.parsers.errors import StepFailed
from nsight_prof.parsers.printable import printable
from nsight_prof.parsers.whole_file import whole_file, write_atomic, written_whole
from nsight_prof.reports.page import formats
from nsight_prof.targets.serving import environment as serving

EVIL = "kernel\x1b]0;owned\x07\x9b31m\u202ereversed"


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o077)
    yield
    os.umask(old)


def write(path: Path, text: str = "new") -> None:
    with written_whole(path) as partial:
        partial.write_text(text)


def test_a_device_stays_a_device() -> None:
    write(Path("/dev/null"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_pipe_gets_the_whole_text(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe, "x" * 100_000)
    reader.join()
    assert read == ["x" * 100_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_standard_output_that_is_appended_to_a_file_keeps_what_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n")
    script = (
        "from pathlib import Path; from nsight_prof.parsers.whole_file import written_whole\n"
        "with written_whole(Path('/dev/stdout')) as out: out.write_text('second\\n')"
    )
    with log.open("ab") as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)
    assert log.read_text() == "first\nsecond\n"


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "comparison.md"
    path.write_text("old")

    def fail() -> None:
        with written_whole(path) as out:
            out.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(StepFailed, match="cannot be written: No space"):
        fail()
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["comparison.md"]


def test_a_folder_in_place_of_a_file_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/comparison.md"):
        with pytest.raises(StepFailed) as refused, written_whole(path) as out:
            out.write_text("text")
        assert "-o names a file" in refused.value.hint


def test_files_of_a_run_replace_a_planted_link(tmp_path: Path) -> None:
    victim, planted = tmp_path / "victim", tmp_path / "manifest.json"
    victim.write_text("mine")
    planted.symlink_to(victim)
    write_atomic(planted, "ours")
    assert victim.read_text() == "mine"
    assert not planted.is_symlink()
    assert planted.read_text() == "ours"


@pytest.mark.usefixtures("umask")
def test_the_umask_holds(tmp_path: Path, lab: Any) -> None:
    write_atomic(tmp_path / "a", "x")
    write(tmp_path / "b")
    lab.run(lab.recipe(counters__enabled=False))
    found = [tmp_path / "a", tmp_path / "b", *lab.out.rglob("*")]
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_a_name_as_long_as_names_may_be_can_be_written(tmp_path: Path) -> None:
    with whole_file(tmp_path / ("n" * 255)) as partial:
        partial.write_text("x")


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(EVIL) == "kernel\\x1b]0;owned\\x07\\x9b31m\\u202ereversed"
    assert printable("a\tb\nc 한국어 é") == "a\tb\nc 한국어 é"
    report_error(EVIL, EVIL, 1)
    made = make_console(80)
    made.file = StringIO()
    made.print(EVIL, markup=False)
    shown = capsys.readouterr().err + made.file.getvalue()
    for function in (formats.escape, formats.escape_html, formats.code, formats.fenced):
        shown += function(EVIL)
    assert shown.count("owned") == 7
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)


def test_cells_of_csv_are_no_formulas_and_numbers_stay_numbers(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "@SUM(1)", "+cmd|' /C calc'!A0", "-2+3", "-1.5e3", "plain", None]
    frame = pd.DataFrame({"name": names, "value": [-1.5, 2, 3, 4, 5, 6, 7]})
    frame["kind"] = pd.Categorical(["=x"] * 7)
    write_csv(frame, tmp_path / "t.csv")
    back = pd.read_csv(tmp_path / "t.csv")
    assert back["name"].fillna("").tolist() == [
        *("'=HYPERLINK(1)", "'@SUM(1)", "'+cmd|' /C calc'!A0", "'-2+3", "-1.5e3", "plain", "")
    ]
    assert back["value"].tolist() == frame["value"].tolist()
    assert set(back["kind"]) == {"'=x"}


def repository(folder: Path, *settings: str) -> Path:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    (folder / "file").write_text("x")
    (folder / ".gitattributes").write_text("* filter=evil\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    for setting in settings:
        subprocess.run([*git, "config", *setting.split(" ", 1)], check=True)
    (folder / "file").write_text("y")
    return folder


@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.evil.clean", "filter.evil.process"])
def test_git_runs_no_command_of_a_repository(tmp_path: Path, setting: str) -> None:
    folder = repository(tmp_path, f"{setting} touch pwned; cat")
    assert len(read_git(folder)["git_commit"]) == 40
    assert not (folder / "pwned").exists()


def test_git_still_tells_what_differs(tmp_path: Path) -> None:
    assert read_git(repository(tmp_path))["git_dirty"] == "yes"


@pytest.mark.parametrize("planted", ["link", "writable"])
def test_code_is_not_loaded_from_a_folder_that_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    own = tmp_path / f"vllm-cache-{os.getuid()}"
    assert serving._cache_folder() == str(own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    if planted == "link":
        own.rename(tmp_path / "elsewhere")
        own.symlink_to(tmp_path / "elsewhere")
    else:
        own.chmod(0o777)
    chosen = Path(serving._cache_folder() or "")
    assert chosen != own
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
