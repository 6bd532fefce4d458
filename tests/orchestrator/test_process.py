import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.process import Command, ask, end_leftovers, run
from nsight_prof.parsers.errors import StepFailed

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


def gone(pid: Any) -> Any:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def written_pid(path: Any) -> Any:
    for _ in range(200):
        if path.is_file() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


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


def test_a_timeout_ends_the_whole_group(python: Any, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    finished = run(python(script, timeout_s=1.5))
    assert finished.timed_out
    assert finished.signal == "SIGTERM"
    assert gone(written_pid(tmp_path / "pid"))


def test_a_program_that_ignores_sigterm_is_killed(python: Any) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    finished = run(python(script, timeout_s=1.0, grace_s=0.5))
    assert finished.timed_out
    assert finished.signal == "SIGKILL"


def test_a_grandchild_that_left_the_group_is_ended_too(python: Any, tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
    )
    finished = run(python(script))
    assert finished.exit_code == 0
    assert gone(written_pid(tmp_path / "pid"))


def test_ctrl_c_ends_the_group_before_it_goes_on(python: Any, tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )

    def press(_seconds: Any) -> None:
        if (tmp_path / "pid").is_file():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(script), press)
    assert gone(written_pid(tmp_path / "pid"))


def test_what_a_killed_prof_left_running_is_found_by_its_folder(tmp_path: Path) -> None:
    folder, pid = tmp_path / "1-trace.partial", tmp_path / "pid"
    folder.mkdir()
    script = (
        "import sys, time, pathlib, os; from orchestrator.process import Command, run\n"
        f"f = pathlib.Path({str(folder)!r})\n"
        "child = 'import os, time; open({!r}, \"w\").write(str(os.getpid())); time.sleep(60)'"
        f".format({str(pid)!r})\n"
        "run(Command((sys.executable, '-c', child), dict(os.environ), f, f / 'out', f / 'err'))\n"
    )
    prof = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    left = written_pid(pid)
    prof.kill()
    prof.wait()
    assert not gone(left)
    assert end_leftovers(tmp_path) == 0
    assert end_leftovers(folder) == 1
    assert gone(left)


def test_a_second_ctrl_c_kills_at_once(python: Any, tmp_path: Path) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )

    def press(_seconds: Any) -> None:
        if (tmp_path / "pid").is_file():
            # The second one comes while the first waits for the group to end.
            main = threading.main_thread().ident
            threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(python(script, grace_s=60.0), press)
    assert time.monotonic() - started < 30
    assert gone(written_pid(tmp_path / "pid"))


def test_a_killed_program_says_by_which_signal(python: Any) -> None:
    finished = run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert finished.exit_code is None
    assert finished.signal == "SIGKILL"
    assert not finished.timed_out


def test_the_caller_hears_how_long_it_waits(python: Any) -> None:
    heard: list[float] = []
    run(python("import time; time.sleep(0.6)"), heard.append)
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
