"""Starts `prof rank` as launchers do, with the fake nsys and ncu on PATH."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FAKES = Path(__file__).resolve().parent / "fakes"


class Node:
    """A node of a job: `job` is the shared folder, `scratch` lies on its own disk.

    `script` is what is started in place of prof's own command: prof with something broken in it.
    """

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
    ) -> subprocess.Popen[str]:
        env = {
            "PATH": f"{FAKES}:{os.defpath}",
            "HOME": os.environ["HOME"],
            "TMPDIR": str(self.scratch),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            **variables,
        }
        if script is not None:
            env["PYTHONPATH"] = os.pathsep.join(sys.path)
        prof = ["-m", "nsight_prof"] if script is None else [str(script)]
        words = [sys.executable, *prof, "rank", str(self.job), *options, "--"]
        return subprocess.Popen(
            [*words, *command],
            env={name: value for name, value in env.items() if value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        rank: int,
        *command: str,
        options: tuple[str, ...] = (),
        script: Path | None = None,
        **more: str,
    ) -> tuple[int, str]:
        process = self.start(rank, *command, options=options, script=script, **more)
        out, err = process.communicate()
        return process.returncode, out + err

    def reason(self, rank: int) -> str:
        text = (self.job / f"ranks/{rank:04d}.partial/rank.json").read_text()
        return str(json.loads(text)["reason"])


def wait_for(path: Path) -> None:
    while not path.exists():  # the limit of the test ends a wait for ever
        time.sleep(0.02)
