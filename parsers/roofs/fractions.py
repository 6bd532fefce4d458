"""Sets measured cases against measured roofs: which roof limits each, and how near it comes.

Attainable FLOP/s = min(peak, intensity x bandwidth) (Williams, Waterman, Patterson 2009), with the
bytes and FLOPs of the work itself; in time: the longer of bytes / bandwidth and FLOPs / peak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.roofs.measured import LEVELS, PIPES
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.parsers.tables import check

BEYOND = 1.05
"""A case this much faster than its roof is not limited by it: no fraction is told."""

MOSTLY = 0.5
"""A hot case that moves less than this part of its bytes at DRAM has the others in L2."""


@dataclass(frozen=True)
class Fractions:
    """Table `bench` with its roof columns, and (case_id, reason) of those without a fraction."""

    bench: pd.DataFrame
    gaps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Limit:
    name: str
    value: float
    unit: str
    seconds: float


def add_fractions(
    bench: pd.DataFrame, measured: pd.DataFrame, source: str, l2_bytes: float = math.nan
) -> Fractions:
    """Fill roof_used, roof_value, roof_unit, roof_fraction and roof_source of each timed case.

    `measured` is table `measured_roofs`; its ceilings are used at the clock they were measured at.
    `source` says where they come from. A case's level of memory is the one that it is meant to
    load, DRAM where it is meant to load a pipe; a hot one that has its data in L2 (of `l2_bytes`)
    is set against that. Without measured roofs all stays empty.
    """
    ceilings = _ceilings(measured)
    if not ceilings:
        return Fractions(check(bench, "bench"), ())
    filled, gaps = [], []
    for row in records(bench):
        limit, reason = _limit(row, ceilings, l2_bytes)
        if limit is not None:
            row |= {
                "roof_used": limit.name,
                "roof_value": limit.value,
                "roof_unit": limit.unit,
                "roof_fraction": limit.seconds / row["median_s"],
                "roof_source": source,
            }
        elif reason:
            gaps.append((str(row["case_id"]), reason))
        filled.append(row)
    return Fractions(check(pd.DataFrame(filled, columns=list(bench.columns)), "bench"), tuple(gaps))


def _ceilings(measured: pd.DataFrame) -> dict[tuple[str, str], float]:
    rows = measured[measured["is_ceiling"].fillna(False)]
    keys = zip(rows["level_or_pipe"], rows["dtype"].fillna(""), strict=True)
    return {(str(k), str(d)): float(v) for (k, d), v in zip(keys, rows["value"], strict=True)}


def _limit(
    row: Mapping[str, Any], ceilings: Mapping[tuple[str, str], float], l2_bytes: float
) -> tuple[_Limit | None, str]:
    """Return the roof that limits a case, or why none can be told ("" where none is wanted)."""
    seconds = number(row["median_s"])
    flops, moved = number(row["flops"]), number(row["bytes"])
    level, dtype = str(row["level"] or ""), str(row["dtype"] or "")
    if math.isnan(seconds) or level not in (*LEVELS, *PIPES):
        return None, ""
    pipe = level if level in PIPES else ""
    if not (moved > 0 or (pipe and flops > 0)):
        return None, ""
    compute = _of_pipe(pipe, dtype, flops, ceilings) if pipe and flops > 0 else None
    if pipe and flops > 0 and compute is None:
        return None, stored("no measured roof of {roof}", roof=f"{pipe} {dtype}".rstrip())
    memory = "dram" if pipe else level
    if memory == "dram" and str(row["mode"]) == "hot" and _from_l2(row, ceilings, l2_bytes):
        memory = "l2"
    limit = _longer(compute, _of_level(memory, moved, ceilings))
    if limit is None:
        return None, stored("no measured roof of {roof}", roof=memory)
    if limit.seconds > seconds * BEYOND:
        times = limit.seconds / seconds
        words = stored(
            "it is {times:.2f} times as fast as the roof of {name} allows",
            times=times,
            name=limit.name,
        )
        zeros = stored("zeros draw less power") if str(row["data"]) == "zeros" else ""
        return None, joined("; ", [words, zeros])
    return limit, ""


def _from_l2(
    row: Mapping[str, Any], ceilings: Mapping[tuple[str, str], float], l2_bytes: float
) -> bool:
    """Tell whether a hot case has its data in L2: by counters, by its size, or by its speed."""
    measured, calls = number(row["dram_bytes"]), number(row["counted_calls"])
    required = number(row["bytes"])
    if not math.isnan(measured) and calls > 0:
        return measured / calls < required * MOSTLY
    dram = _of_level("dram", required, ceilings)
    faster = dram is not None and dram.seconds > number(row["median_s"]) * BEYOND
    # The L2 of GH100 is two partitions, which may each hold a copy of a line.
    return faster or required <= l2_bytes / 2


def _of_pipe(
    pipe: str, dtype: str, flops: float, ceilings: Mapping[tuple[str, str], float]
) -> _Limit | None:
    key = (pipe, dtype if pipe == "tensor" else pipe)
    if key not in ceilings:
        return None
    name = f"tensor {dtype}" if pipe == "tensor" else pipe
    return _Limit(name, ceilings[key], "FLOP/s", flops / ceilings[key])


def _of_level(level: str, moved: float, ceilings: Mapping[tuple[str, str], float]) -> _Limit | None:
    if (level, "") not in ceilings or not moved > 0:
        return None
    return _Limit(level, ceilings[level, ""], "B/s", moved / ceilings[level, ""])


def _longer(a: _Limit | None, b: _Limit | None) -> _Limit | None:
    if a is None or b is None:
        return a or b
    return max(a, b, key=lambda limit: limit.seconds)
