"""Section of the target memory_patterns: DRAM as programs see it."""

from __future__ import annotations

from nsight_prof.reports.bench.cases import cases, measured
from nsight_prof.reports.bench.memory_patterns_access import gather_view, stride_view
from nsight_prof.reports.bench.memory_patterns_mix import mix_view
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.load import Run

TARGET = "memory_patterns"

MIX_METHOD = (
    "A mix reads and writes several GiB in one launch whose blocks either only read or only write "
    "(or alternate within a warp), in runs along the order in which blocks start. Switches are "
    "changes from writing to reading in that order, one for each run of the rarer direction.",
    "Five models of the time are fitted by weighted least squares and compared by AICc. Intervals "
    "are the wider of the regression's, with Student's t, and a bootstrap over the cases. Two "
    "launches after each other are not in the fit, since they pay for a launch.",
)
ACCESS_METHOD = (
    "Useful bytes are those that the program asked for; what DRAM moved for them was counted in a "
    "run of its own under ncu.",
)


def section(run: Run) -> Section | None:
    """Return the section; None where no case of the target has a time."""
    rows = [row for row in measured(cases(run, TARGET)) if row["params"].get("pattern")]
    mix, stride, gather = mix_view(rows), stride_view(rows), gather_view(rows)
    views = [view for view in (mix, stride, gather) if view is not None]
    if not views:
        return None
    method = (*(MIX_METHOD if mix else ()), *(ACCESS_METHOD if stride or gather else ()))
    return Section(
        key=TARGET,
        title="Memory as programs see it",
        intro="The bandwidth of DRAM is quoted for one direction and in order. These cases mix "
        "reads with writes, skip sectors, and gather from random places.",
        findings=tuple(finding for view in views for finding in view.findings),
        tables=tuple(table for view in views for table in view.tables),
        figures=tuple(figure for view in views for figure in view.figures),
        method=method,
        numbers={
            **({"mix": mix.numbers} if mix else {}),
            **({"strides": stride.numbers} if stride else {}),
            **({"gathers": gather.numbers} if gather else {}),
        },
    )
