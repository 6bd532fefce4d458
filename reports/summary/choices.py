"""What the owner of a program may choose, at a price, after all repairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from nsight_prof.reports.page import Choice, Link, Number, Section, Text, Value, Verbatim
from nsight_prof.reports.page import Finding as PageFinding
from nsight_prof.reports.page.frame import Places
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.models import Narrowed, Savings, TimedChoice
from nsight_prof.reports.summary.plain_words import COSTS

MINIMUM = 0.01
"""Part of the run from which on a gain is worth a row of the first screen."""
NARROWER = {"bf16": "fp8", "fp16": "fp8", "fp64": "fp32"}
"""The next smaller type of inputs."""
BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
PRODUCTS = {"gemm": Text("matrix products"), "gemv": Text("products of matrix and vector")}
"""Kinds of kernels whose inputs may have another type without another algorithm."""
SOURCES = ("measured", "counters", "datasheet")


def timed_choices(view: ReportView, saved: Savings) -> tuple[TimedChoice, ...]:
    """Return the choices that save time of the run: smaller types, then what findings offer."""
    if not view.run_time.whole_ns:
        return ()
    offered = ((f, f.offers) for f in view.findings if f.offers is not None)
    return (
        *_smaller_types(view, saved),
        *(
            TimedChoice(
                offer.do,
                view.run_time.of_kernels(offer.gains.value or 0.0) or 0.0,
                offer.costs,
                finding.anchor,
                finding=finding,
                most_ns=view.run_time.of_kernels(finding.most_ns) or math.nan,
            )
            for finding, offer in offered
            if isinstance(offer.gains, Number)
        ),
    )


def choices(view: ReportView, timed: tuple[TimedChoice, ...]) -> tuple[Choice, ...]:
    """Return the choices as the first screen tells them, the largest gain first.

    Each gain is a link to where it is from.
    """
    whole_ns = view.run_time.whole_ns or 0.0
    of_time = (
        Choice(
            c.do,
            _gains(c, whole_ns),
            c.costs,
            c.saves_ns / whole_ns,
            () if c.finding is None else ((c.finding.rank or 0, c.finding.anchor),),
        )
        for c in timed
        if c.saves_ns >= MINIMUM * whole_ns
    )
    others = (offer for section in view.sections for offer in _untimed(section))
    return tuple(sorted((*of_time, *others), key=lambda choice: -choice.saves))


def _untimed(section: Section) -> Iterator[Choice]:
    """Yield what a section offers; numbers of its gain lead to where the section shows them."""
    places = Places(section)
    for finding in section.findings:
        if finding.offers is not None and isinstance(finding.offers.gains, Text):
            gains = finding.offers.gains.with_values(partial(linked, places, finding))
            yield replace(finding.offers, gains=gains)


def linked(places: Places, finding: PageFinding, value: Value) -> Value:
    """Return a value of a finding as a link to where its section shows it, if it does."""
    anchor = places.of(value, finding)
    return Link(value, anchor) if anchor else value


def _gains(choice: TimedChoice, whole_ns: float) -> Text:
    time = Link(Number(choice.saves_ns, "ns", digits=3), choice.anchor)
    fraction = Number(choice.saves_ns / whole_ns, "fraction")
    if math.isnan(choice.most_ns):
        clock = Text("at the power limit") if choice.lasting else Text("at equal clock")
        if not choice.products:
            return Text("up to {time} ({part})", time=time, part=fraction)
        return Text("up to {time} ({part}) {clock}", time=time, part=fraction, clock=clock)
    return Text(
        "{time} ({part}); at most {most}",
        time=time,
        part=fraction,
        most=Link(Number(choice.most_ns, "ns", digits=3), choice.anchor),
    )


def _smaller_types(view: ReportView, saved: Savings) -> Iterator[TimedChoice]:
    """Yield the next smaller type of matrix products that repairs leave at a roof."""
    time = view.run_time
    for dtype, smaller in NARROWER.items():
        rows = [k for k in view.kernels if k.category in PRODUCTS and k.dtype == dtype]
        products = tuple(
            Narrowed(
                row,
                smaller,
                factor,
                time.of_kernels(row.total_ns or 0.0) or 0.0,
                saved.kernels[row.number] or 0.0,
            )
            for row in rows
            if (factor := _factor(view, row, dtype, smaller)) > 1
        )
        kinds = [name for kind, name in PRODUCTS.items()
                 if any(product.kernel.category == kind for product in products)]  # fmt: skip
        if products:
            yield TimedChoice(
                Text(
                    "{what} in {smaller}: {n} bits instead of {bits}",
                    what=kinds,
                    smaller=Verbatim(smaller),
                    n=8 * BYTES[smaller],
                    bits=8 * BYTES[dtype],
                ),
                sum(product.saves_ns for product in products),
                COSTS[smaller],
                f"narrower-{dtype}",
                products,
                lasting={dtype, smaller} <= {*view.steady_roofs},
            )


def _factor(view: ReportView, kernel: KernelRow, dtype: str, smaller: str) -> float:
    """Return how many times as fast a kernel may be with a smaller type; 0 where not known.

    By load that lasts, which the power limit slows, where both types were so measured.
    """
    to = "fp32" if smaller == "fp32" else "tensor"
    if kernel.bound_by == "dram":
        has_type = any((roof.key, roof.dtype) == (to, smaller) for roof in view.roofs)
        return BYTES[dtype] / BYTES[smaller] if has_type else 0.0
    if kernel.bound_by not in ("tensor", "fp64", "fp16"):
        return 0.0
    lasting = {("tensor", name): value for name, value in view.steady_roofs.items()}
    by_source = (
        {(r.key, r.dtype): r.value for r in view.roofs if r.source == source} for source in SOURCES
    )
    for roofs in (lasting, *by_source):
        now, then = roofs.get((kernel.bound_by, dtype)), roofs.get((to, smaller))
        if now and then:
            return float(then / now)
    return 0.0
