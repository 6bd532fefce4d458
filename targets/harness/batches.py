"""What one sample times: a call, a loop of calls, or a CUDA graph of them, always rotating."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.targets.harness.api import Call

SAMPLE_S = 1e-3
"""Least duration of a sample: the 1 to 2 us that a pair of events costs are then 0.2 %."""
ROTATION_S = 0.02
"""A rotation over all copies that takes longer is cut into several graphs."""
GRAPH_CALLS = 4096


@dataclass(frozen=True)
class Batch:
    """`run` does `calls` calls."""

    run: Callable[[], object]
    calls: int


class Batches:
    """Batches in rotation.

    Attributes:
        captured: they are CUDA graphs.
        note: why they are not, where they should be.
    """

    def __init__(self, batches: Sequence[Batch], captured: bool, note: str = "") -> None:
        self.batches = list(batches)
        self.captured = captured
        self.note = note
        self._turn: Iterator[Batch] = itertools.cycle(self.batches)

    def next(self) -> int:
        """Run the next batch; return its number of calls."""
        batch = next(self._turn)
        batch.run()
        return batch.calls

    @property
    def calls(self) -> int:
        """Calls of a batch; of the largest where they differ."""
        return max(batch.calls for batch in self.batches)


def loop(calls: Sequence[Call], seconds: float, least_s: float = SAMPLE_S) -> Batches:
    """Return batches launched by the host that take at least `least_s`, at `seconds` a call."""
    count = max(1, math.ceil(least_s / max(seconds, 1e-9)))
    turn = itertools.cycle(calls)

    def run() -> None:
        for call in itertools.islice(turn, count):
            call()

    return Batches([Batch(run, count)], captured=False)


def slices(copies: int, seconds: float, least_s: float = SAMPLE_S) -> list[range]:
    """Return the calls of each graph: whole rotations, or parts of one that takes long.

    Args:
        copies: calls of a rotation.
        seconds: estimated duration of a call.
        least_s: least duration of a graph.

    Returns:
        Ranges of call numbers, to be taken modulo `copies`. Their union is a whole number of
        rotations, so that replaying them in turn goes on rotating.
    """
    wanted = min(max(1, math.ceil(least_s / max(seconds, 1e-9))), GRAPH_CALLS)
    if wanted >= copies:
        return [range(math.ceil(wanted / copies) * copies)]
    if copies * seconds <= ROTATION_S:
        return [range(copies)]
    parts = copies // wanted
    edges = [copies * part // parts for part in range(parts + 1)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def graphs(calls: Sequence[Call], seconds: float, least_s: float = SAMPLE_S) -> Batches:
    """Return the calls captured in CUDA graphs; as host loops, with a note, where that fails."""
    import torch

    # One after another they can all use the same memory for what the calls allocate.
    pool = torch.cuda.graph_pool_handle()
    try:
        made = [
            Batch(capture([calls[i % len(calls)] for i in part], pool).replay, len(part))
            for part in slices(len(calls), seconds, least_s)
        ]
    except Exception as error:  # whatever a library raises that may not be captured
        recover()
        batches = loop(calls, seconds, least_s)
        first = str(error).strip().splitlines() or [type(error).__name__]
        batches.note = f"not captured in a graph: {first[0][:200]}"
        return batches
    return Batches(made, captured=True)


def capture(calls: Sequence[Call], pool: Any = None) -> Any:
    """Return a torch.cuda.CUDAGraph of the calls, captured on the current stream.

    Args:
        calls: warmed up: what is loaded, compiled or timed at the first call cannot be captured.
        pool: memory pool to share with graphs that never run at the same time; None for its own.

    torch.cuda.graph would collect garbage and empty the allocator's cache each time, which costs
    more than the measurement. The current stream must not be the default one.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool)
    try:
        for call in calls:
            call()
    except BaseException:
        # The capture is invalid by now, which ending it says too.
        with contextlib.suppress(Exception):
            graph.capture_end()
        raise
    graph.capture_end()
    return graph


def recover() -> None:
    """Leave a failed capture behind; a lost context shows at the next call."""
    import torch

    with contextlib.suppress(Exception):
        torch.cuda.synchronize()
