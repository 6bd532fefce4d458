"""Section of target roofline: what this GPU can do, and what a program loses that asks badly.

The numbers are those of table `measured_roofs` (the best case of each roof that counters do not
contradict) and of the sweeps around them in table `bench`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nsight_prof.parsers.cells import known, number
from nsight_prof.reports.bench.cases import cases, measured
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.bench.roofline_figures import figures
from nsight_prof.reports.bench.roofline_findings import findings
from nsight_prof.reports.bench.roofline_tables import tables
from nsight_prof.reports.bench.roofs import MeasuredRoof, find, measured_roofs, searches
from nsight_prof.reports.formats import byte_rate, flop_rate, seconds
from nsight_prof.reports.load import Run

INTRO = (
    "A roof is the most that one part of the GPU was made to do, by the best of several launch "
    "shapes, on random data. Each was measured in fresh processes, and holds only as far as the "
    "counters of the GPU confirm that the probe loaded that part and no other."
)


def section(run: Run) -> Section | None:
    """Return the section of the measured roofs; None where no case gave one."""
    rows = cases(run, "roofline")
    roofs = [roof for roof in measured_roofs(run) if roof.accepted is not False]
    if not rows or not roofs:
        return None
    l2_bytes = l2_of(run)
    found = searches(run, roofs)
    return Section(
        key="roofline",
        title="Roofs of this GPU",
        intro=INTRO,
        findings=findings(measured(rows), roofs, found, l2_bytes),
        tables=tables(run, measured_roofs(run), found),
        figures=figures(rows, roofs, found, l2_bytes),
        method=METHOD,
        numbers={roof.name: _numbers(roof) for roof in roofs if roof.unit != "cycles"},
        plain=_plain(roofs),
    )


METHOD = (
    "The value of a roof is the median of its best case; a case that the counters contradict is "
    "out, one that they confirm goes before one that they cannot judge.",
    "A ridge point is the peak of a pipe over the bandwidth of a level, both as measured "
    "(Williams, Waterman, Patterson 2009).",
    "Per clock and SM: the value over the SM clock of its own samples and the number of SMs, so "
    "that runs at different clocks can be compared.",
    "Burst: the first 20 ms after a pause, in which a power limit has not yet acted; chains of "
    "multiply-adds are timed without pauses. Steady: after 2 s of load.",
)


def l2_of(run: Run) -> float:
    """Return the L2 cache of the GPU in bytes; NaN where it is not known."""
    values = [number(value) for value in run.gpus["l2_bytes"]]
    return next((value for value in values if value > 0), math.nan)


def _numbers(roof: MeasuredRoof) -> Mapping[str, Any]:
    return {
        "level_or_pipe": roof.key,
        "dtype": roof.dtype,
        "kind": roof.kind,
        "value": roof.value,
        "unit": roof.unit,
        "low": roof.low,
        "high": roof.high,
        "per_clock_sm": roof.per_clock_sm,
        "clock_hz": roof.clock_hz,
        "of_counters": roof.of_counters,
        "of_datasheet": roof.of_datasheet,
        "repeatability": roof.repeatability,
        "confirmed": roof.accepted,
        "is_ceiling": roof.is_ceiling,
        "case_id": roof.case.get("case_id"),
    }


def _plain(roofs: list[MeasuredRoof]) -> tuple[tuple[str, str], ...]:
    """Return what the GPU can do, for a reader who does not know GPUs."""
    steady = {dtype: find(roofs, "tensor", "steady", dtype) for dtype in ("bf16", "fp8")}
    wanted = (
        ("Reading from its own memory", find(roofs, "dram", "read"), byte_rate),
        ("Writing to its own memory", find(roofs, "dram", "write"), byte_rate),
        ("Reading what is still in its cache", find(roofs, "l2", "read"), byte_rate),
        (
            "Matrix arithmetic, 16 bits (bf16), lasting load",
            steady["bf16"],
            flop_rate,
        ),
        (
            "Matrix arithmetic, 8 bits (fp8), lasting load",
            steady["fp8"],
            flop_rate,
        ),
        ("Ordinary arithmetic, 32 bits (fp32)", find(roofs, "fp32", "fma"), flop_rate),
        ("Copying from the host", find(roofs, "host", "h2d-pinned"), byte_rate),
        ("Starting one piece of work", find(roofs, "host", "launch"), seconds),
    )
    return tuple(
        (words, show(roof.value))
        for words, roof, show in wanted
        if roof is not None and known(roof.value) is not None
    )
