"""Waiting in collectives of a job: who arrived last, and how long the others waited for it.

A collective ends on all ranks together, so that the rank that arrives last has the shortest kernel,
and what the kernel of another takes longer is its wait. This needs durations alone, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nsight_prof.parsers.bench.stats import t_quantile
from nsight_prof.parsers.ranks.clocks import Array, Clock, fit_clock

BLOCKS = (20, 5)
"""Parts of the trace by which the interval of lateness is made, the wider one of the two: what
slows a rank for many steps, as another program on its host does, is chance only in parts that are
longer. Of balanced jobs of 60 steps with such noise a rank was named in 27 to 83 % by 20 parts
alone, and in 2 to 7 % by both (simulated; the numbers of parts were chosen there)."""
FEWEST = 16
"""Collectives of a GPU from which on its lateness has an interval: four parts of four."""
TOGETHER = 0.95
"""Part of the collectives which overlap once clocks are aligned, for them to be the same ones."""
RankGpu = tuple[int, int]
"""Rank and device."""


@dataclass(frozen=True)
class Calls:
    """The collectives of one kind on one GPU, in the order of their start (ns, own clock).

    `exposed` is the part of the duration in which no other kernel runs beside; None: all of it.
    """

    start: Array
    duration: Array
    exposed: Array | None = None

    @property
    def alone(self) -> Array:
        """Time of each call in which its GPU does nothing else."""
        return self.duration if self.exposed is None else self.exposed


@dataclass(frozen=True)
class Waits:
    """What collectives tell of one GPU of a rank.

    `wait_ns` and `transfer_ns` add up to the durations of its matched collectives (`matched`);
    `first_ns` is what of the waits is in the first collective of each group.
    `late_ns` is how much longer the others (mean of those that it has collectives with) have
    nothing to do but wait than it has itself, in all collectives but the first of a group, to which
    ranks come as their captures began: a rank that waits computes ahead, so that it comes early to
    the next collectives, too, and its whole waits count the same lateness several times (by 14 to
    63 % in four jobs of DDP on two H100). `low_ns` and `high_ns` are its 95 % interval over parts
    of the trace, for all GPUs of the job at once. `last` is in how many it arrived last. `clock` is
    None where it could not be aligned. `starts` and `waited` are of each of its matched
    collectives, in the order of their start (own clock).
    """

    matched: int
    wait_ns: int
    first_ns: int
    transfer_ns: int
    late_ns: float
    low_ns: float
    high_ns: float
    last: int
    clock: Clock | None
    starts: Array = field(default_factory=lambda: np.empty(0, np.int64))
    waited: Array = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Kind:
    """A collective over the job: what its instances, which all `gpus` have, took (ns).

    `wait_ns` is that of all GPUs, `longest_ns` that of the one which waits longest; that one
    (`longest`) and the one that arrived last (`last`) are places in `gpus`. `first_ns` is when the
    first arrived, by the clock of the job's first GPU, `spread_ns` how much later the last. To the
    first instance of a kind that `begins` its group, ranks come as their captures began.
    """

    key: str
    gpus: tuple[RankGpu, ...]
    transfer_ns: Array
    wait_ns: Array
    longest_ns: Array
    longest: Array
    last: Array
    first_ns: Array
    spread_ns: Array
    begins: bool


def compare(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    given: Mapping[RankGpu, Clock | None] | None = None,
) -> tuple[dict[RankGpu, Waits], list[Kind]]:
    """Compare the collectives of all GPUs: the n-th of a kind is the n-th on all that have it.

    Clocks are aligned by them, unless they are `given`.

    A kind is shared by the GPUs that have it: all of the job, or those of a communicator that the
    kind names. Kinds that some of these have more often than others, or that do not run at the same
    time once the clocks are aligned, are left out.
    """
    gpus = sorted(calls)
    shared = _shared(calls, gpus)
    clocks = _align(calls, gpus, shared) if given is None else given
    members = {
        key: aligned
        for key, of_key in shared.items()
        if len(aligned := [gpu for gpu in of_key if clocks[gpu] is not None]) > 1
    }
    firsts = _firsts(calls, members)
    kinds = [
        _kind(key, calls, of_key, clocks, begins=key in firsts) for key, of_key in members.items()
    ]
    found = _waits(calls, kinds, clocks)
    return {gpu: found.get(gpu, _nothing(clocks[gpu])) for gpu in gpus}, kinds


def _shared(
    calls: Mapping[RankGpu, Mapping[str, Calls]], gpus: Sequence[RankGpu]
) -> dict[str, list[RankGpu]]:
    """Return the GPUs of each kind that several have, equally often.

    Without its communicator a kind is known to be one collective only where all GPUs have it.
    """
    members: dict[str, list[RankGpu]] = {}
    for gpu in gpus:
        for key in calls[gpu]:
            members.setdefault(key, []).append(gpu)
    return {
        key: of_key
        for key, of_key in members.items()
        if len(of_key) > 1
        and (len(of_key) == len(gpus) or has_communicator(key))
        and len({len(calls[gpu][key].start) for gpu in of_key}) == 1
    }


def _align(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    gpus: Sequence[RankGpu],
    shared: Mapping[str, Sequence[RankGpu]],
) -> dict[RankGpu, Clock | None]:
    """Align the clock of each GPU with that of the first; None where no collectives lead there.

    GPUs that share none with the first are aligned with one that is, whose uncertainty adds to
    theirs.
    """
    clocks: dict[RankGpu, Clock | None] = dict.fromkeys(gpus)
    if not shared:
        return clocks
    of_gpu = _keys_of(shared, gpus)
    first = gpus[0]
    pairs = sum(len(calls[first][key].start) for key in of_gpu[first])
    clocks[first] = Clock(pairs=pairs)
    ready = [first]
    while ready:
        known = ready.pop(0)
        clock = clocks[known]
        assert clock is not None  # only aligned GPUs are ready
        for gpu in [gpu for gpu in gpus if clocks[gpu] is None]:
            keys = _by_length(of_gpu[known].keys() & of_gpu[gpu], calls[known], calls[gpu])
            if not keys:
                continue
            ends = {key: clock.on_reference(_ends(calls[known][key])) for key in keys}
            found = fit_clock([(ends[key], _ends(calls[gpu][key])) for key in keys])
            if found is not None and _together(calls[known], calls[gpu], ends, (clock, found)):
                clocks[gpu] = found.through(clock)
                ready.append(gpu)
    return clocks


def _keys_of(
    members: Mapping[str, Sequence[RankGpu]], gpus: Iterable[RankGpu]
) -> dict[RankGpu, dict[str, int]]:
    """Return the kinds that each GPU has, with its place among the GPUs of the kind."""
    found: dict[RankGpu, dict[str, int]] = {gpu: {} for gpu in gpus}
    for key, of_key in members.items():
        for number, gpu in enumerate(of_key):
            found[gpu][key] = number
    return found


def _by_length(
    keys: Iterable[str], first: Mapping[str, Calls], second: Mapping[str, Calls]
) -> list[str]:
    """Order kinds by their shortest transfer: the ends of short collectives differ least."""
    shortest = {key: min(first[key].duration.min(), second[key].duration.min()) for key in keys}
    return sorted(keys, key=lambda key: (shortest[key], key))


def has_communicator(key: str) -> bool:
    """Tell whether a kind names the communicator of its collectives (`RankTimes`)."""
    return " 0x" in key


def _ends(calls: Calls) -> Array:
    ends: Array = calls.start + calls.duration
    return ends


def _together(
    reference: Mapping[str, Calls],
    calls: Mapping[str, Calls],
    ends: Mapping[str, Array],
    clocks: tuple[Clock, Clock],
) -> bool:
    """Tell whether the collectives overlap; `ends` are those of `reference`, on the first clock."""
    overlapping = total = 0
    for key, reference_end in ends.items():
        begin = clocks[0].on_reference(reference[key].start)
        start = clocks[1].on_reference(calls[key].start)
        end = clocks[1].on_reference(_ends(calls[key]))
        met = (start < reference_end) & (end > begin)
        overlapping, total = overlapping + int(met.sum()), total + len(met)
    return overlapping >= TOGETHER * total


def _waits(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    kinds: Sequence[Kind],
    clocks: Mapping[RankGpu, Clock | None],
) -> dict[RankGpu, Waits]:
    shortest = {kind.key: kind.transfer_ns for kind in kinds}
    last = {kind.key: kind.last for kind in kinds}
    firsts = {kind.key for kind in kinds if kind.begins}
    members = {kind.key: kind.gpus for kind in kinds}
    alone: dict[str, Array] = {}
    for key, of_key in members.items():
        alone[key] = calls[of_key[0]][key].alone
        for gpu in of_key:
            alone[key] = np.minimum(alone[key], calls[gpu][key].alone)
    keys_of = _keys_of(members, {gpu for of_key in members.values() for gpu in of_key})
    edges = _edges(calls, keys_of, clocks)
    found, idle = {}, {}
    for gpu, keys in keys_of.items():
        starts = np.concatenate([calls[gpu][key].start for key in keys])
        order = np.argsort(starts, kind="stable")
        waits = {key: calls[gpu][key].duration - shortest[key] for key in keys}
        # Only what nothing else runs beside makes the GPU idle.
        unhidden = {key: calls[gpu][key].alone - alone[key] for key in keys}
        for key in firsts & keys.keys():
            unhidden[key][0] = 0
        clock = clocks[gpu]
        assert clock is not None  # only aligned GPUs are members
        ends = clock.on_reference(np.concatenate([_ends(calls[gpu][key]) for key in keys]))
        idle[gpu] = _sums(ends, np.concatenate(list(unhidden.values())), edges)
        found[gpu] = Waits(
            matched=len(order),
            wait_ns=int(sum(times.sum() for times in waits.values())),
            first_ns=int(sum(waits[key][0] for key in firsts & keys.keys())),
            transfer_ns=int(sum(shortest[key].sum() for key in keys)),
            late_ns=0.0,
            low_ns=-np.inf,
            high_ns=np.inf,
            last=int(sum((last[key] == number).sum() for key, number in keys.items())),
            clock=clock,
            starts=starts[order],
            waited=np.concatenate(list(waits.values()))[order],
        )
    late = _late(idle, members)
    return {gpu: _lateness(waits, late[gpu], len(found)) for gpu, waits in found.items()}


def _edges(
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    keys_of: Mapping[RankGpu, Mapping[str, int]],
    clocks: Mapping[RankGpu, Clock | None],
) -> list[Array]:
    """Return where the parts of the trace begin (clock of the first GPU), for each of BLOCKS.

    Parts have as many collectives of the GPU that has most, and begin between two of them.
    """
    if not keys_of:
        return []
    busiest = max(keys_of, key=lambda gpu: sum(len(calls[gpu][key].start) for key in keys_of[gpu]))
    clock = clocks[busiest]
    assert clock is not None  # as in _waits
    of_busiest = [_ends(calls[busiest][key]) for key in keys_of[busiest]]
    ends = np.sort(clock.on_reference(np.concatenate(of_busiest)))
    if len(ends) < FEWEST:
        return []
    found = []
    for count in (min(blocks, len(ends) // 4) for blocks in BLOCKS):
        begins = np.cumsum([len(block) for block in np.array_split(ends, count)])[:-1]
        found.append((ends[begins - 1] + ends[begins]) / 2)
    return found


def _sums(ends: Array, values: Array, edges: Sequence[Array]) -> list[Array]:
    """Return the sum of `values` in each part of the trace; in all of it without `edges`."""
    if not edges:
        return [values.sum(keepdims=True)]
    return [
        np.bincount(np.searchsorted(starts, ends, "right"), values, len(starts) + 1)
        for starts in edges
    ]


def _late(
    idle: Mapping[RankGpu, Sequence[Array]], members: Mapping[str, Sequence[RankGpu]]
) -> dict[RankGpu, list[Array]]:
    """Return how much longer the others wait than a GPU does, in the parts of the trace.

    The others are those with which it has collectives. A rank that is late in one group makes its
    neighbours there late in others, and is late in its own other groups, too: each of them waits
    once, so that what counts is how long each waits in all, not what the waits of groups add up to.
    """
    neighbours: dict[RankGpu, set[RankGpu]] = {gpu: set() for gpu in idle}
    for of_key in {tuple(of_key) for of_key in members.values()}:
        for gpu in of_key:
            neighbours[gpu].update(of_key)
    totals: dict[tuple[RankGpu, ...], list[Array]] = {}
    found = {}
    for gpu, own_sums in idle.items():
        near = tuple(sorted(neighbours[gpu]))
        if near not in totals:
            totals[near] = [
                np.sum([idle[member][n] for member in near], axis=0) for n in range(len(own_sums))
            ]
        found[gpu] = [
            (total - sums) / (len(near) - 1) - sums
            for total, sums in zip(totals[near], own_sums, strict=True)
        ]
    return found


def _lateness(waits: Waits, late: Sequence[Array], gpus: int) -> Waits:
    """Add lateness and its interval: from the sums of parts of the trace, for all GPUs at once.

    Without bounds where there are too few collectives for four parts of four.
    """
    total = float(late[0].sum())
    if waits.matched < FEWEST:
        return replace(waits, late_ns=total)
    confidence = 1 - 0.05 / gpus
    half = max(
        t_quantile(len(sums) - 1, confidence) * float(sums.std(ddof=1) * np.sqrt(len(sums)))
        for sums in late
    )
    return replace(waits, late_ns=total, low_ns=total - half, high_ns=total + half)


def _firsts(
    calls: Mapping[RankGpu, Mapping[str, Calls]], members: Mapping[str, Sequence[RankGpu]]
) -> set[str]:
    """Return the kind of the first collective of each group of GPUs."""
    found: dict[tuple[RankGpu, ...], str] = {}
    for key, of_key in members.items():
        group, start = tuple(of_key), calls[of_key[0]][key].start[0]
        if group not in found or start < calls[of_key[0]][found[group]].start[0]:
            found[group] = key
    return set(found.values())


def _kind(
    key: str,
    calls: Mapping[RankGpu, Mapping[str, Calls]],
    gpus: Sequence[RankGpu],
    clocks: Mapping[RankGpu, Clock | None],
    *,
    begins: bool,
) -> Kind:
    # One GPU after the other, so that memory does not grow with their number.
    shortest = calls[gpus[0]][key].duration.astype(np.int64)
    last = np.zeros(len(shortest), np.int64)
    for number, gpu in enumerate(gpus):
        duration = calls[gpu][key].duration.astype(np.int64)
        last[duration < shortest] = number
        shortest = np.minimum(shortest, duration)
    total, longest_ns, longest = (np.zeros(len(shortest), np.int64) for _ in range(3))
    first, latest = np.full(len(shortest), np.inf), np.full(len(shortest), -np.inf)
    for number, gpu in enumerate(gpus):
        waited = calls[gpu][key].duration - shortest
        longest[waited > longest_ns] = number
        longest_ns, total = np.maximum(longest_ns, waited), total + waited
        clock = clocks[gpu]
        assert clock is not None  # only aligned GPUs are members
        arrived = clock.on_reference(calls[gpu][key].start)
        first, latest = np.minimum(first, arrived), np.maximum(latest, arrived)
    spread = latest - first
    return Kind(key, tuple(gpus), shortest, total, longest_ns, longest, last, first, spread, begins)


def _nothing(clock: Clock | None) -> Waits:
    return Waits(0, 0, 0, 0, 0.0, 0.0, 0.0, 0, clock)
