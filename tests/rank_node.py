"""Starts `prof rank` as launchers do, with the fake nsys and ncu on PATH."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.forked import WARM, Forked, become, ready

FAKES = Path(__file__).resolve().parent / "fakes"


@contextmanager
def warm_ranks() -> Iterator[str]:
    """Start the ranks of the fake mpirun as forks of WARM; give what FAKE_WARM is to be."""
    ready()
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
            target=become,
            args=(["-m", "nsight_prof", *words], env, folder),
            kwargs={"out": out, "err": err},
            daemon=True,
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
    ) -> Forked:
        env = {
            "PATH": f"{FAKES}:{os.defpath}",
            "HOME": os.environ["HOME"],
            "TMPDIR": str(self.scratch),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            **variables,
        }
        words = ["rank", str(self.job), *options, "--", *command]
        argv = ["-m", "nsight_prof"] if script is None else [str(script)]
        return Forked([*argv, *words], {name: value for name, value in env.items() if value})

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
