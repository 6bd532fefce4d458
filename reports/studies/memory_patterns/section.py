"""The section of the target memory_patterns."""

from __future__ import annotations

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import cases, measured
from nsight_prof.reports.page import Bullets, Section, Text
from nsight_prof.reports.studies.memory_patterns.access import gathers, strides
from nsight_prof.reports.studies.memory_patterns.mix import mixes

KEY = "memory_patterns"

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
    mix, stride, gather = mixes(rows), strides(rows), gathers(rows)
    sections = [
        section_of_kind for section_of_kind in (mix, stride, gather) if section_of_kind is not None
    ]
    if not sections:
        return None
    findings = [finding for section_of_kind in sections for finding in section_of_kind.findings]
    figures = [figure for section_of_kind in sections for figure in section_of_kind.figures]
    tables = [table for section_of_kind in sections for table in section_of_kind.tables]
    method = (*(OF_MIXES if mix else ()), *(OF_ACCESSES if stride or gather else ()))
    return Section(
        KEY,
        Text("Memory as programs see it"),
        (
            Text(
                "The bandwidth of DRAM is quoted for one direction and in order. These cases mix "
                "reads with writes, skip sectors, and gather from random places."
            ),
            *findings,
            *figures,
            *tables,
            Bullets(Text("How it was measured"), method),
        ),
        numbers={key: section_of_kind.numbers for key, section_of_kind in zip(
            ("mix", "strides", "gathers"), (mix, stride, gather), strict=True) if section_of_kind},
    )  # fmt: skip
