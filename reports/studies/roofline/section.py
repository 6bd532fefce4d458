"""The section of the target roofline.

Its numbers are those of table `measured_roofs` (the best case of each roof that counters do not
contradict) and of the sweeps around them in table `bench`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.parsers.cells import known, number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.roofs import MeasuredRoof, find, measured_roofs, searches
from nsight_prof.reports.cases.rows import cases, measured
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Fact, Json, Section, Text, arranged
from nsight_prof.reports.studies.roofline.charts import charts, ridge_points, tables
from nsight_prof.reports.studies.roofline.findings import Measured, findings

SENTENCES = Sentences("roofline")

INTRO = SENTENCES.text("intro")
METHOD = SENTENCES.texts("method")
FACTS = (
    (Text("Reading from its own memory"), ("dram", "read", "")),
    (Text("Writing to its own memory"), ("dram", "write", "")),
    (Text("Reading what is still in its cache"), ("l2", "read", "")),
    (Text("Matrix arithmetic, 16 bits (bf16), lasting load"), ("tensor", "steady", "bf16")),
    (Text("Matrix arithmetic, 8 bits (fp8), lasting load"), ("tensor", "steady", "fp8")),
    (Text("Ordinary arithmetic, 32 bits (fp32)"), ("fp32", "fma", "")),
    (Text("Copying from the host"), ("host", "h2d-pinned", "")),
    (Text("Launching one kernel"), ("host", "launch", "")),
)
NUMBERS = (
    *("dtype", "kind", "value", "unit", "low", "high", "per_clock_sm", "clock_hz"),
    *("of_counters", "of_datasheet", "repeatability"),
)
"""What metrics.json has of a roof under the same name."""


def section(run: Run) -> Section | None:
    """Return the section of the measured roofs; None where no case gave one."""
    rows, every = cases(run, "roofline"), measured_roofs(run)
    roofs = [roof for roof in every if roof.accepted is not False]
    if not rows or not roofs:
        return None
    rows, l2_bytes = measured(rows), _l2_bytes(run)
    tried, ridges = searches(run, roofs), ridge_points(run)
    return Section(
        "roofline",
        Text("Roofs of this GPU"),
        arranged(
            [INTRO],
            findings(Measured(rows, every, tried, ridges, l2_bytes)),
            charts(rows, roofs, l2_bytes),
            tables(every, tried, ridges),
            METHOD,
        ),
        numbers={roof.name: _numbers(roof) for roof in roofs if roof.unit != "cycles"},
        facts=_facts(roofs),
    )


def _facts(roofs: Sequence[MeasuredRoof]) -> tuple[Fact, ...]:
    pairs = ((label, find(roofs, *key)) for label, key in FACTS)
    return tuple(
        Fact(label, roof.number.at_digits(3))
        for label, roof in pairs
        if roof is not None and known(roof.value) is not None
    )


def _l2_bytes(run: Run) -> float:
    """Return the L2 cache of the GPU in bytes; NaN where it is not known."""
    return next((size for cell in run.gpus["l2_bytes"] if (size := number(cell)) > 0), math.nan)


def _numbers(roof: MeasuredRoof) -> dict[str, Json]:
    return {
        "level_or_pipe": roof.key,
        **{name: getattr(roof, name) for name in NUMBERS},
        "confirmed": roof.accepted,
        "is_ceiling": roof.is_ceiling,
        "case_id": roof.case.get("case_id"),
    }
