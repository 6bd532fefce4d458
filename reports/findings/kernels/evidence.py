"""The numbers behind a finding about a kernel, and how sure they make it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.parsers.build.bound import LATENCY_BELOW, WHERE
from nsight_prof.parsers.build.roofline import PIPES, Ceiling
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.analysis.evidence import source, threshold
from nsight_prof.reports.analysis.profiled import is_mixed
from nsight_prof.reports.findings.kernels.causes import Judged
from nsight_prof.reports.findings.kernels.fact import cell
from nsight_prof.reports.findings.kernels.measure import ARITHMETIC, SLOWER
from nsight_prof.reports.findings.kernels.roofs import RESOURCES, unit_of
from nsight_prof.reports.page import Document, Evidence, Number, Ref, Text
from nsight_prof.reports.page.values import Confidence, Word

CONFIDENCE: tuple[Confidence, ...] = ("high", "medium", "low")
SAME = 0.001
"""Relative difference up to which a share is the quotient of a rate and a roof."""
NCU, NSYS = Text("ncu"), Text("nsys")
SOURCES = {
    "measured": Text("measured roof, at the clock of the kernel"),
    "counters": Text("ncu: peak of the counter, at the clock of the kernel"),
    "datasheet": Text("data sheet, at the clock of the kernel"),
}
BUSY = (
    ("dram_pct", Text("DRAM busy")),
    ("l2_pct", Text("L2 busy")),
    ("l1_pct", Text("L1 busy")),
    ("tensor_pct", Text("Tensor busy")),
)
NO_MATRIX_WORK = Text("Tensor pipe (no matrix work) busy")
ESTIMATED = Text("the counters show the cause, but not the gain")
UNEXPLAINED = Text("the counters do not show what it waits for")
ISSUED = Text("issue slots busy, of all cycles")
"""What bounds a kernel is the time of the GPU, also that in which an SM has no warp; the rules of
stalls look at the active cycles alone (`ISSUE_ACTIVE` of facts.py)."""


def evidence(judged: Judged) -> tuple[Evidence, ...]:
    """Return the numbers behind the bound, its cause, the gain and its end, and other causes."""
    found = [*_bound(judged), *_busy(judged.row)]
    if judged.cause is not None:
        found += [*judged.cause.evidence, *judged.cause.price]
    found += [judged.end] if judged.end is not None else []
    found += [*_shortest(judged), *(row for row, _ in judged.doubts)]
    found += [row for cause in judged.secondary for row in cause.evidence]
    # A number that two rules ask for, or that a gain is made of too, stands there once.
    compared = {row.label for row in found if row.threshold}
    rows: dict[tuple[Text, Text | None], Evidence] = {}
    for row in found:
        if row.threshold or row.label not in compared:
            rows.setdefault((row.label, row.threshold), row)
    return tuple(rows.values())


def confidence(group: Sequence[Judged]) -> tuple[Confidence, Text | None]:
    """Return how sure a finding is, less so by each doubt and as its rule allows, and why."""
    lead = group[0]
    doubts = max(map(_doubts, group), key=len)
    if lead.cause is not None:
        doubts += CONFIDENCE.index(lead.cause.rule.confidence) * [ESTIMATED]
    elif lead.bound == "latency":
        doubts += 2 * [UNEXPLAINED]
    return CONFIDENCE[min(len(doubts), 2)], next(iter(doubts), None)


def _cells(row: Row, names: Sequence[str]) -> tuple[Ref, ...]:
    return tuple(cell(name, text(row["kernel_id"])) for name in names)


def _bound(judged: Judged) -> list[Evidence]:
    """Return how much of the decisive roof was reached, and that roof."""
    row, resource = judged.row, judged.resource
    columns = ("counters.roof_share", *WHERE.get(resource, ()))
    busy = judged.bound == "issue" or unit_of(row) is not None
    # The share of a roof is worked out from the others.
    refs = (*_cells(row, columns), *(() if busy else (Ref("roofs", ""),)))
    reached = Number(100 * number(row["roof_share"]), "%", refs)
    label = RESOURCES.get(resource)
    if resource == "issue":
        active = number(row.get("sm_active_pct"))
        mean = _busy_row(
            Text("cycles in which the mean SM has a warp"), active, "sm_active_pct", row
        )
        return [_compared(judged, ISSUED, reached), *mean]
    if (unit := unit_of(row)) is not None:
        return [_compared(judged, Text("{unit}: busy, of all cycles", unit=unit), reached)]
    if judged.bound == "latency":
        name = Text("highest share of a roof")
        if label is not None:
            name = Text("highest share of a roof ({resource})", resource=label)
    else:
        name = Text("{resource}: share of its roof", resource=RESOURCES[resource])
    return [_compared(judged, name, reached), *rates(judged)]


def rates(judged: Judged) -> list[Evidence]:
    """Return the rate that was reached and the roof: their quotient is the share of it.

    Nothing where it is not: the share is then that of busy cycles (see bound.shares).
    """
    row, roof, resource = judged.row, judged.roof, judged.resource
    if roof is None:
        return []
    columns: tuple[str, ...] = (f"{resource}_throughput",)
    rate = number(row.get(columns[0]))
    if resource in PIPES:
        columns = (f"flops_{resource}", "duration_ns")
        rate = number(row[columns[0]]) / (number(row["duration_ns"]) / 1e9)
    limit = roof.at_clock(number(row["sm_clock_hz"]))
    if not math.isclose(rate / limit, number(row["roof_share"]), rel_tol=SAME):
        return []
    label, scaled = RESOURCES[resource], not math.isclose(limit, roof.value, rel_tol=SAME)
    at_roof = Ref("roofs", roof_key(roof), "value")
    # A roof at another clock or mix is worked out from the one that the table shows.
    refs = (at_roof, *(_cells(row, ("sm_clock_hz",)) if scaled else ()))
    if roof.written > 0:
        refs = (at_roof, *_cells(row, ("dram_write_bytes",)))
    return [
        Evidence(Text("{resource}: reached", resource=label),
                 Number(rate, roof.unit, _cells(row, columns)), source=NCU),
        Evidence(Text("{resource}: roof", resource=label), Number(limit, roof.unit, refs),
                 source=_origin(roof, row, scaled)),
    ]  # fmt: skip


def roof_key(roof: Ceiling) -> str:
    """Return the row of a roof in table `roofs`: its name and source, "Tensor bf16 measured"."""
    name = {"tensor": f"Tensor {roof.dtype}".strip()}.get(roof.key, roof.key.upper())
    return f"{name} {roof.source}"


def _origin(roof: Ceiling, row: Row, scaled: bool) -> Text:
    """Return where a roof is from, and how it was scaled to the clock or mix of the kernel."""
    at_roof = (Ref("roofs", roof_key(roof), "value"),)
    if roof.written > 0:
        share = Number(roof.written, "fraction")
        if not roof.ends:
            return Text("measured roofs, for {part} of the bytes written", part=share)
        (less, low), (more, high) = roof.ends
        return Text(
            "1 / ((1 - x) / {low} + x / {high}) with x = {part} / {whole}: {written} of the bytes "
            "are written, and {less} and {more} were when these roofs were measured ({file})",
            low=Number(low, roof.unit, at_roof if less == 0 else ()).at_digits(3),
            high=Number(high, roof.unit).at_digits(3),
            part=Number(roof.written - less, "fraction").at_digits(3),
            whole=Number(more - less, "fraction").at_digits(3),
            written=share, less=Number(less, "fraction"), more=Number(more, "fraction"),
            file=Document("measured_roofs.csv", "tables/measured_roofs.csv"),
        )  # fmt: skip
    if not scaled:
        return SOURCES[roof.source]
    return Text(
        "{source}: {value} x {clock} / {roof_clock}",
        source=SOURCES[roof.source],
        value=Number(roof.value, roof.unit, at_roof).at_digits(3),
        clock=Number(number(row["sm_clock_hz"]), "Hz").at_digits(3),
        roof_clock=Number(roof.clock_hz, "Hz").at_digits(3),
    )


def _compared(judged: Judged, label: Text, reached: Number) -> Evidence:
    rule = Text("Nsight Compute rule SOLBottleneck")
    if judged.bound == "issue":
        rule = Text("{source}", source=Word(source("issue_slots")))
    at = Number(LATENCY_BELOW, "fraction")
    waits = judged.bound == "latency"
    limit = Text("under {limit}", limit=at) if waits else Text("{limit} or more", limit=at)
    if is_mixed(judged.row):
        label = Text("{number} (of one launch)", number=label)
    return Evidence(label, reached, limit, rule)


def _busy(row: Row) -> list[Evidence]:
    idle = number(row["flops_tensor"]) == 0
    return [
        found
        for column, label in BUSY
        for found in _busy_row(
            NO_MATRIX_WORK if idle and column == "tensor_pct" else label,
            number(row[column]), column, row,
        )
    ]  # fmt: skip


def _busy_row(label: Text, value: float, column: str, row: Row) -> list[Evidence]:
    found = Evidence(label, Number(value, "%", _cells(row, (column,))), source=NCU)
    return [] if math.isnan(value) else [found]


def _shortest(judged: Judged) -> list[Evidence]:
    """Return what the gain rests on where it ends at the shortest launch of the trace."""
    floor, limit = judged.floor, Text("no launch gets shorter")
    if judged.fixed is not None:
        floor, limit = judged.fixed, Text("stays in each launch, whatever it does")
    if floor is None:
        return []
    mean = Number(number(judged.row["mean_ns"]), "ns", _cells(judged.row, ("kernels.mean_ns",)))
    return [Evidence(Text("mean launch"), mean, source=NSYS), floor.evidence(limit)]


def _clock_fell(row: Row) -> bool:
    """Tell whether arithmetic took longer in the trace: the profiled launch was of a better clock.

    A mixed kernel's mean is that of other work, and doubt enough.
    """
    slower = number(row["mean_ns"]) / number(row["duration_ns"]) - 1
    return text(row["bound_by"]) in ARITHMETIC and slower > SLOWER


def _doubts(judged: Judged) -> list[Text]:
    row = judged.row
    differs = abs(number(row["duration_difference"])) > threshold("duration_difference")
    # The shortest launch is that of another kernel: a limit of the gain, no forecast of this one.
    floored = judged.floor is not None or judged.fixed is not None
    unsure = (differs or _clock_fell(row), row["loose_join"], math.isnan(number(row["share"])))
    return [
        # One launch of many kinds of work tells of no other: that alone is doubt enough.
        *2 * is_mixed(row) * [Text("launches differ in their work, and one was counted")],
        *bool(judged.doubts) * [Text("some counters fit another limit as well")],
        *sum(map(bool, unsure)) * [Text("the counted launch may not stand for those of the trace")],
        *floored * [ESTIMATED],
    ]
