"""Starts `prof rank` as launchers do, with the fake nsys and ncu on PATH."""

import json
import multiprocessing
import os
import runpy
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path

FAKES = Path(__file__).resolve().parent / "fakes"
# A process that has imported all of `prof rank` is forked for each rank: to import pandas and the
# rest takes a second of CPU time.
WARM = multiprocessing.get_context("forkserver")


def _ready() -> None:
    """Start the process that is forked, if it does not run, where it finds tests/warm.py."""
    WARM.set_forkserver_preload(["tests.as_prof", "tests.warm"])
    with chdir(FAKES.parent.parent):
        forkserver.ensure_running()


class Prof:
    """A process of prof, as `subprocess.Popen` shows one: in a session of its own, with pipes.

    `script` is what is started in place of prof's own command: prof with something broken in it.
    """

    def __init__(self, words: list[str], script: Path | None, env: dict[str, str]) -> None:
        _ready()
        (out, out_end), (err, err_end) = WARM.Pipe(duplex=False), WARM.Pipe(duplex=False)
        self._process = WARM.Process(
            target=_become,
            args=(words, script, env, os.getcwd(), out_end, err_end),
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
        self.terminate = self._process.terminate

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self.returncode

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


def _become(
    words: list[str],
    script: Path | None,
    env: dict[str, str],
    folder: str,
    out: Connection,
    err: Connection,
) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for pipe, number in ((out, 1), (err, 2)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.argv = ["prof", *words]
    if script is None:
        runpy.run_module("nsight_prof", run_name="__main__")
    else:
        runpy.run_path(str(script), run_name="__main__")


@contextmanager
def warm_ranks() -> Iterator[str]:
    """Start the ranks of the fake mpirun as forks of WARM; give what FAKE_WARM is to be."""
    _ready()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(b"")  # any name that is free
        server.listen()
        thread = threading.Thread(target=_accept, args=(server,))
        thread.start()
        yield server.getsockname()[1:].decode()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _accept(server: socket.socket) -> None:
    one_at_a_time = threading.Lock()  # multiprocessing reads the exit code of a process once
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # it was shut down
            return
        threading.Thread(target=_rank, args=(connection, one_at_a_time), daemon=True).start()


def _rank(connection: socket.socket, one_at_a_time: threading.Lock) -> None:
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
    with (
        connection,
        connection.makefile("rw") as stream,
        Connection(descriptors[0], readable=False) as out,
        Connection(descriptors[1], readable=False) as err,
    ):
        words, env, folder = json.loads(stream.readline())
        process = WARM.Process(
            target=_become, args=(words, None, env, folder, out, err), daemon=True
        )
        with one_at_a_time:
            process.start()
        out.close()
        err.close()
        print(process.pid, file=stream, flush=True)
        wait([process.sentinel])
        with one_at_a_time:
            process.join()
        print(process.exitcode, file=stream, flush=True)


class Node:
    """A node of a job: `job` is the shared folder, `scratch` lies on its own disk."""

    def __init__(self, folder: Path) -> None:
        self.job, self.scratch = folder / "job", folder / "scratch"
        self.scratch.mkdir()

    def start(
        self,
        rank: int,
        *command: str,
        options: tuple[str, ...] = (),
        script: Path | None = None,
        **variables: str,
    ) -> Prof:
        env = {
            "PATH": f"{FAKES}:{os.defpath}",
            "HOME": os.environ["HOME"],
            "TMPDIR": str(self.scratch),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            **variables,
        }
        words = ["rank", str(self.job), *options, "--", *command]
        return Prof(words, script, {name: value for name, value in env.items() if value})

    def run(
        self,
        rank: int,
        *command: str,
        options: tuple[str, ...] = (),
        script: Path | None = None,
        **more: str,
    ) -> tuple[int | None, str]:
        process = self.start(rank, *command, options=options, script=script, **more)
        out, err = process.communicate()
        return process.returncode, out + err

    def reason(self, rank: int) -> str:
        text = (self.job / f"ranks/{rank:04d}.partial/rank.json").read_text()
        return str(json.loads(text)["reason"])


def wait_for(path: Path) -> None:
    while not path.exists():  # the limit of the test ends a wait for ever
        time.sleep(0.02)
