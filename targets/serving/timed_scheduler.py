"""vLLM's scheduler, which times the host on the thread that drives the engine of a server.

    vllm serve MODEL --scheduler-cls nsight_prof.targets.serving.timed_scheduler.TimedScheduler

A server's engine is a process of its own, whose thread nobody else can time. The file that the
variable PROF_ENGINE_LOOPS names gets a line of JSON each second of steps: when each began, its
tokens and requests, and each INTERVAL_S the fixed loop of host_loop.py. Where PROF_BUSY_GPU has
layers, least seconds of a step and seconds of a token, the GPU is kept busy (busy_gpu.py).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from nsight_prof.targets.serving.busy_gpu import BusyGpu
from nsight_prof.targets.serving.host_loop import loop_seconds

FILE, BUSY = "PROF_ENGINE_LOOPS", "PROF_BUSY_GPU"
INTERVAL_S, WRITTEN_S = 0.1, 1.0


class TimedScheduler(AsyncScheduler):
    """Schedules as vLLM does with asynchronous scheduling."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Open the file, if there is one."""
        super().__init__(*args, **named)
        self._loop_due = self._written = time.monotonic()
        self._steps: list[tuple[float, int, int]] = []
        self._loops: list[tuple[float, float]] = []
        self._file = os.environ.get(FILE, "")
        if given := os.environ.get(BUSY):  # the engine's graphs were captured before
            layers, step_s, token_s = given.split(",")
            busy = BusyGpu(int(layers), float(step_s), float(token_s))
            busy.install()
            busy.calibrate()
            busy.on = True

    def schedule(self, *args: Any, **named: Any) -> Any:
        """Return the next step."""
        now = time.monotonic()
        if now >= self._loop_due:
            self._loops.append((round(now, 5), round(loop_seconds(), 8)))
            self._loop_due = now + INTERVAL_S
        found = super().schedule(*args, **named)
        tokens = found.num_scheduled_tokens
        self._steps.append((round(now, 5), found.total_num_scheduled_tokens, len(tokens)))
        if self._file and now >= self._written + WRITTEN_S:
            line = json.dumps({"pid": os.getpid(), "loops": self._loops, "steps": self._steps})
            with open(self._file, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
            self._steps, self._loops, self._written = [], [], now
        return found
