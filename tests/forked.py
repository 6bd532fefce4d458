"""Starts Python programs as forks of a process that has imported what they import.

To import pandas and the rest of prof takes a second of CPU time, aiohttp a quarter. What only a
process of its own can show (its first moment, what it imports) is started by `subprocess`.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import chdir
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType

WARM = multiprocessing.get_context("forkserver")


def ready() -> None:
    """Start the process that is forked, if it does not run, where it finds tests/warm.py."""
    WARM.set_forkserver_preload(["tests.as_prof", "tests.warm"])
    with chdir(Path(__file__).resolve().parent.parent):
        forkserver.ensure_running()


class Forked:
    """A process, as `subprocess.Popen` shows one: in a session of its own, with pipes.

    `argv` is what comes behind the interpreter: a script, `-m` and a module, or `-c` and a
    program; and its words.
    """

    def __init__(
        self, argv: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        ready()
        (out, out_end), (err, err_end) = WARM.Pipe(duplex=False), WARM.Pipe(duplex=False)
        self._process = WARM.Process(
            target=become,
            args=(argv, dict(os.environ if env is None else env), str(cwd or Path.cwd())),
            kwargs={"out": out_end, "err": err_end},
            daemon=True,  # of a test that failed it is ended with pytest
        )
        self._process.start()
        for end in (out_end, err_end):
            end.close()
        self.stdout, self._stderr = (
            os.fdopen(os.dup(pipe.fileno()), encoding="utf-8") for pipe in (out, err)
        )
        for pipe in (out, err):
            pipe.close()
        self.terminate, self.kill = self._process.terminate, self._process.kill

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def communicate(self) -> tuple[str, str]:
        """Return what it and its children write to stdout and stderr, once all have ended."""
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self._stderr.read()))
        reader.start()
        with self.stdout, self._stderr:
            out = self.stdout.read()
            reader.join()
        self.wait()
        return out, errors[0]


def run(
    argv: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does."""
    process = Forked(argv, env, cwd)
    out, err = process.communicate()
    assert process.returncode is not None
    return CompletedProcess(argv, process.returncode, out, err)


def become(
    argv: list[str], env: dict[str, str], folder: str, *, out: Connection, err: Connection
) -> None:
    """Be that program in this process, which was forked for it."""
    # Daemons of multiprocessing may start none of its processes; this program may.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for pipe, number in ((out, 1), (err, 2)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(argv[1], vars(main))
    else:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).parent))
        runpy.run_path(argv[0], run_name="__main__")
