"""How the fake tools answer a question badly: FAKE_NSYS or FAKE_NCU is one of MODES."""

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
