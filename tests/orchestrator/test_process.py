import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.system.process import Command, ask, end_leftovers, run
from nsight_prof.orchestrator.system.process_tree import abandoned
from nsight_prof.parsers.errors import StepFailed
from tests.processes import gone, is_written, wait_for_end, writes_pid, written_pid

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def python(tmp_path: Path) -> Any:
    """Return a function that makes the command for a Python script."""

    def make(script: Any, **options: Any) -> Any:
        options.setdefault("grace_s", 2.0)
        return Command(
            (sys.executable, "-c", script),
            {"PATH": os.environ["PATH"]},
            tmp_path,
            tmp_path / "stdout.log",
            tmp_path / "stderr.log",
            **options,
        )

    return make


def test_the_exit_code_output_and_tail_are_kept(python: Any, tmp_path: Path) -> None:
    finished = run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (finished.exit_code, finished.timed_out, finished.signal) == (3, False, "")
    assert not finished.ok
    assert (tmp_path / "stdout.log").read_text() == "out\n"
    assert finished.tail == "out\nerr\n"


def test_the_environment_is_the_chosen_one(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_FOR_YOU", "1")
    assert "NOT_FOR_YOU" not in run(python("import os; print(dict(os.environ))")).tail


def test_megabytes_of_output_go_to_the_file_and_their_end_into_the_tail(
    python: Any, tmp_path: Path
) -> None:
    finished = run(python("print('x' * 79 + '\\n', end=''); print('y' * 8_000_000); print('end')"))
    assert (tmp_path / "stdout.log").stat().st_size > 8_000_000
    assert finished.tail.endswith("end\n")
    assert len(finished.tail) <= 2 * 16_384


def test_standard_input_is_empty(python: Any) -> None:
    assert run(python("print(repr(input()))")).exit_code == 1


def test_a_timeout_ends_the_whole_group(python: Any, tmp_path: Path, timeout_when: Any) -> None:
    pid = tmp_path / "pid"
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"{writes_pid(pid, 'child.pid')}"
        "time.sleep(600)\n"
    )
    timeout_when(lambda: is_written(pid))
    finished = run(python(script, timeout_s=600))
    assert finished.timed_out
    assert finished.signal == "SIGTERM"
    assert gone(written_pid(tmp_path / "pid"))


def test_a_program_that_ignores_sigterm_is_killed(
    python: Any, tmp_path: Path, timeout_when: Any
) -> None:
    pid = tmp_path / "pid"
    script = f"import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\n{writes_pid(pid)}"
    timeout_when(lambda: is_written(pid))
    finished = run(python(f"{script}time.sleep(600)", timeout_s=600, grace_s=0.5))
    assert finished.timed_out
    assert finished.signal == "SIGKILL"


def test_a_grandchild_that_left_the_group_is_ended_too(python: Any, tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"{writes_pid(tmp_path / 'pid', 'child.pid')}"
    )
    finished = run(python(script))
    assert finished.exit_code == 0
    assert gone(written_pid(tmp_path / "pid"))


def test_ctrl_c_ends_the_group_before_it_goes_on(python: Any, tmp_path: Path) -> None:
    script = f"import os, time\n{writes_pid(tmp_path / 'pid')}time.sleep(600)\n"

    def press(_seconds: Any) -> None:
        if is_written(tmp_path / "pid"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(script), press)
    assert gone(written_pid(tmp_path / "pid"))


@pytest.fixture
def killed(tmp_path: Path) -> Any:
    """Returns a function that runs a script under a prof of its own, kills that prof when the
    script has written an id, and returns the id."""

    def start(folder: Path, child: str) -> int:
        pid = tmp_path / "pid"
        folder.mkdir()
        script = (
            "import sys, pathlib, os\n"
            "from nsight_prof.orchestrator.system.process import Command, run\n"
            f"f = pathlib.Path({str(folder)!r})\n"
            f"argv = (sys.executable, '-c', {child.format(pid=writes_pid(pid))!r})\n"
            "run(Command(argv, dict(os.environ), f, f / 'out', f / 'err'))\n"
        )
        prof = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
        left = int(written_pid(pid))
        prof.kill()
        prof.wait()
        return left

    return start


def test_what_a_killed_prof_left_running_is_found_by_its_folder(
    killed: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "1-trace.partial"
    left = killed(
        folder, "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\n{pid}time.sleep(60)"
    )
    assert not gone(left)
    assert left in abandoned()
    assert end_leftovers(tmp_path) == 0
    assert end_leftovers(folder, grace_s=0.2) == 1
    wait_for_end(left)
    assert left not in abandoned()


def test_a_program_ends_with_the_prof_that_is_killed(killed: Any, tmp_path: Path) -> None:
    left = killed(tmp_path / "1-trace.partial", "import os, time\n{pid}time.sleep(600)")
    wait_for_end(left)


def test_a_daemon_without_environment_is_ended_too(python: Any, tmp_path: Path) -> None:
    """It has left group and session, its parents are gone, and nothing of prof's is in it."""
    pid = tmp_path / "pid"
    daemon = f"import os, time\n{writes_pid(pid)}time.sleep(600)"
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        os.execve(sys.executable, [sys.executable, '-c', {daemon!r}], {{}})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        f"while not (os.path.exists({str(pid)!r}) and open({str(pid)!r}).read()):\n"
        "    time.sleep(0.02)\n"
    )
    assert run(python(script)).ok
    assert gone(written_pid(pid))


def test_what_prof_itself_started_before_is_left_alone(python: Any) -> None:
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        assert run(python("print(1)")).ok
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_second_ctrl_c_kills_at_once(python: Any, tmp_path: Path) -> None:
    # The program answers prof's SIGTERM by pressing Ctrl-C again, and goes on.
    script = (
        "import os, signal, time\n"
        "prof = os.getppid()\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.kill(prof, signal.SIGINT))\n"
        f"{writes_pid(tmp_path / 'pid')}"
        "while True:\n"
        "    time.sleep(600)\n"
    )

    def press(_seconds: Any) -> None:
        if is_written(tmp_path / "pid"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(script, grace_s=3600.0), press)
    assert gone(written_pid(tmp_path / "pid"))


def test_a_killed_program_says_by_which_signal(python: Any) -> None:
    finished = run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert finished.exit_code is None
    assert finished.signal == "SIGKILL"
    assert not finished.timed_out


def test_the_caller_hears_how_long_it_waits(python: Any, tmp_path: Path) -> None:
    heard: list[float] = []
    enough = tmp_path / "enough"

    def hear(seconds: float) -> None:
        heard.append(seconds)
        if len(heard) == 2:
            enough.touch()

    script = f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.02)"
    run(python(script), hear)
    assert len(heard) >= 2
    assert heard == sorted(heard)


def test_a_program_that_does_not_exist_is_an_error_with_its_name(tmp_path: Path) -> None:
    paths = (tmp_path / "o", tmp_path / "e")
    with pytest.raises(StepFailed, match="no-such-program cannot be started"):
        run(Command(("no-such-program",), {"PATH": "/usr/bin"}, tmp_path, *paths))


def test_a_program_is_sought_on_the_chosen_path(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "mine").chmod(0o755)
    assert ask(["mine"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).stdout == "found\n"


def test_a_question_never_raises() -> None:
    assert ask(["no-such-program"]).exit_code is None
    answer = ask(["sleep", "600"], timeout_s=0.3)
    assert answer.timed_out
    assert answer.exit_code is None
