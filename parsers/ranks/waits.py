"""Waiting in collectives of a job: who arrived last, and how long the others waited for it.

A collective ends on all ranks together, so that the rank that arrives last has the shortest kernel,
and what the kernel of another takes longer is its wait. This needs durations alone, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from nsight_prof.parsers.ranks.clocks import Array, Clock, fit_clock

BLOCKS = 20
"""Parts of the trace over which lateness is averaged for its interval."""
TOGETHER = 0.95
"""Part of the collectives which overlap once clocks are aligned, for them to be the same ones."""
RankGpu = tuple[int, int]
"""Rank and device."""


@dataclass(frozen=True)
class Calls:
    """The collectives of one kind on one GPU, in the order of their start (ns, own clock)."""

    start: Array
    duration: Array


@dataclass(frozen=True)
class Waits:
    """What collectives tell of one GPU of a rank.

    `wait_ns` and `transfer_ns` add up to the durations of its matched collectives (`matched`).
    `late_ns` is how much later than the average of the others it arrived, summed; `low_ns` and
    `high_ns` are its 95 % interval over parts of the trace, for all GPUs of the job at once.
    `last` is in how many it arrived last. `clock` is None where it could not be aligned.
    """

    matched: int
    wait_ns: int
    transfer_ns: int
    late_ns: float
    low_ns: float
    high_ns: float
    last: int
    clock: Clock | None


@dataclass(frozen=True)
class Kind:
    """A collective over the job: `instances` matched on all `gpus`, waits and transfers (ns)."""

    key: str
    gpus: int
    instances: int
    transfer_ns: Array
    wait_ns: int


def compare(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
) -> tuple[dict[RankGpu, Waits], list[Kind]]:
    """Compare the collectives of all GPUs; the n-th of a kind on one is the n-th on all.

    Kinds that some ranks have more often than others, or that do not run at the same time once the
    clocks are aligned, are left out.
    """
    gpus = sorted(calls)
    shared = _shared(calls, gpus) if len(gpus) > 1 else []
    clocks: dict[RankGpu, Clock | None] = {gpu: None for gpu in gpus}
    if not shared:
        return {gpu: _nothing(None) for gpu in gpus}, []
    reference = calls[gpus[0]]
    clocks[gpus[0]] = Clock(pairs=sum(len(reference[key].start) for key in shared))
    for gpu in gpus[1:]:
        pairs = [(_ends(reference[key]), _ends(calls[gpu][key])) for key in shared]
        clock = fit_clock(pairs)
        if clock is not None and _together(reference, calls[gpu], shared, clock):
            clocks[gpu] = clock
    aligned = [gpu for gpu in gpus if clocks[gpu] is not None]
    found = _waits(calls, aligned, shared, clocks) if len(aligned) > 1 else {}
    kinds = [_kind(key, calls, aligned) for key in shared] if len(aligned) > 1 else []
    return {gpu: found.get(gpu, _nothing(clocks[gpu])) for gpu in gpus}, kinds


def _shared(calls: Mapping[RankGpu, Mapping[str, Calls]], gpus: Sequence[RankGpu]) -> list[str]:
    """Return the kinds that all GPUs have equally often."""
    counts = [{key: len(found.start) for key, found in calls[gpu].items()} for gpu in gpus]
    return [key for key, n in counts[0].items() if all(of_gpu.get(key) == n for of_gpu in counts)]


def _ends(calls: Calls) -> Array:
    ends: Array = calls.start + calls.duration
    return ends


def _together(
    reference: Mapping[str, Calls], calls: Mapping[str, Calls], shared: Sequence[str], clock: Clock
) -> bool:
    overlapping = total = 0
    for key in shared:
        start = clock.on_reference(calls[key].start)
        end = clock.on_reference(_ends(calls[key]))
        met = (start < _ends(reference[key])) & (end > reference[key].start)
        overlapping, total = overlapping + int(met.sum()), total + len(met)
    return overlapping >= TOGETHER * total


def _waits(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    gpus: Sequence[RankGpu],
    shared: Sequence[str],
    clocks: Mapping[RankGpu, Clock | None],
) -> dict[RankGpu, Waits]:
    # The collectives in the order of the first GPU's start, for parts of the trace.
    order = np.argsort(np.concatenate([calls[gpus[0]][key].start for key in shared]))

    def durations(gpu: RankGpu) -> Array:
        found: Array = np.concatenate([calls[gpu][key].duration for key in shared])[order]
        return found.astype(np.int64)

    # One GPU after the other, so that memory does not grow with their number.
    shortest, total = durations(gpus[0]), np.zeros(len(order))
    last = np.zeros(len(order), np.int64)
    for number, gpu in enumerate(gpus):
        duration = durations(gpu)
        last[duration < shortest] = number
        shortest, total = np.minimum(shortest, duration), total + duration
    score = NormalDist().inv_cdf(1 - 0.025 / len(gpus))
    found = {}
    for number, gpu in enumerate(gpus):
        duration = durations(gpu)
        late = (total - duration) / (len(gpus) - 1) - duration
        low, high = _interval(late, score)
        found[gpu] = Waits(
            matched=len(order),
            wait_ns=int((duration - shortest).sum()),
            transfer_ns=int(shortest.sum()),
            late_ns=float(late.sum()),
            low_ns=low,
            high_ns=high,
            last=int((last == number).sum()),
            clock=clocks[gpu],
        )
    return found


def _interval(late: Array, score: float) -> tuple[float, float]:
    """Interval of the sum of `late` from the sums of parts of the trace, `score` deviations wide.

    Without bounds where there are too few collectives for four parts of four.
    """
    if len(late) < 16:
        return -np.inf, np.inf
    block_sums = np.array(
        [block.sum() for block in np.array_split(late, min(BLOCKS, len(late) // 4))]
    )
    half = score * float(block_sums.std(ddof=1)) * np.sqrt(len(block_sums))
    return float(late.sum() - half), float(late.sum() + half)


def _kind(key: str, calls: Mapping[RankGpu, Mapping[str, Calls]], gpus: Sequence[RankGpu]) -> Kind:
    transfer, total = calls[gpus[0]][key].duration, 0
    for gpu in gpus:
        transfer = np.minimum(transfer, calls[gpu][key].duration)
        total += int(calls[gpu][key].duration.sum())
    wait_ns = total - len(gpus) * int(transfer.sum())
    return Kind(key, len(gpus), len(transfer), transfer, wait_ns)


def _nothing(clock: Clock | None) -> Waits:
    return Waits(0, 0, 0, 0.0, 0.0, 0.0, 0, clock)
