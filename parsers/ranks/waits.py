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
Place = tuple[int, int]
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
    """A collective over the job: `instances` matched on all `places`, waits and transfers (ns)."""

    key: str
    places: int
    instances: int
    transfer_ns: Array
    wait_ns: int


def compare(calls: Mapping[Place, Mapping[str, Calls]]) -> tuple[dict[Place, Waits], list[Kind]]:
    """Compare the collectives of all GPUs; the n-th of a kind on one is the n-th on all.

    Kinds that some ranks have more often than others, or that do not run at the same time once the
    clocks are aligned, are left out.
    """
    places = sorted(calls)
    shared = _shared(calls, places) if len(places) > 1 else []
    clocks: dict[Place, Clock | None] = {place: None for place in places}
    if not shared:
        return {place: _nothing(None) for place in places}, []
    reference = calls[places[0]]
    clocks[places[0]] = Clock(pairs=sum(len(reference[key].start) for key in shared))
    for place in places[1:]:
        pairs = [(_ends(reference[key]), _ends(calls[place][key])) for key in shared]
        clock = fit_clock(pairs)
        if clock is not None and _together(reference, calls[place], shared, clock):
            clocks[place] = clock
    aligned = [place for place in places if clocks[place] is not None]
    found = _waits(calls, aligned, shared, clocks) if len(aligned) > 1 else {}
    kinds = [_kind(key, calls, aligned) for key in shared] if len(aligned) > 1 else []
    return {place: found.get(place, _nothing(clocks[place])) for place in places}, kinds


def _shared(calls: Mapping[Place, Mapping[str, Calls]], places: Sequence[Place]) -> list[str]:
    """Return the kinds that all GPUs have equally often."""
    counts = [{key: len(found.start) for key, found in calls[place].items()} for place in places]
    return [key for key, n in counts[0].items() if all(other.get(key) == n for other in counts)]


def _ends(calls: Calls) -> Array:
    ends: Array = calls.start + calls.duration
    return ends


def _together(
    reference: Mapping[str, Calls], own: Mapping[str, Calls], shared: Sequence[str], clock: Clock
) -> bool:
    overlapping = total = 0
    for key in shared:
        start = clock.on_reference(own[key].start)
        end = clock.on_reference(_ends(own[key]))
        met = (start < _ends(reference[key])) & (end > reference[key].start)
        overlapping, total = overlapping + int(met.sum()), total + len(met)
    return overlapping >= TOGETHER * total


def _waits(
    calls: Mapping[Place, Mapping[str, Calls]],
    places: Sequence[Place],
    shared: Sequence[str],
    clocks: Mapping[Place, Clock | None],
) -> dict[Place, Waits]:
    # The collectives in the order of the first GPU's start, for parts of the trace.
    order = np.argsort(np.concatenate([calls[places[0]][key].start for key in shared]))

    def durations(place: Place) -> Array:
        found: Array = np.concatenate([calls[place][key].duration for key in shared])[order]
        return found.astype(np.int64)

    # One GPU after the other, so that memory does not grow with their number.
    least, total = durations(places[0]), np.zeros(len(order))
    last = np.zeros(len(order), np.int64)
    for number, place in enumerate(places):
        duration = durations(place)
        last[duration < least] = number
        least, total = np.minimum(least, duration), total + duration
    score = NormalDist().inv_cdf(1 - 0.025 / len(places))
    found = {}
    for number, place in enumerate(places):
        duration = durations(place)
        late = (total - duration) / (len(places) - 1) - duration
        low, high = _interval(late, score)
        found[place] = Waits(
            matched=len(order),
            wait_ns=int((duration - least).sum()),
            transfer_ns=int(least.sum()),
            late_ns=float(late.sum()),
            low_ns=low,
            high_ns=high,
            last=int((last == number).sum()),
            clock=clocks[place],
        )
    return found


def _interval(late: Array, score: float) -> tuple[float, float]:
    """Interval of the sum of `late` from the sums of parts of the trace, `score` deviations wide.

    Without bounds where there are too few collectives for four parts of four.
    """
    if len(late) < 16:
        return -np.inf, np.inf
    parts = np.array([part.sum() for part in np.array_split(late, min(BLOCKS, len(late) // 4))])
    half = score * float(parts.std(ddof=1)) * np.sqrt(len(parts))
    return float(late.sum() - half), float(late.sum() + half)


def _kind(key: str, calls: Mapping[Place, Mapping[str, Calls]], places: Sequence[Place]) -> Kind:
    transfer, total = calls[places[0]][key].duration, 0
    for place in places:
        transfer = np.minimum(transfer, calls[place][key].duration)
        total += int(calls[place][key].duration.sum())
    wait_ns = total - len(places) * int(transfer.sum())
    return Kind(key, len(places), len(transfer), transfer, wait_ns)


def _nothing(clock: Clock | None) -> Waits:
    return Waits(0, 0, 0, 0.0, 0.0, 0.0, 0, clock)
