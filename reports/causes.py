"""Turns the counters of one kernel into causes of what it misses, by NVIDIA's published rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reports.cells import Row, number, text
from reports.evidence import Evidence, say, source, threshold, wording
from reports.formats import count, counted, listed, percent, share, significant

MATRIX = ("gemm", "conv", "attention")
"""Categories whose work is matrix multiplication, which belongs on the Tensor Cores."""
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "drain", "mio_throttle")
"""Stall reasons of warps that wait for loads, for stores, or for the queues to either."""


@dataclass(frozen=True)
class Cause:
    """One reason: `text` is a clause, `gain` NVIDIA's estimate of kernel time saved (or NaN)."""

    key: str
    text: str
    gain: float
    evidence: Evidence
    limiter: str = ""


def causes(row: Row, sms: float) -> list[Cause]:
    """Return the causes that the evidence supports, the most telling first.

    `row` holds the columns of `kernels` and `counters` of one kernel, and `stall_share` (the share
    of the top stall); `sms` is the number of SMs, NaN where unknown.
    """
    rules: tuple[Callable[[Row, float], Cause | None], ...] = (
        _tensor_idle,
        _small_grid,
        _sectors,
        _bank_conflicts,
        _few_blocks,
        _tail,
        _few_warps,
        _stall,
        _achieved_occupancy,
        _theoretical_occupancy,
    )
    found: dict[str, Cause] = {}
    for rule in rules:
        if (cause := rule(row, sms)) is not None:
            found.setdefault(cause.key, cause)
    return list(found.values())


def blocks(grid: str) -> float:
    """Return the number of blocks of a grid "XxYxZ"; NaN where it is no grid."""
    try:
        return float(math.prod(int(part) for part in grid.split("x")))
    except ValueError:
        return math.nan


def _tensor_idle(row: Row, sms: float) -> Cause | None:
    active = number(row["tensor_pct"])
    if row["category"] not in MATRIX or not active < threshold("tensor_idle"):
        return None
    seen = Evidence("Tensor pipe active", active, "%", "under 1 %", source("tensor_idle"))
    return Cause("tensor_idle", say("causes", "tensor_idle"), math.nan, seen)


def _small_grid(row: Row, sms: float) -> Cause | None:
    grid = blocks(text(row["grid"]))
    if not (sms - grid) / sms >= threshold("small_grid"):
        return None
    words = say("causes", "small_grid", blocks=counted(grid, "block"), sms=count(sms))
    seen = Evidence("blocks", grid, "", f"fewer than {sms:.0f} SMs", source("small_grid"))
    return Cause("small_grid", words, (sms - grid) / sms, seen)


def _tail(row: Row, sms: float) -> Cause | None:
    waves = number(row["waves"])
    # A persistent kernel starts about one block an SM and walks over the tiles itself: its waves
    # say nothing about a tail.
    if not waves >= 1 or blocks(text(row["grid"])) <= 2 * sms:
        return None
    # Blocks of equal length take whole waves. The rule of Nsight Compute gives the whole last wave,
    # 1 / (1 + full waves), however full it is: half of the time for 1.9 waves.
    gain = 1 - waves / math.ceil(waves)
    if gain < threshold("tail"):
        return None
    words = say("causes", "tail", gain=share(gain), waves=significant(waves))
    return Cause(
        "tail", words, gain, Evidence("waves", waves, "", "no whole number", source("tail"))
    )


def _few_blocks(row: Row, sms: float) -> Cause | None:
    """Tell a grid that reaches all SMs but fills few of their places; no persistent kernel."""
    waves, missing = number(row["waves"]), _missing_warps(row)
    if not waves < threshold("few_blocks") or missing is None:
        return None
    words = say("causes", "few_blocks", blocks=counted(blocks(text(row["grid"])), "block"),
                waves=share(waves))  # fmt: skip
    return Cause("few_blocks", words, missing, _occupancy_evidence(row))


def _few_warps(row: Row, sms: float) -> Cause | None:
    """Tell a lack of warps before a stall reason only where really few are there."""
    found = _achieved_occupancy(row, sms)
    few = number(row["achieved_occupancy_pct"]) < threshold("few_warps")
    return found if found is not None and few else None


def _achieved_occupancy(row: Row, sms: float) -> Cause | None:
    missing = _missing_warps(row)
    if missing is None or _few_blocks(row, sms) is not None:
        return None
    words = say(
        "causes",
        "achieved_occupancy",
        achieved=percent(row["achieved_occupancy_pct"]),
        theoretical=percent(row["theoretical_occupancy_pct"]),
    )
    return Cause("achieved_occupancy", words, missing, _occupancy_evidence(row))


def _missing_warps(row: Row) -> float | None:
    """Return the part of the warps that the launch allows and that are not there, where large."""
    achieved = number(row["achieved_occupancy_pct"])
    limit = number(row["theoretical_occupancy_pct"])
    large = limit - achieved > threshold("achieved_occupancy")
    return (limit - achieved) / limit if large else None


def _occupancy_evidence(row: Row) -> Evidence:
    limit = number(row["theoretical_occupancy_pct"])
    return Evidence(
        "achieved occupancy",
        number(row["achieved_occupancy_pct"]),
        "%",
        f"theoretical {limit:.3g} %",
        source("achieved_occupancy"),
    )


def _theoretical_occupancy(row: Row, sms: float) -> Cause | None:
    limit, limiter = number(row["theoretical_occupancy_pct"]), text(row["occupancy_limiter"])
    if not limit < threshold("theoretical_occupancy") or not limiter:
        return None
    limiter = listed(limiter.split(", "))
    words = say("causes", "theoretical_occupancy", limiter=limiter, theoretical=percent(limit))
    seen = Evidence(
        "theoretical occupancy", limit, "%", "under 80 %", source("theoretical_occupancy")
    )
    return Cause("theoretical_occupancy", words, 1 - limit / 100, seen, limiter)


def _sectors(row: Row, sms: float) -> Cause | None:
    """Tell scattered accesses where the kernel waits for memory or a level is busy with them.

    The gain: sectors pass at the rate at which they do, only the useful ones; DRAM still moves its
    bytes, and no faster than its peak.
    """
    used = number(row["global_sector_efficiency_pct"])
    if not used < threshold("sectors") or not (_waits_for_memory(row) or _level_rules(row)):
        return None
    needed = max(number(row["dram_pct"]), used) / 100  # NaN: no estimate without DRAM
    seen = Evidence(
        "useful bytes of the sectors that L1 and L2 exchange",
        used,
        "%",
        "under 80 %",
        source("sectors"),
    )
    words = say("causes", "sectors", value=percent(used), bytes=significant(32 * used / 100, 2))
    return Cause("sectors", words, 1 - needed, seen)


def _waits_for_memory(row: Row) -> bool:
    waits = text(row["top_stall"]) in MEMORY_STALLS
    return waits and number(row["stall_share"]) > threshold("stall")


def _level_rules(row: Row) -> bool:
    """Tell whether L1 or L2 is what the kernel uses most, or DRAM is busy with the sectors."""
    if number(row["dram_pct"]) >= threshold("level_busy"):
        return True
    used = {key: number(row[f"{key}_pct"]) for key in ("dram", "l2", "l1", "tensor")}
    known = {key: value for key, value in used.items() if not math.isnan(value)}
    top = max(known, key=known.__getitem__, default="")
    return top in ("l1", "l2") and known[top] >= threshold("level_busy")


def _bank_conflicts(row: Row, sms: float) -> Cause | None:
    used = number(row["shared_wavefront_efficiency_pct"])
    if not used < threshold("bank_conflicts") or not _busy(row, "l1_pct"):
        return None
    words = say("causes", "bank_conflicts", value=percent(used))
    seen = Evidence("shared wavefront use", used, "%", "under 90 %", source("bank_conflicts"))
    return Cause("bank_conflicts", words, math.nan, seen)


def _busy(row: Row, *columns: str) -> bool:
    """Tell whether a level does enough for its access pattern to matter."""
    return any(number(row[column]) >= threshold("level_busy") for column in columns)


def _stall(row: Row, sms: float) -> Cause | None:
    reason, part = text(row["top_stall"]), number(row["stall_share"])
    full = number(row["issue_active_pct"]) >= threshold("issue_full")
    if not reason or full or not part > threshold("stall"):
        return None
    meaning = stall_meaning(reason)
    seen = Evidence(f"stall {reason}", 100 * part, "%", "over 30 %", source("stall"))
    return Cause("stall", say("causes", "stall", stall=meaning), part, seen)


def stall_meaning(reason: str) -> str:
    """Return what warps of a stall reason wait for, in plain words."""
    return str(wording()["stalls"].get(reason, f"({reason.replace('_', ' ')})"))
