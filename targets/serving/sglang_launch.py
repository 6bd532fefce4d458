"""Starts SGLang's server with an NVTX range round each step of its scheduler.

SGLang has no ranges of its steps. These have the name that vLLM gives its own, requests and tokens
of prompts and then of generation, so that what reads one engine's trace reads the other's.
Arguments are those of sglang.launch_server. SGLang spawns its scheduler, and a spawned process
runs the script of its parent again: that is what puts the ranges there.
"""

from __future__ import annotations

import functools
import runpy
from typing import Any


def name(batch: Any) -> str:
    """Return the name of the range of a batch: as vLLM 0.20 names its steps (gpu_worker.py)."""
    requests = len(batch.reqs)
    if batch.forward_mode.is_decode():
        return f"execute_context_0(0)_generation_{requests}({requests})"
    decoding = len(batch.decoding_reqs or ())  # beside prompts, with --enable-mixed-chunk
    prompts, tokens = requests - decoding, batch.extend_num_tokens - decoding
    return f"execute_context_{prompts}({tokens})_generation_{decoding}({decoding})"


def put_ranges() -> None:
    """Wrap the step of SGLang's scheduler."""
    import torch
    from sglang.srt.managers.scheduler import Scheduler

    run_batch = Scheduler.run_batch

    @functools.wraps(run_batch)
    def ranged(self: Any, batch: Any, *more: Any, **named: Any) -> Any:
        with torch.cuda.nvtx.range(name(batch)):
            return run_batch(self, batch, *more, **named)

    Scheduler.run_batch = ranged


if __name__ == "__mp_main__":
    put_ranges()
elif __name__ == "__main__":
    # This script stays the main module, which the spawned processes run again.
    runpy.run_module("sglang.launch_server", run_name="__main__")
