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
    return {1.0: "confirmed", 0.0: "contradicted"}.get(number(accepted), "not confirmed")


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
        return Verdict(None, "counters of the GPU do not see the host")
    if key.kind == "memcpy":
        return Verdict(None, "ncu counts kernels, and cudaMemcpy is none")
    calls, launches = number(row.get("counted_calls")), number(row.get("counted_launches"))
    if not launches > 0 or not calls > 0:
        return Verdict(None, "the counting run profiled no launch of it")
    counts = _counts(row, key, calls, idle)
    try:
        return _RULES[key.level_or_pipe](counts)
    except _Unknown as missing:
        return Verdict(None, f"{missing} is not known of it")
    except KeyError:
        return Verdict(None, f"there is no rule for {key.level_or_pipe}")


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
        words = f"DRAM read {reached:.3f} sectors an access"
        return _verdict(reached >= 1 - MOVED, words, f"at least {1 - MOVED:g}")
    moved = _known(counts.dram, "DRAM traffic") / _known(counts.work, "bytes of the work")
    words = f"DRAM moved {moved:.3f} times the bytes of the work"
    return _verdict(abs(moved - 1) <= MOVED, words, f"within {MOVED:.0%}")


def _l2(counts: _Counts) -> Verdict:
    l2 = _known(counts.l2, "L2 traffic")
    reached = l2 / _known(counts.work, "bytes of the work")
    dram, l2_traffic = _known(counts.dram, "DRAM traffic"), _traffic(counts, l2, "L2 traffic")
    measured = f"DRAM {dram / l2_traffic:.2%} of that"
    if counts.latency:
        # The L2's hit rate tells less: it is over all units, 54 % in a chase that misses each time.
        dram = max(0.0, dram - counts.idle_dram)
        l2_traffic *= DRAM_ACCESS / SECTOR
        measured = f"DRAM served {dram / l2_traffic:.2%} of them"
    # L1 merges loads of a line that is on its way already: what it serves so is a leak, too (0.3 to
    # 0.98 of the bytes came to L2 where blocks of an SM read the same, H200, ncu 2025.3.1).
    minimum = 1 - LEAK
    checks = [
        (
            _enough(reached, counts, minimum),
            f"L2 moved {_times(reached, counts)}",
            f"{minimum:g} to {1 + MOVED:g}",
        ),
        (dram <= LEAK * l2_traffic, measured, f"at most {LEAK:.0%}"),
    ]
    if counts.reads and not math.isnan(counts.l1_hit_pct):
        words = f"L1 hits {counts.l1_hit_pct:.1f} %"
        checks.append((counts.l1_hit_pct <= L1_HITS_PCT, words, f"at most {L1_HITS_PCT:g} %"))
    return _all(checks)


def _l1(counts: _Counts) -> Verdict:
    l1 = _known(counts.l1, "L1 traffic")
    reached = l1 / _known(counts.work, "bytes of the work")
    moved = (_enough(reached, counts), f"L1 moved {_times(reached, counts)}", _wanted(counts))
    if counts.latency and not math.isnan(counts.l1_hit_pct):
        hits = counts.l1_hit_pct >= L1_CHASE_HITS_PCT
        words = f"{counts.l1_hit_pct:.1f} % hit it"
        return _all([moved, (hits, words, f"at least {L1_CHASE_HITS_PCT:g} %")])
    leak = _known(counts.l2, "L2 traffic") / _traffic(counts, l1, "L1 traffic")
    return _all([moved, (leak <= LEAK, f"L2 {leak:.2%} of that", f"at most {LEAK:.0%}")])


def _shared(counts: _Counts) -> Verdict:
    # A 4 B access of one thread counts as 4 B here, not as a sector.
    work = counts.work * (4.0 / SECTOR) if counts.latency else counts.work
    shared = _known(counts.shared, "shared memory traffic")
    reached = shared / _known(work, "bytes of the work")
    words = f"shared memory moved {_times(reached, counts)}"
    checks = [(_enough(reached, counts), words, _wanted(counts))]
    levels = {"L1": counts.l1, "L2": counts.l2, "DRAM": counts.dram}
    for level, moved in levels.items():
        traffic = _traffic(counts, shared, "shared memory traffic")
        leak = _known(moved, f"{level} traffic") / traffic
        checks.append((leak <= LEAK, f"{level} {leak:.2%} of that", f"at most {LEAK:.0%}"))
    return _all(checks)


def _vector(counts: _Counts) -> Verdict:
    done = _known(counts.flops, "FLOPs") / _known(counts.needed_flops, "FLOPs of the work")
    words = f"{done:.3f} times the FLOPs of the work were counted"
    return _verdict(abs(done - 1) <= FLOPS, words, f"within {FLOPS:.0%}")


def _tensor(counts: _Counts) -> Verdict:
    done = _known(counts.flops, "FLOPs") / _known(counts.needed_flops, "FLOPs of the work")
    words = f"{done:.3f} times 2MNK were counted"
    fits = 1 - ROUNDING <= done <= 1 + PADDING
    return _verdict(fits, words, f"1 to {1 + PADDING:g}, for tiles pad")


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
    return f"{reached:.3f} times the {'accesses' if counts.latency else 'bytes'} of the work"


def _wanted(counts: _Counts) -> str:
    return f"at least {1 - MOVED:g}" if counts.latency else f"within {MOVED:.0%}"


def _all(checks: list[tuple[bool, str, str]]) -> Verdict:
    failed = [f"{words}, wanted {wanted}" for passed, words, wanted in checks if not passed]
    if failed:
        return Verdict(False, "; ".join(failed))
    return Verdict(True, ", ".join(words for _, words, _ in checks))


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
