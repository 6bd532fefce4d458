"""What the fake tools share: bad answers (FAKE_NSYS or FAKE_NCU is one of MODES), and a start."""

import os
import sys
import time

MODES = ("hangs", "crashes", "floods", "mute", "no-library")


def answer(mode: str) -> int:
    """Answer `--version` as a tool does that is broken in the way of `mode`."""
    if mode == "crashes":
        os.kill(os.getpid(), 11)  # SIGSEGV
    if mode == "no-library":
        print("error while loading shared libraries: libfoo.so.1: not found", file=sys.stderr)
        return 127
    while mode == "floods":
        print("y" * 65_535, flush=True)
    while mode == "hangs":
        time.sleep(600)
    return 0


def run(program: list[str]) -> int:
    """Run the program under a tool and return its exit code.

    Few of them need installed packages, the search for which takes twice as long as Python itself.
    """
    if os.path.basename(program[0]).startswith("python") and program[1].endswith(".py"):
        with open(program[1]) as stream:
            if "nsight_prof" not in stream.read():
                program = [program[0], "-S", *program[1:]]
    return os.spawnvp(os.P_WAIT, program[0], program)
