"""The line at which double precision begins, by the types that operators take and return."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.kinds import NO_LIBRARY
from nsight_prof.reports.analysis.lines import location
from nsight_prof.reports.findings.kernels.instructions import DOUBLE_PRECISION
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.values.calls import dtypes, elements, operator_calls
from nsight_prof.reports.page import Text, Verbatim

DOUBLE, FLOATS = "float64", ("float32", "bfloat16", "float16")
SMALL = 64
"""Results of so much less than the largest in double precision make nothing else double."""


def with_beginning(run: Run, finding: Finding) -> Finding:
    """Return a finding about double precision with the first operator that makes numbers double:
    what is computed from its result is to be mended there.
    """
    if finding.rule != DOUBLE_PRECISION.key or run.operator_values.empty:
        return finding
    kernels = run.kernels[run.kernels["kernel_id"].isin(finding.kernel_ids)]
    if kernels["library"].fillna("").isin(NO_LIBRARY).all():
        return finding
    rows = operator_calls(run)
    rows = rows[rows["direction"].eq("forward") & rows["result_dtypes"].map(dtypes).map(_has)]
    size = rows["result_shapes"].map(elements)
    rows = rows[size >= size.max() / SMALL]
    entering = rows[rows["input_dtypes"].map(dtypes).map(_mixes)]
    first = records((entering if len(entering) else rows).head(1))
    if not first:
        return finding
    taken = list(dict.fromkeys(dtypes(first[0]["input_dtypes"])))
    verdict = Text(
        "Double precision begins at {place}: {operator} {takes} and returns float64. {verdict}",
        place=Verbatim(location(text(first[0]["file"]), int(first[0]["line"]))),
        operator=Verbatim(text(first[0]["operator"])),
        takes=Text("takes {types}", types=[Verbatim(each) for each in taken])
        if taken
        else Text("takes numbers"),
        verdict=finding.verdict,
    )
    return replace(finding, verdict=verdict)


def _has(types: list[str]) -> bool:
    return DOUBLE in types


def _mixes(types: list[str]) -> bool:
    """Tell whether operands are of single precision, or of none, so that the result need not be
    double.
    """
    return any(each in FLOATS for each in types) or DOUBLE not in types
