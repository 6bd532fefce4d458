"""How far steps of an engine are from the least time that they need, and what keeps them there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from nsight_prof.reports.page import Finding, Link, Number, Section, Text, Value, adding_up
from nsight_prof.reports.page.frame import Places
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.summary.choices import linked
from nsight_prof.reports.summary.models import FloorPart, Savings

STEPS = ("memory_bound_step", "compute_bound_step")
"""Findings that hold steps of an engine to their floors."""
IN_FLOOR = ("gemm", "gemv", "attention", "moe")
"""Kinds of kernels whose work is what a floor counts."""
ROW = "floor-part"


def over_floors(view: ReportView, saved: Savings) -> tuple[Text | None, tuple[FloorPart, ...]]:
    """Return how far steps are from their floors, what of that is reached, and why not the rest.

    And this time and its parts, which add up to it; None and nothing without such steps.
    """
    found = [(s, f) for s in view.sections for f in s.findings if f.rule in STEPS]
    kernels_ns, idle_ns, power_ns = (
        sum(_times(f, name) for _, f in found) for name in ("kernels", "idle", "power")
    )
    above_ns, whole_ns = kernels_ns + idle_ns + power_ns, view.run_time.whole_ns or math.inf
    if not found or not above_ns > 0:
        return None, ()
    remaining, pieces = above_ns, list[FloorPart]()
    for piece in _pieces(view, saved, idle_ns, power_ns):
        taken = min(remaining, max(0.0, piece.time_ns))
        remaining -= taken
        pieces += [replace(piece, time_ns=taken)] if taken else []
    times = [Number(piece.time_ns, "ns") for piece in pieces]
    above, *written = adding_up(Number(above_ns, "ns"), *times)
    words: list[Value] = [
        Text("{what} {time}", time=Link(time, f"{ROW}-{n}"), what=piece.what)
        for n, (piece, time) in enumerate(zip(pieces, written, strict=True), 2)
    ]
    sentence = Text(
        "Steps take {ratios} their floor, the least time that their bytes or their arithmetic "
        "allow. What lies above the floors is {above} ({part} of the run): {parts}.",
        ratios=[_ratio(section, finding) for section, finding in found],
        above=Link(above, f"{ROW}-1"),
        part=Number(above_ns / whole_ns, "fraction"),
        parts=words,
    )
    how = Text("sum over the steps of prefill and decode: time - floor")
    return sentence, (FloorPart(Text("time above the floors"), above_ns, how), *pieces)


def _ratio(section: Section, finding: Finding) -> Text:
    values, places = finding.verdict.values, Places(section)
    ratio, time = (linked(places, finding, values[name]) for name in ("ratio", "time"))
    step = values["step"]
    kind = step.values["kind"] if isinstance(step, Text) else step
    return Text("{ratio} ({kind}, {time})", ratio=ratio, kind=kind, time=time)


def _times(finding: Finding, name: str) -> float:
    """Return a time that each of the steps of a finding has above its floor, of all together."""
    steps, above = (item.values for item in finding.evidence[:2] if isinstance(item, Text))
    count, time = steps["n"], above.get(name)
    return (
        count * (time.value or 0.0) if isinstance(count, int) and isinstance(time, Number) else 0.0
    )


def _pieces(
    view: ReportView, saved: Savings, idle_ns: float, power_ns: float
) -> Iterator[FloorPart]:
    """Yield what the time above the floors may be, each up to what the ones before leave of it."""
    rest = Text("the rest")
    remaining = Text("time of these in the run - what to do about them saves at most")
    yield FloorPart(
        Text("saved by the actions below (at most)"), saved.total_ns, Text("in all, as above")
    )
    yield FloorPart(Text("pauses between kernels"), idle_ns - (saved.idle or 0.0), remaining)
    yield FloorPart(
        Text("lower clocks of long steps (power limit)"),
        power_ns,
        Text("of steps that arithmetic limits: FLOPs / steady roof - FLOPs / burst roof"),
    )
    if not view.profiled_share:
        yield FloorPart(Text("kernels whose limit was not measured"), math.inf, rest)
        return
    others = [kernel for kernel in view.kernels if kernel.category not in IN_FLOOR]
    others_ns = view.run_time.of_kernels(sum(kernel.total_ns or 0.0 for kernel in others)) or 0.0
    yield FloorPart(
        Text("kernels that the floor does not count (such as normalisation)"),
        others_ns - sum(saved.kernels[kernel.number] or 0.0 for kernel in others),
        remaining,
    )
    yield FloorPart(
        Text("matrix products and attention that no action makes faster"),
        math.inf,
        rest,
    )
