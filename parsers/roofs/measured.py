"""Chooses the roofs of the GPU from measured cases: of each the best candidate to be believed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nsight_prof.parsers.bench.records import ARITHMETIC, MEASURED, RoofKey, roof_key
from nsight_prof.parsers.bench.stats import median, spread
from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.roofs.confirm import Verdict, confirm, idle_traffic
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.parsers.tables import check, tables

STREAMS = ("read", "write", "copy", "memcpy", "scale", "triad")
RATES = ("burst", "steady", "fma")
LEVELS = ("dram", "l2", "l1", "shared")
PIPES = ("tensor", *ARITHMETIC)
LAUNCHES = ("launch", "launch-graph")
OWN_CLOCK = ("dram", "l2", "host")
"""What runs at a clock of its own, so that a rate a clock of the SMs says nothing: the L2 of an
H200 ran at 1.71 GHz beside SMs at 1.98, and at 1.70 when a power limit held those at 1.61."""
BEYOND = 1.05
"""A rate above this multiple of what the chip can do a clock is an error, not a roof."""


@dataclass(frozen=True)
class MeasuredRoofs:
    """Table `measured_roofs`, and (roof, reason) of each that was tried and not measured."""

    roofs: pd.DataFrame
    gaps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Candidate:
    row: Mapping[str, Any]
    value: float
    verdict: Verdict

    @property
    def rank(self) -> tuple[int, float]:
        """Confirmed before unknown before contradicted; then the better value."""
        trust = {True: 2, None: 1, False: 0}[self.verdict.accepted]
        return trust, self.value


def choose_roofs(
    bench: pd.DataFrame,
    bench_runs: pd.DataFrame,
    sm_count: float,
    limits: pd.DataFrame | None = None,
) -> MeasuredRoofs:
    """Return the best accepted candidate of each roof that cases of `bench` name.

    A candidate that counters confirm stands before one that they cannot judge, which is used and
    says so; contradicted ones are kept as rows that are not accepted, where there is no other.
    Zeros draw less power than real data: a case on zeros counts only where there is no other.
    `limits` is table `roofs` of counters and datasheet: a rate beyond them is contradicted.
    """
    by_roof: dict[RoofKey, list[Row]] = {}
    every = records(bench)
    idle = idle_traffic(every)
    for row in every:
        key = roof_key(str(row["roof"]) if pd.notna(row["roof"]) else "")
        if key is not None:
            by_roof.setdefault(key, []).append(row)
    rows: list[Row] = []
    gaps = []
    ceilings = _Limits(limits, sm_count)
    for key, cases in by_roof.items():
        tried = [row for row in _of_real_data(cases) if row["status"] == MEASURED]
        candidates = [c for row in tried if (c := _candidate(row, key, ceilings, idle))]
        if not candidates:
            gaps.append((str(key), _why_none(cases)))
            continue
        best = max(candidates, key=lambda candidate: candidate.rank)
        found = _rows(key, best, len(candidates), bench_runs, sm_count)
        rows += [row | {"l2_clock_hz": ceilings.l2_clock_hz(key)} for row in found]
    frame = pd.DataFrame(rows, columns=[c.name for c in tables()["measured_roofs"]])
    frame["is_ceiling"] = _ceilings(frame)
    return MeasuredRoofs(check(frame, "measured_roofs"), tuple(gaps))


def _of_real_data(cases: Sequence[Row]) -> Sequence[Row]:
    return [row for row in cases if row["data"] != "zeros"] or cases


def _why_none(cases: Sequence[Row]) -> str:
    reasons = dict.fromkeys(str(row["reason"]) for row in cases if row["status"] != MEASURED)
    return joined("; ", reasons) or stored("no case has the bytes, FLOPs or accesses for it")


def _candidate(row: Row, key: RoofKey, limits: _Limits, idle: float) -> _Candidate | None:
    value = _value(row, key, row["median_s"])
    if not value > 0:
        return None
    verdict = limits.judge(row, key, value) or confirm(row, key, idle)
    return _Candidate(row, -value if _is_time(key) else value, verdict)


def _is_time(key: RoofKey) -> bool:
    return key.kind in ("latency", *LAUNCHES)


def _value(row: Mapping[str, Any], key: RoofKey, seconds: float) -> float:
    """Return B/s, FLOP/s or s from the time of one call; NaN where the work is unknown."""
    if key.kind == "latency":
        return seconds / number(row["accesses"])
    if key.kind in LAUNCHES:
        launches = number(row["launches"])
        return seconds / (1.0 if math.isnan(launches) else launches)
    return number(row["flops" if key.level_or_pipe in PIPES else "bytes"]) / seconds


def _rows(
    key: RoofKey, best: _Candidate, candidates: int, runs: pd.DataFrame, sm_count: float
) -> list[Row]:
    row = best.row
    # A rate is lowest where the time is longest.
    ends = [_value(row, key, number(row[end])) for end in ("ci_low_s", "ci_high_s")]
    value, clock = abs(best.value), number(row["clock_hz"])
    of_sm_clock = key.level_or_pipe not in OWN_CLOCK and not _is_time(key)
    found = {
        "level_or_pipe": key.level_or_pipe,
        "dtype": key.dtype,
        "kind": key.kind,
        "value": value,
        "unit": _unit(key),
        "per_clock_sm": value / clock / sm_count if of_sm_clock else math.nan,
        "clock_hz": clock,
        "low": min(ends),
        "high": max(ends),
        "repeatability": _repeatability(str(row["case_id"]), runs),
        "repeats": row["repeats"],
        "processes": row["processes"],
        "samples": row["n"],
        "case_id": row["case_id"],
        "candidates": candidates,
        "duration": row["duration"],
        "accepted": best.verdict.accepted,
        "reason": best.verdict.reason,
        "is_ceiling": False,
    }
    if key.kind != "latency" or math.isnan(clock):
        return [found]
    cycles = {name: found[name] * clock for name in ("value", "low", "high")}
    return [found, found | cycles | {"unit": "cycles"}]


def _unit(key: RoofKey) -> str:
    if _is_time(key):
        return "s"
    return "FLOP/s" if key.level_or_pipe in PIPES else "B/s"


def _repeatability(case_id: str, runs: pd.DataFrame) -> float:
    runs_of_case = runs[runs["case_id"].eq(case_id)]
    by_repeat = [median(list(group)) for _, group in runs_of_case.groupby("repeat")["median_s"]]
    return spread(by_repeat)


def _ceilings(frame: pd.DataFrame) -> list[bool]:
    """Mark for each level the largest stream, for each pipe and dtype the largest rate."""
    chosen: dict[tuple[str, str], tuple[tuple[bool, float], int]] = {}
    for index, row in enumerate(records(frame)):
        kinds = {**dict.fromkeys(LEVELS, STREAMS), **dict.fromkeys(PIPES, RATES)}
        if row["kind"] not in kinds.get(row["level_or_pipe"], ()) or row["accepted"] is False:
            continue
        key = (row["level_or_pipe"], row["dtype"])
        rank = (row["accepted"] is True, float(row["value"]))
        if key not in chosen or rank > chosen[key][0]:
            chosen[key] = (rank, index)
    places = {index for _, index in chosen.values()}
    return [index in places for index in range(len(frame))]


class _Limits:
    """What the chip can do a clock and SM, by counters and datasheet: no measurement beats it."""

    def __init__(self, roofs: pd.DataFrame | None, sm_count: float) -> None:
        self._sm_count = sm_count
        self._rows = [] if roofs is None else records(roofs)

    def judge(self, row: Mapping[str, Any], key: RoofKey, value: float) -> Verdict | None:
        """Return a contradiction, or None where the value is possible or nothing can be told."""
        # No case measures the clock of the L2 while it runs.
        if _is_time(key) or key.level_or_pipe in ("host", "l2"):
            return None
        limit = self._limit(key, number(row["clock_hz"]))
        if not value > limit * BEYOND:
            return None
        unit = _unit(key)
        words = stored(
            "{value:.4g} {unit} is {share:.0%} of what the chip can do ({limit:.4g})",
            value=value,
            unit=unit,
            share=value / limit,
            limit=limit,
        )
        return Verdict(False, words)

    def l2_clock_hz(self, key: RoofKey) -> float:
        """Return the clock of the L2 in the counting run, for roofs that go by it; else NaN."""
        if key.level_or_pipe != "l2" or _is_time(key):
            return math.nan
        clocks = [r["clock_hz"] for r in self._rows if r["level_or_pipe"] == "l2"]
        return max(map(number, clocks), default=math.nan)

    def _limit(self, key: RoofKey, clock_hz: float) -> float:
        found = []
        for row in self._rows:
            if (row["level_or_pipe"], str(row["dtype"] or "")) != (key.level_or_pipe, key.dtype):
                continue
            value, clock = float(row["value"]), number(row["clock_hz"])
            if key.level_or_pipe == "dram":
                found.append(value)
            elif clock > 0 and clock_hz > 0:
                found.append(value / clock * clock_hz)
        return max(found, default=math.nan)
