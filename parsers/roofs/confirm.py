"""Says whether counters confirm that a case loads the level or pipe whose roof it measures.

A case that claims a roof is believed when the hardware counted the work where the case says it is,
and next to nothing where it must not be. Counters are of the counting run: the same calls, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.bench.records import ARITHMETIC, RoofKey
from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.sentences import joined, stored

MOVED = 0.05
"""How far the bytes of a level may be from the bytes of the work."""
LEAK = 0.02
"""Traffic of a level further out (or, for shared memory, beside it) over the level's own: beyond
this the case is in part one of the other level."""
L1_HITS_PCT = 5.0
"""Hit rate of L1 up to which a case that only reads counts as one of L2: its loads pass L1 by. Of
writes the rate says nothing: L1 writes through, and 99 % "hit" in a kernel whose every byte L2 got
(H200, ncu 2025.3.1)."""
FLOPS = 0.02
"""How far counted FLOPs of a vector pipe may be from those of the work."""
PADDING = 0.10
"""FLOPs of a GEMM beyond 2MNK that tiles at the edge may add (see formulas.tile_padding)."""
ROUNDING = 0.005
"""FLOPs of a GEMM below 2MNK that rounded exports may lose."""
SECTOR = 32.0
"""Least bytes that an access moves at L2."""
DRAM_ACCESS = 64.0
"""Bytes that DRAM reads for one access of a chase: 2.03 sectors (H200, ncu 2025.3.1)."""
L1_CHASE_HITS_PCT = 98.0
"""Hit rate of L1 from which a chase counts as one of L1."""


@dataclass(frozen=True)
class Verdict:
    """Whether counters confirm a roof, contradict it (False), or cannot tell (None), and why."""

    accepted: bool | None
    reason: str


def verdict_name(accepted: Any) -> str:
    """Return the verdict in a word or two, of a cell of column `accepted` or of a Verdict."""
    names = {1.0: stored("confirmed"), 0.0: stored("contradicted")}
    return names.get(number(accepted), stored("not confirmed"))


@dataclass(frozen=True)
class _Counts:
    """What was counted for one call; NaN where unknown. `work`: bytes (or sectors of accesses)."""

    work: float
    latency: bool
    reads: bool
    dram: float
    dram_read: float
    l2: float
    l1: float
    shared: float
    flops: float
    needed_flops: float
    l1_hit_pct: float
    idle_dram: float


class _Unknown(Exception):
    """A counter that a rule needs was not collected."""


def confirm(row: Mapping[str, Any], key: RoofKey, idle: float = 0.0) -> Verdict:
    """Judge one row of table `bench` as a candidate for `key`.

    `idle` is what DRAM moves a second for nobody, in B/s (see idle_traffic).
    """
    if key.level_or_pipe == "host":
        return Verdict(None, stored("counters of the GPU do not see the host"))
    if key.kind == "memcpy":
        return Verdict(None, stored("ncu counts kernels, and cudaMemcpy is none"))
    calls, launches = number(row.get("counted_calls")), number(row.get("counted_launches"))
    if not launches > 0 or not calls > 0:
        return Verdict(None, stored("the counting run profiled no launch of it"))
    counts = _counts(row, key, calls, idle)
    try:
        return _RULES[key.level_or_pipe](counts)
    except _Unknown as missing:
        return Verdict(None, stored("{missing} is not known of it", missing=missing))
    except KeyError:
        return Verdict(
            None, stored("there is no rule for {level_or_pipe}", level_or_pipe=key.level_or_pipe)
        )


def idle_traffic(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return what DRAM reads a second beside the work, in B/s; 0 where nothing tells.

    A chase lasts for milliseconds and touches little, so that what DRAM reads meanwhile for nobody
    (up to 4.5 kB a millisecond on an H200: the driver, the counters themselves) is a large part of
    what is counted. Chases in shared memory and L1 show it: their data never leave the SM.
    """
    quiet = [r for r in rows if str(r.get("roof")) in ("shared latency", "l1 latency")]
    rates = [_dram_reads(r) / s for r in quiet if (s := number(r.get("counted_s"))) > 0]
    return max((rate for rate in rates if rate > 0), default=0.0)


def _dram_reads(row: Mapping[str, Any]) -> float:
    """Return what DRAM read, where only the sum with writes is known that.

    A chase writes nothing. What DRAM writes meanwhile are lines that an earlier kernel left in L2:
    786 of 1011 kB in a chase of 37 ms (H200, ncu 2025.3.1).
    """
    read = number(row.get("dram_read_bytes"))
    return number(row.get("dram_bytes")) if math.isnan(read) else read


def _counts(row: Mapping[str, Any], key: RoofKey, calls: float, idle: float) -> _Counts:
    latency = key.kind == "latency"
    work = number(row.get("accesses")) * SECTOR if latency else number(row.get("bytes"))
    took = number(row.get("counted_s"))
    return _Counts(
        work=work,
        latency=latency,
        reads=key.kind in ("read", "latency"),
        dram=(_dram_reads(row) if latency else number(row.get("dram_bytes"))) / calls,
        dram_read=number(row.get("dram_read_bytes")) / calls,
        l2=number(row.get("l2_bytes")) / calls,
        l1=number(row.get("l1_bytes")) / calls,
        shared=number(row.get("shared_memory_bytes")) / calls,
        flops=number(row.get("counted_flops")) / calls,
        needed_flops=number(row.get("flops")),
        l1_hit_pct=number(row.get("l1_hit_pct")),
        idle_dram=0.0 if math.isnan(took) else idle * took / calls,
    )


def _dram(counts: _Counts) -> Verdict:
    if counts.latency:
        reached = _known(counts.dram_read, "DRAM read traffic") / _known(counts.work, "accesses")
        words = stored("DRAM read {reached:.3f} sectors an access", reached=reached)
        return _verdict(reached >= 1 - MOVED, words, stored("at least {moved:g}", moved=1 - MOVED))
    moved = _known(counts.dram, "DRAM traffic") / _known(counts.work, "bytes of the work")
    words = stored("DRAM moved {moved:.3f} times the bytes of the work", moved=moved)
    return _verdict(abs(moved - 1) <= MOVED, words, stored("within {moved:.0%}", moved=MOVED))


def _l2(counts: _Counts) -> Verdict:
    l2 = _known(counts.l2, "L2 traffic")
    reached = l2 / _known(counts.work, "bytes of the work")
    dram, l2_traffic = _known(counts.dram, "DRAM traffic"), _traffic(counts, l2, "L2 traffic")
    measured = stored("DRAM {dram:.2%} of that", dram=dram / l2_traffic)
    if counts.latency:
        # The L2's hit rate tells less: it is over all units, 54 % in a chase that misses each time.
        dram = max(0.0, dram - counts.idle_dram)
        l2_traffic *= DRAM_ACCESS / SECTOR
        measured = stored("DRAM served {dram:.2%} of them", dram=dram / l2_traffic)
    # L1 merges loads of a line that is on its way already: what it serves so is a leak, too (0.3 to
    # 0.98 of the bytes came to L2 where blocks of an SM read the same, H200, ncu 2025.3.1).
    minimum = 1 - LEAK
    checks = [
        (
            _enough(reached, counts, minimum),
            stored("L2 moved {reached}", reached=_times(reached, counts)),
            stored("{minimum:g} to {moved:g}", minimum=minimum, moved=1 + MOVED),
        ),
        (dram <= LEAK * l2_traffic, measured, stored("at most {leak:.0%}", leak=LEAK)),
    ]
    if counts.reads and not math.isnan(counts.l1_hit_pct):
        words = stored("L1 hits {l1_hit_pct:.1f} %", l1_hit_pct=counts.l1_hit_pct)
        checks.append(
            (
                counts.l1_hit_pct <= L1_HITS_PCT,
                words,
                stored("at most {l1_hits_pct:g} %", l1_hits_pct=L1_HITS_PCT),
            )
        )
    return _all(checks)


def _l1(counts: _Counts) -> Verdict:
    l1 = _known(counts.l1, "L1 traffic")
    reached = l1 / _known(counts.work, "bytes of the work")
    moved = (
        _enough(reached, counts),
        stored("L1 moved {reached}", reached=_times(reached, counts)),
        _wanted(counts),
    )
    if counts.latency and not math.isnan(counts.l1_hit_pct):
        hits = counts.l1_hit_pct >= L1_CHASE_HITS_PCT
        words = stored("{l1_hit_pct:.1f} % hit it", l1_hit_pct=counts.l1_hit_pct)
        return _all(
            [
                moved,
                (
                    hits,
                    words,
                    stored("at least {l1_chase_hits_pct:g} %", l1_chase_hits_pct=L1_CHASE_HITS_PCT),
                ),
            ]
        )
    leak = _known(counts.l2, "L2 traffic") / _traffic(counts, l1, "L1 traffic")
    return _all(
        [
            moved,
            (
                leak <= LEAK,
                stored("L2 {leak:.2%} of that", leak=leak),
                stored("at most {leak:.0%}", leak=LEAK),
            ),
        ]
    )


def _shared(counts: _Counts) -> Verdict:
    # A 4 B access of one thread counts as 4 B here, not as a sector.
    work = counts.work * (4.0 / SECTOR) if counts.latency else counts.work
    shared = _known(counts.shared, "shared memory traffic")
    reached = shared / _known(work, "bytes of the work")
    words = stored("shared memory moved {reached}", reached=_times(reached, counts))
    checks = [(_enough(reached, counts), words, _wanted(counts))]
    levels = {"L1": counts.l1, "L2": counts.l2, "DRAM": counts.dram}
    for level, moved in levels.items():
        traffic = _traffic(counts, shared, "shared memory traffic")
        leak = _known(moved, f"{level} traffic") / traffic
        checks.append(
            (
                leak <= LEAK,
                stored("{level} {leak:.2%} of that", level=level, leak=leak),
                stored("at most {leak:.0%}", leak=LEAK),
            )
        )
    return _all(checks)


def _vector(counts: _Counts) -> Verdict:
    done = _known(counts.flops, "FLOPs") / _known(counts.needed_flops, "FLOPs of the work")
    words = stored("{done:.3f} times the FLOPs of the work were counted", done=done)
    return _verdict(abs(done - 1) <= FLOPS, words, stored("within {flops:.0%}", flops=FLOPS))


def _tensor(counts: _Counts) -> Verdict:
    done = _known(counts.flops, "FLOPs") / _known(counts.needed_flops, "FLOPs of the work")
    words = stored("{done:.3f} times 2MNK were counted", done=done)
    fits = 1 - ROUNDING <= done <= 1 + PADDING
    return _verdict(fits, words, stored("1 to {padding:g}, for tiles pad", padding=1 + PADDING))


_RULES: dict[str, Callable[[_Counts], Verdict]] = {
    "dram": _dram,
    "l2": _l2,
    "l1": _l1,
    "shared": _shared,
    "tensor": _tensor,
    **dict.fromkeys(ARITHMETIC, _vector),
}


def _traffic(counts: _Counts, moved: float, what: str) -> float:
    """Return what a leak is a part of: the traffic of the level, for a chase a sector an access.

    One thread of a chase asks for 4 or 8 bytes, beside which the kernel's own code would count.
    """
    return _positive(_known(counts.work, "accesses") if counts.latency else moved, what)


def _enough(reached: float, counts: _Counts, minimum: float = 1 - MOVED) -> bool:
    # One access of a chase may ask for more than its own sector; bytes of a stream are known.
    return reached >= minimum and (counts.latency or reached <= 1 + MOVED)


def _times(reached: float, counts: _Counts) -> str:
    if counts.latency:
        return stored("{reached:.3f} times the accesses of the work", reached=reached)
    return stored("{reached:.3f} times the bytes of the work", reached=reached)


def _wanted(counts: _Counts) -> str:
    return (
        stored("at least {moved:g}", moved=1 - MOVED)
        if counts.latency
        else stored("within {moved:.0%}", moved=MOVED)
    )


def _all(checks: list[tuple[bool, str, str]]) -> Verdict:
    failed = [
        stored("{words}, wanted {wanted}", words=words, wanted=wanted)
        for passed, words, wanted in checks
        if not passed
    ]
    if failed:
        return Verdict(False, joined("; ", failed))
    return Verdict(True, joined(", ", (words for _, words, _ in checks)))


def _verdict(passed: bool, words: str, wanted: str) -> Verdict:
    return _all([(passed, words, wanted)])


def _known(value: float, what: str) -> float:
    if math.isnan(value):
        raise _Unknown(what)
    return value


def _positive(value: float, what: str) -> float:
    if not value > 0:
        raise _Unknown(what)
    return value
