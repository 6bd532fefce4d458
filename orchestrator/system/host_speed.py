"""Times a fixed loop of Python beside a program: how fast its host is meanwhile.

The host issues the work of a GPU at the speed of one core, which differs between machines, and on
one machine within minutes (docs/accuracy.md). The loop sums the numbers below LOOP; what counts is
the CPU time of its thread, so that a busy machine does not look like a slow one. It runs in the
process of prof, which waits for the program: a tenth of a millisecond each INTERVAL_S, 0.1 % of one
core, on a core that is idle as a rule. A machine with a single core is timed before and after only.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsight_prof.parsers.whole_file import write_atomic

LOOP = 1000
"""Numbers that the loop sums; the file says it."""
CLOCK = "CPU time of the thread"
INTERVAL_S = 0.1
AROUND = 20
"""Loops before and after: 2 ms each."""
FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
CPU_INFO = Path("/proc/cpuinfo")


def timed_loop() -> float:
    """Return the seconds of CPU time of one loop."""
    begin = time.thread_time_ns()
    total = 0
    for number in range(LOOP):
        total += number
    return (time.thread_time_ns() - begin) / 1e9


@contextmanager
def host_timed(path: Path) -> Iterator[None]:
    """Write to the JSON file `path` how long the loop took before, while and after a block runs."""
    timed_loop()  # a core that was idle is slow at first
    before = [timed_loop() for _ in range(AROUND)]
    during: list[tuple[float, float]] = []
    end = threading.Event()
    thread = threading.Thread(target=_watch, args=(during, end), daemon=True)
    if _usable_cores() > 1:
        thread.start()
    try:
        yield
    finally:
        end.set()
        if thread.ident is not None:
            thread.join(timeout=10)
        found = host_facts() | {
            "loop": LOOP,
            "clock": CLOCK,
            "before_s": [_rounded(seconds) for seconds in before],
            "during_s": [[round(at, 2), _rounded(seconds)] for at, seconds in during],
            "after_s": [_rounded(timed_loop()) for _ in range(AROUND)],
        }
        # A full disk must not end the run: its own files say so.
        with suppress(OSError):
            write_atomic(path, json.dumps(found) + "\n")


def host_facts() -> dict[str, str | int]:
    """Return what the loop's time depends on; empty: this machine does not tell."""
    return {
        "cpu": _cpu_model(),
        "governor": _first_line(FREQUENCY),
        "cores": _usable_cores(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _watch(found: list[tuple[float, float]], end: threading.Event) -> None:
    begin = time.monotonic()
    while not end.wait(INTERVAL_S):
        found.append((time.monotonic() - begin, timed_loop()))


def _rounded(seconds: float) -> float:
    return round(seconds, 8)


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def _cpu_model() -> str:
    with suppress(OSError):
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def _first_line(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    return ""
