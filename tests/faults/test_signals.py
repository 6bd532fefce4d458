"""Real signals to a real `prof run`: what runs under it ends, and what is ignored stays so."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.system.stopping import STOPS
from tests.processes import wait_for_end, writes_pid, written_pid

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Start]:
    """Returns a function that starts `prof run` of a script as a benchmark without a GPU."""
    began: list[subprocess.Popen[str]] = []

    def run(script: str, *, out: str = "out", before: tuple[str, ...] = ()) -> Any:
        target = tmp_path / "target"  # a Python target would be asked for its torch
        target.write_text(f"#!{sys.executable} -IS\n{script}")
        target.chmod(0o755)
        recipe = tmp_path / "mine.yaml"
        bench = "bench: {processes: 1}\ncounters: {enabled: false}\n"
        recipe.write_text(f"target: {{command: [{target}]}}\n{bench}")
        command = ["run", str(recipe), "--out", str(tmp_path / out)]
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "nsight_prof", *command],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        began.append(process)
        return process

    yield run
    for process in began:
        process.kill()
        process.communicate()


def waits(pid: Path, *, deaf: bool = False) -> str:
    """A script that writes its id and waits; a deaf one hears no SIGTERM."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    return f"import os, signal, time\n{ignore}{writes_pid(pid)}time.sleep(600)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_ends_the_program_and_leaves_a_run_to_resume(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    assert number in (*STOPS, signal.SIGINT)
    prof = start(waits(tmp_path / "pid"))
    program = written_pid(tmp_path / "pid")
    prof.send_signal(number)
    _, error = prof.communicate()
    assert prof.returncode == 130
    assert "--resume" in error
    wait_for_end(program)
    (step, *_) = json.loads((tmp_path / "out/manifest.json").read_text())["steps"]
    assert step["state"] == "failed"


def test_ctrl_c_in_the_first_moment_shows_no_traceback(root: Path, tmp_path: Path) -> None:
    """It comes while prof imports the first library of others."""
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(600)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "nsight_prof", "--version"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_nohup_is_heard(start: Start, tmp_path: Path) -> None:
    """The terminal hangs up, and the run goes on."""
    go = tmp_path / "go"
    script = waits(tmp_path / "pid").replace(
        "time.sleep(600)", f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
    )
    prof = start(script, before=("nohup",))
    written_pid(tmp_path / "pid")
    prof.send_signal(signal.SIGHUP)
    go.touch()
    _, error = prof.communicate()
    assert "wrote no case" in error
    assert prof.returncode == 1


def test_a_program_ends_with_a_prof_that_is_killed(start: Start, tmp_path: Path) -> None:
    prof = start(waits(tmp_path / "pid"))
    program = written_pid(tmp_path / "pid")
    prof.kill()
    wait_for_end(program)


def test_the_next_run_tells_of_a_program_that_outlived_its_prof(
    start: Start, tmp_path: Path
) -> None:
    prof = start(waits(tmp_path / "pid", deaf=True))
    program = written_pid(tmp_path / "pid")
    try:
        prof.kill()
        prof.communicate()
        _, error = start("print('no case')", out="next").communicate()
        assert f"process {program} (" in error
        assert f"kill {program}" in error
    finally:
        os.kill(program, signal.SIGKILL)
