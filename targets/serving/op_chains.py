"""Times a call as an engine makes it: once, behind another kernel, among its like.

The same kernel called back to back overlaps with itself, and its inputs may lie in the cache. So a
chain of (kernel before, call) pairs on buffers of their own is timed, and the chain of the kernels
before alone: the difference is what the call adds, with the gap before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nsight_prof.targets.harness import Call

SAMPLES = 9
CHAIN_S = 2e-3
"""Least seconds of a sample: it replays the chain so often."""
LONG_S = 3e-3
"""After a sample that took longer the GPU rests, so that the power limit does not slow the next."""
REST = 4.0
SPIN_CYCLES = 2_000_000

Chain = Callable[[], None]
MakeChain = Callable[[Sequence[Call]], Chain]


def added_seconds(before: Sequence[Call], calls: Sequence[Call], make: MakeChain) -> list[float]:
    """Return samples of the seconds that each call adds to the chain of the kernels before.

    Args:
        before: a kernel for each call, which leaves in the cache what the call reads.
        calls: on buffers of their own.
        make: turns calls into a chain that runs all of them, `in_graph` or `in_stream`.
    """
    import torch

    every = [call for pair in zip(before, calls, strict=True) for call in pair]
    for call in every:
        call()
    torch.cuda.synchronize()
    whole, alone = make(every), make(before)
    once = _seconds(whole, 1)
    rounds = max(1, round(CHAIN_S / max(once, 1e-6)))
    found = []
    for _ in range(SAMPLES):
        longer, shorter = _seconds(whole, rounds), _seconds(alone, rounds)
        found.append((longer - shorter) / len(calls))
        if longer * rounds > LONG_S:
            time.sleep(REST * longer * rounds)
    return found


def _seconds(chain: Chain, rounds: int) -> float:
    """Return the seconds of a chain: the mean of some rounds, queued behind a kernel that spins."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SPIN_CYCLES)
    chain()
    start.record()
    for _ in range(rounds):
        chain()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / rounds


def in_graph(calls: Sequence[Call]) -> Chain:
    """Return the calls as a CUDA graph."""
    from nsight_prof.targets.harness.batches import capture

    graph: Any = capture(calls)
    return lambda: graph.replay()


def in_stream(calls: Sequence[Call]) -> Chain:
    """Return the calls as the host launches them."""

    def run() -> None:
        for call in calls:
            call()

    return run
