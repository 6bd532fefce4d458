"""Turns the counters of one kernel into causes of what it misses, by NVIDIA's published rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reports.cells import Row, number, text
from reports.evidence import Evidence, say, source, threshold, wording
from reports.formats import count, percent, share, significant

MATRIX = ("gemm", "conv", "attention")
"""Categories whose work is matrix multiplication, which belongs on the Tensor Cores."""


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
        _issue_full,
        _small_grid,
        _tail,
        _achieved_occupancy,
        _sectors,
        _bank_conflicts,
        _stall,
        _theoretical_occupancy,
    )
    return [cause for rule in rules if (cause := rule(row, sms)) is not None]


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


def _issue_full(row: Row, sms: float) -> Cause | None:
    active = number(row["issue_active_pct"])
    if not active >= threshold("issue_full"):
        return None
    seen = Evidence("issue slots busy", active, "%", "80 % or more", source("issue_full"))
    return Cause(
        "issue_full", say("causes", "issue_full", value=percent(active)), 1 - active / 100, seen
    )


def _small_grid(row: Row, sms: float) -> Cause | None:
    grid = blocks(text(row["grid"]))
    if not (sms - grid) / sms >= threshold("small_grid"):
        return None
    started = "1 block" if grid == 1 else f"{count(grid)} blocks"
    words = say("causes", "small_grid", blocks=started, sms=count(sms))
    seen = Evidence("blocks", grid, "", f"fewer than {sms:.0f} SMs", source("small_grid"))
    return Cause("small_grid", words, (sms - grid) / sms, seen)


def _tail(row: Row, sms: float) -> Cause | None:
    waves = number(row["waves"])
    # A persistent kernel starts about one block an SM and walks over the tiles itself: its waves
    # say nothing about a tail.
    if not waves >= 1 or blocks(text(row["grid"])) <= 2 * sms:
        return None
    gain = 1 / (1 + math.floor(waves))
    if waves == math.floor(waves) or gain < threshold("tail"):
        return None
    words = say("causes", "tail", gain=share(gain), waves=significant(waves))
    return Cause("tail", words, gain, Evidence("waves", waves, "", "under 5", source("tail")))


def _achieved_occupancy(row: Row, sms: float) -> Cause | None:
    achieved, limit = (
        number(row["achieved_occupancy_pct"]),
        number(row["theoretical_occupancy_pct"]),
    )
    if not limit - achieved > threshold("achieved_occupancy"):
        return None
    words = say(
        "causes", "achieved_occupancy", achieved=percent(achieved), theoretical=percent(limit)
    )
    seen = Evidence(
        "achieved occupancy",
        achieved,
        "%",
        f"theoretical {limit:.3g} %",
        source("achieved_occupancy"),
    )
    return Cause("achieved_occupancy", words, (limit - achieved) / limit, seen)


def _theoretical_occupancy(row: Row, sms: float) -> Cause | None:
    limit, limiter = number(row["theoretical_occupancy_pct"]), text(row["occupancy_limiter"])
    if not limit < threshold("theoretical_occupancy") or not limiter:
        return None
    words = say("causes", "theoretical_occupancy", limiter=limiter, theoretical=percent(limit))
    seen = Evidence(
        "theoretical occupancy", limit, "%", "under 80 %", source("theoretical_occupancy")
    )
    return Cause("theoretical_occupancy", words, 1 - limit / 100, seen, limiter)


def _sectors(row: Row, sms: float) -> Cause | None:
    used = number(row["global_sector_efficiency_pct"])
    if not used < threshold("sectors") or not _busy(row, "dram_pct", "l2_pct"):
        return None
    seen = Evidence("bytes used of each sector", used, "%", "under 80 %", source("sectors"))
    return Cause("sectors", say("causes", "sectors", value=percent(used)), math.nan, seen)


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
