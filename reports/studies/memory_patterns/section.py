"""The section of the target memory_patterns."""

from __future__ import annotations

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import cases, measured
from nsight_prof.reports.page import Section, Text, arranged
from nsight_prof.reports.studies.memory_patterns.access import gathers, strides
from nsight_prof.reports.studies.memory_patterns.mix import mixes

KEY = "memory_patterns"

INTRO = Text(
    "The bandwidth of DRAM is quoted for one direction and in order. These cases mix reads with "
    "writes, skip sectors, and gather from random places."
)
OF_MIXES = (
    Text(
        "Each mix reads and writes several GiB in one launch. Its blocks only read or only write "
        "(or alternate within a warp), in runs along the order in which blocks start. A switch is "
        "a change from writing to reading in that order, one per run of the rarer direction."
    ),
    Text(
        "Five models of the time are fitted by weighted least squares and compared by AICc. "
        "Intervals are the wider of the regression's, with Student's t, and a bootstrap over the "
        "cases. Mixes in two launches are not in the fit, since they pay for a launch."
    ),
)
OF_ACCESSES = (
    Text(
        "Useful bytes are those that the program asked for; what DRAM moved for them was counted "
        "in a run of its own under ncu."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section; None where no case of the target has a time."""
    rows = [row for row in measured(cases(run, KEY)) if row["params"].get("pattern")]
    kinds = {"mix": mixes(rows), "strides": strides(rows), "gathers": gathers(rows)}
    outcomes = {key: outcome for key, outcome in kinds.items() if outcome is not None}
    if not outcomes:
        return None
    found = outcomes.values()
    method = OF_MIXES if "mix" in outcomes else ()
    if outcomes.keys() & {"strides", "gathers"}:
        method = (*method, *OF_ACCESSES)
    return Section(
        KEY,
        Text("Memory as programs see it"),
        arranged(
            [INTRO],
            (finding for outcome in found for finding in outcome.findings),
            (chart for outcome in found for chart in outcome.charts),
            (table for outcome in found for table in outcome.tables),
            method,
        ),
        numbers={key: outcome.numbers for key, outcome in outcomes.items()},
    )
