"""Roofline arithmetic: ceilings of a GPU, what a kernel can attain under them, and how far it is.

The model is Williams, Waterman, Patterson (2009): attainable FLOP/s = min(peak, intensity x
bandwidth), drawn once for each memory level (hierarchical roofline, Yang et al. 2020).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text

LEVELS = ("dram", "l2", "l1")
PIPES = ("tensor", "fp32", "fp16", "fp64")
SOURCES = ("measured", "counters", "datasheet")
"""Sources of a roof, the most trusted first: what was reached on this GPU, what its counters say
at the clock of the run, what the vendor promises."""


def roof_label(key: str, dtype: str = "") -> str:
    """Return the name of a level or pipe: "DRAM", "FP32", "Tensor bf16"."""
    return {"tensor": f"Tensor {dtype}".strip(), "shared": "Shared memory"}.get(key, key.upper())


@dataclass(frozen=True)
class Ceiling:
    """One roof: `value` in B/s for a memory level, in FLOP/s for a pipe (`dtype` set).

    `written` is the part of the bytes (0 to 1) that are writes, for which the value holds; it is
    worked out between the two measured mixes `ends`: (part written, B/s).
    """

    key: str
    dtype: str
    value: float
    unit: str
    source: str
    clock_hz: float
    detail: str
    written: float = 0.0
    ends: tuple[tuple[float, float], ...] = ()

    def at_clock(self, clock_hz: float) -> float:
        """Return the value at another clock of the same domain.

        What a pipe or L1 does is per cycle, so its roof scales with the clock of the kernel, also a
        measured one; DRAM and L2 (clocks of their own) and unknown clocks stay as they are.
        """
        return scaled(self.key, self.value, self.clock_hz, clock_hz)


def scaled(key: str, value: float, own_clock: float | None, clock_hz: float | None) -> float:
    """Return the value of roof `key`, measured at `own_clock`, at the clock `clock_hz` (Hz)."""
    known = (clock_hz or 0.0) > 0 and (own_clock or 0.0) > 0
    if key in ("dram", "l2") or not known:
        return value
    return value * (clock_hz or 0.0) / (own_clock or 1.0)


MIXES = {"read": 0.0, "triad": 1 / 3, "copy": 1 / 2, "scale": 1 / 2, "write": 1.0}
"""Part of the bytes that the probes of DRAM write."""

WRITES = 0.01
"""Part of the bytes that are written from which on they cost turns that show."""


@dataclass(frozen=True)
class Ceilings:
    """The roof to use for each memory level and for each (pipe, dtype).

    `mixes` holds the measured bandwidth of DRAM in B/s by the part of its bytes that are written:
    each turn between reads and writes costs time.
    """

    memory: dict[str, Ceiling]
    compute: dict[tuple[str, str], Ceiling]
    mixes: tuple[tuple[float, float], ...] = ()

    def level(self, level: str, written: float) -> Ceiling | None:
        """Return the roof of a level for traffic of which a part (0 to 1, NaN unknown) is written.

        Between two measured mixes the time of a byte goes from one to the other in a line.
        """
        roof = self.memory.get(level)
        known = roof is not None and roof.source == "measured" and len(self.mixes) > 1
        if roof is None or level != "dram" or not known or not written >= WRITES:
            return roof
        shares, values = zip(*self.mixes, strict=True)
        value = 1 / float(np.interp(written, shares, [1 / value for value in values]))
        upper = min(max(1, bisect_left(shares, written)), len(shares) - 1)
        ends = self.mixes[upper - 1 : upper + 1] if value <= roof.value else ()
        return replace(roof, value=min(value, roof.value), written=written, ends=ends)

    def pipe(self, pipe: str, dtype: str) -> Ceiling | None:
        """Return the roof of a pipe for an input type; None where this GPU's is not known.

        The Tensor Core roof depends on the type and is never guessed from another one.
        """
        if pipe != "tensor":
            return self.compute.get((pipe, pipe)) or self.compute.get((pipe, ""))
        return self.compute.get((pipe, dtype))


def written(row: Row) -> float:
    """Return the part (0 to 1) of a kernel's DRAM bytes that it writes; NaN where unknown."""
    moved = number(row.get("dram_bytes"))
    return number(row.get("dram_write_bytes")) / moved if moved > 0 else math.nan


def _mixes(measured: pd.DataFrame) -> tuple[tuple[float, float], ...]:
    best: dict[float, float] = {}
    for row in records(measured):
        share = MIXES.get(text(row["kind"]))
        of_dram = text(row["level_or_pipe"]) == "dram" and text(row["accepted"]) == "True"
        if of_dram and share is not None:
            best[share] = max(best.get(share, 0.0), number(row["value"]))
    return tuple(sorted(best.items()))


def ceilings(roofs: pd.DataFrame, measured: pd.DataFrame | None = None) -> Ceilings:
    """Choose from table `roofs` one ceiling per level and per (pipe, dtype), by SOURCES.

    `measured` is table `measured_roofs`, for DRAM read and written at once.
    """
    rank = {source: index for index, source in enumerate(SOURCES)}
    usable = roofs[roofs["value"] > 0]
    memory: dict[str, Ceiling] = {}
    compute: dict[tuple[str, str], Ceiling] = {}
    order = usable["source"].map(rank).fillna(len(rank))
    for row in records(usable.assign(order=order).sort_values("order", kind="stable")):
        ceiling = ceiling_of(row)
        if ceiling.key in LEVELS:
            memory.setdefault(ceiling.key, ceiling)
        elif ceiling.key in PIPES:
            compute.setdefault((ceiling.key, ceiling.dtype), ceiling)
    return Ceilings(memory, compute, () if measured is None else _mixes(measured))


def ceiling_of(row: Row) -> Ceiling:
    """Return a row of table `roofs` as a ceiling."""
    return Ceiling(
        text(row["level_or_pipe"]),
        text(row["dtype"]),
        number(row["value"]),
        text(row["unit"]),
        text(row["source"]),
        number(row["clock_hz"]),
        text(row["detail"]),
    )


def attainable(intensity: float, bandwidth: float, peak: float) -> float:
    """Return the FLOP/s that the roofs allow at `intensity` (FLOP/B); NaN where one is unknown."""
    if math.isnan(intensity) or math.isnan(bandwidth) or math.isnan(peak):
        return math.nan
    return min(peak, intensity * bandwidth)


def distance(throughput: float, intensity: float, bandwidth: float, peak: float) -> float:
    """Return reached over attainable FLOP/s, 0 to 1; NaN where a number is unknown."""
    limit = attainable(intensity, bandwidth, peak)
    return throughput / limit if limit > 0 else math.nan
