"""Lists the numbers behind a finding about a kernel, and weighs how sure they make it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.parsers.build.bound import LABELS, LATENCY_BELOW, WHERE
from nsight_prof.parsers.build.roofline import PIPES, Ceiling
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports import page
from nsight_prof.reports.evidence import Evidence, source, threshold
from nsight_prof.reports.findings.program.clock import ARITHMETIC, THROTTLING
from nsight_prof.reports.formats import clock, quantity
from nsight_prof.reports.kernel_judge import Judged, further
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.page.finding import Confidence
from nsight_prof.reports.profiled import is_mixed

CONFIDENCE: tuple[Confidence, ...] = ("high", "medium", "low")
SAME = 0.001
"""Relative difference up to which a share is the quotient of a rate and a roof."""
SOURCES = {
    "measured": "measured roof, at the clock of the kernel",
    "counters": "ncu: peak of the counter, at the clock of the kernel",
    "datasheet": "data sheet, at the clock of the kernel",
}
BUSY = (("dram_pct", "DRAM"), ("l2_pct", "L2"), ("l1_pct", "L1"), ("tensor_pct", "Tensor"))
SATURATED = f"{100 * LATENCY_BELOW:g} % or more"
ISSUED = "issue slots busy, of all cycles"
"""What bounds a kernel is the time of the GPU, also that in which an SM has no warp; the rules of
stalls look at the active cycles alone (`issue_active` of kernel_facts.yaml)."""


def evidence(judged: Judged) -> tuple[page.Evidence, ...]:
    """Return the numbers behind the bound, its cause, the gain and its end, and of other causes."""
    seen = [*_bound(judged), *_busy(judged.row)]
    if judged.why is not None:
        seen += [*judged.why.evidence, *judged.why.price]
    seen += [*_shortest(judged), *(one for one, _ in judged.against)]
    seen += [one for cause in further(judged) for one in cause.evidence]
    # A number that two rules ask for, or that a gain is made of too, is told once.
    held = {one.label for one in seen if one.threshold}
    rows: dict[tuple[Text, Text | None], Evidence] = {}
    for one in seen:
        if one.threshold or one.label not in held:
            rows.setdefault((one.label, one.threshold), one)
    key = text(judged.row["kernel_id"])
    return tuple(_of_kernel(one, judged.row, key) for one in rows.values())


def _of_kernel(row: page.Evidence, counters: Row, kernel_id: str) -> page.Evidence:
    """Return evidence whose columns are those of one kernel."""
    refs = row.value.refs if isinstance(row.value, Number) else ()
    own = tuple(
        replace(ref, row=ref.row or kernel_id)
        if ref.table in ("counters", "kernels", "stalls")
        else ref
        for ref in refs
    )
    if len(own) == 1 and isinstance(row.value, Number) and own[0].table in ("counters", "stalls"):
        column = "stall_share" if own[0].table == "stalls" else own[0].column
        reached = row.value.value or 0.0
        if number(counters.get(column)) not in (reached, reached / 100):
            own = (own[0], replace(own[0], column=""))  # worked out from that row
    value = replace(row.value, refs=own) if isinstance(row.value, Number) else row.value
    return page.Evidence(row.label, value, row.threshold, row.source)


def confidence(group: Sequence[Judged]) -> Confidence:
    """Return how sure a finding is: less so by each doubt, and as its rule allows."""
    lead = group[0]
    worst = max(_doubts(judged) for judged in group)
    if lead.why is not None:
        worst += [str(level) for level in CONFIDENCE].index(lead.why.rule.confidence)
    elif lead.bound == "latency":
        worst += 2
    return CONFIDENCE[min(worst, 2)]


def _bound(judged: Judged) -> list[Evidence]:
    """Return how much of the decisive roof was reached, and that roof."""
    resource = judged.resource
    reached = 100 * number(judged.row["roof_share"])
    where = ("counters.roof_share", *WHERE.get(resource, ()))
    if resource == "issue":
        issued = _held(judged, ISSUED, reached, where)
        active = number(judged.row.get("sm_active_pct"))
        return [
            issued,
            *_if_known("cycles in which the mean SM has a warp", active, "sm_active_pct"),
        ]
    label = LABELS.get(resource, "")
    if judged.bound == "latency":
        name = f"highest share of a roof ({label})" if label else "highest share of a roof"
    else:
        name = f"{label}: share of its roof"
    held = _held(judged, name, reached, (*where, "roofs.value"))
    return [held, *rates(judged)]


def rates(judged: Judged) -> list[Evidence]:
    """Return the rate that was reached and the roof: their quotient is the share of it.

    Nothing where it is not: the share is then that of busy cycles (see bound.shares).
    """
    row, roof, resource = judged.row, judged.roof, judged.resource
    label = LABELS.get(resource, "")
    if roof is None:
        return []
    where: tuple[str, ...] = (f"{resource}_throughput",)
    rate = number(row.get(where[0]))
    if resource in PIPES:
        where = (f"flops_{resource}", "duration_ns")
        rate = number(row[where[0]]) / (number(row["duration_ns"]) / 1e9)
    limit = roof.at_clock(number(row["sm_clock_hz"]))
    if not math.isclose(rate / limit, number(row["roof_share"]), rel_tol=SAME):
        return []
    return [
        Evidence(f"{label}: reached", rate, roof.unit, "", "ncu", where),
        Evidence(f"{label}: roof", limit, roof.unit, "", _at(roof, limit, row), ("roofs.value",)),
    ]


def _at(roof: Ceiling, limit: float, row: Row) -> str:
    """Say where a roof is from, and how it was scaled to the clock of the kernel."""
    if math.isclose(limit, roof.value, rel_tol=SAME):
        return SOURCES[roof.source]
    scaled = f"{clock(number(row['sm_clock_hz']))} / {clock(roof.clock_hz)}"
    return f"{SOURCES[roof.source]}: {quantity(roof.value, roof.unit)} x {scaled}"


def _held(judged: Judged, name: str, reached: float, where: tuple[str, ...]) -> Evidence:
    rule = "Nsight Compute rule SOLBottleneck"
    if judged.bound == "issue":
        rule = source("issue_slots")
    held = f"under {100 * LATENCY_BELOW:g} %" if judged.bound == "latency" else SATURATED
    return Evidence(_of_one(judged.row, name), reached, "%", held, rule, where)


def _of_one(row: Row, name: str) -> str:
    """Mark a number of the profiled launch where others of the kernel do different work."""
    return f"{name} (of one launch)" if is_mixed(row) else name


def _busy(row: Row) -> list[Evidence]:
    idle = {"Tensor": "Tensor pipe (no matrix work)"} if number(row["flops_tensor"]) == 0 else {}
    found = [
        _if_known(f"{idle.get(label, label)} busy", number(row[column]), column)
        for column, label in BUSY
    ]
    return [one for known in found for one in known]


def _if_known(name: str, value: float, column: str) -> list[Evidence]:
    known = not math.isnan(value)
    return [Evidence(name, value, "%", "", "ncu", (column,))] if known else []


def _shortest(judged: Judged) -> list[Evidence]:
    """Return what the gain rests on where it ends at the shortest launch of the trace."""
    if judged.floor is None:
        return []
    mean, floor = number(judged.row["mean_ns"]), judged.floor
    return [
        Evidence("mean launch", mean, "ns", "", "nsys", ("kernels.mean_ns",)),
        floor.evidence(Text("no launch gets shorter")),
    ]  # fmt: skip


def _clock_fell(row: Row) -> bool:
    """Tell whether arithmetic took longer in the trace: the profiled launch was of a better clock.

    A mixed kernel's mean is that of other work, and doubt enough.
    """
    slower = number(row["mean_ns"]) / number(row["duration_ns"]) - 1
    return text(row["bound_by"]) in ARITHMETIC and slower > THROTTLING.limit("step")


def _doubts(judged: Judged) -> int:
    row = judged.row
    differs = abs(number(row["duration_difference"])) > threshold("duration_difference")
    differs = differs or _clock_fell(row)
    # One launch of many kinds of work tells of no other: that alone is doubt enough.
    uneven = 2 * is_mixed(row)
    # The shortest launch is that of another kernel: a limit of the gain, no forecast of this one.
    floored = judged.floor is not None
    unknown = math.isnan(number(row["share"]))
    return uneven + sum((differs, row["loose_join"], unknown, floored, bool(judged.against)))
