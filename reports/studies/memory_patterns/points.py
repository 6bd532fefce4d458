"""Measured mixes of reads and writes as numbers, and what is read off them directly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nsight_prof.parsers.cells import Row, number
from nsight_prof.reports.cases.rows import ratio
from nsight_prof.reports.page import Finding, Json, Table
from nsight_prof.reports.page.charts import Chart
from nsight_prof.reports.page.formats import count, significant
from nsight_prof.reports.page.units import BINARY


@dataclass(frozen=True)
class Outcome:
    """Findings, tables and charts of one kind of pattern, and its numbers for metrics.json."""

    findings: Iterable[Finding]
    tables: Sequence[Table[Any]]
    charts: Sequence[Chart | None]
    numbers: Json


@dataclass(frozen=True)
class Point:
    """One measured mix: bytes of one call, switches, seconds with their 95 % interval.

    `alone` are the seconds of one call under ncu, which leaves nothing written in L2 before it;
    `written` are the bytes that DRAM had written by its end. Both are NaN without counters.
    """

    ratio: str
    way: str
    run_bytes: float
    switches: float
    reads: float
    writes: float
    seconds: float
    low: float
    high: float
    alone: float = math.nan
    written: float = math.nan

    @property
    def rate(self) -> float:
        """Bytes read and written a second."""
        return (self.reads + self.writes) / self.seconds

    @property
    def column(self) -> str:
        """Granularity as a table has it."""
        if self.way in ("runs", "warp"):
            words = binary_size(self.run_bytes)
            return f"{words} (warp)" if self.way == "warp" else words
        return {"whole": "all at once", "launches": "two launches"}.get(self.way, self.way)


def binary_size(size: float) -> str:
    """Return bytes with a binary prefix, as runs are defined: "128 KiB"."""
    step, unit = next((step for step in BINARY if size >= step[0]), BINARY[-1])
    value = size / step
    return f"{count(value) if value.is_integer() else significant(value)} {unit}"


def mix_points(rows: Sequence[Row]) -> list[Point]:
    """Return the measured mixes of the section's rows, finest granularity first."""
    points = []
    for row in rows:
        params = row["params"]
        if params.get("pattern") != "mix":
            continue
        points.append(
            Point(
                ratio=str(params.get("ratio", "")),
                way=str(params.get("way", "")),
                run_bytes=float(params.get("run_bytes", 0)),
                switches=float(params.get("switches", 0)),
                reads=float(params.get("read_bytes", 0)),
                writes=float(params.get("write_bytes", 0)),
                seconds=number(row["median_s"]),
                low=number(row["ci_low_s"]),
                high=number(row["ci_high_s"]),
                alone=ratio(row["counted_s"], row["counted_calls"]),
                written=ratio(row["dram_write_bytes"], row["counted_calls"]),
            )
        )
    order = ("alone", "warp", "runs", "whole", "launches")
    return sorted(points, key=lambda p: (order.index(p.way), p.run_bytes))


def ratios(points: Sequence[Point]) -> list[str]:
    """Return the ratios from most reads to most writes."""
    read_shares = {p.ratio: p.reads / (p.reads + p.writes) for p in points}
    return sorted(read_shares, key=lambda ratio: -read_shares[ratio])


def pure(points: Sequence[Point]) -> tuple[float, float]:
    """Return the bandwidths of reads alone and writes alone; NaN where not measured."""
    alone = [point for point in points if point.way == "alone"]
    read = next((p.rate for p in alone if p.writes == 0), math.nan)
    write = next((p.rate for p in alone if p.reads == 0), math.nan)
    return read, write


def unmixed(points: Sequence[Point], ratio: str) -> float:
    """Return the bandwidth of a ratio if each direction ran at its own, one after the other."""
    read, write = pure(points)
    point = next(p for p in points if p.ratio == ratio)
    return (point.reads + point.writes) / (point.reads / read + point.writes / write)


def extremes(points: Sequence[Point], ratio: str) -> tuple[Point, Point] | None:
    """Return the slowest and the fastest way of a ratio; None where it was not measured."""
    of_ratio = [p for p in points if p.ratio == ratio and p.way in ("warp", "runs", "whole")]
    if not of_ratio:
        return None
    return min(of_ratio, key=lambda p: p.rate), max(of_ratio, key=lambda p: p.rate)


def held_back(points: Sequence[Point]) -> float:
    """Return the bytes that a call wrote and DRAM had not written by its end; NaN if unknown.

    The median over the calls that write at least a GB, so that all of them fill what L2 can hold.
    """
    unwritten = [
        p.writes - p.written for p in points if p.writes >= 1e9 and math.isfinite(p.written)
    ]
    return median(unwritten) if unwritten else math.nan


def slower_in_turn(points: Sequence[Point]) -> float:
    """Return how much longer a call takes after another than alone, by the turn between them.

    Of the calls that read all and then write all, the largest; what reads alone differ by, events
    and the gap between kernels, is taken off. NaN without counters.
    """
    reads = [p.seconds / p.alone - 1 for p in points if p.writes == 0 and p.alone > 0]
    slowdowns = [p.seconds / p.alone - 1 for p in points if p.way == "whole" and p.alone > 0]
    return max(slowdowns) - reads[0] if reads and slowdowns else math.nan
