"""What the operator view allows to say: where products take the time, and how near their roof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from nsight_prof.parsers.gemm_join import BY_NAME, BY_ORDER
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.engine.operators.actions import Actions, Counterpart
from nsight_prof.reports.engine.operators.models import (
    ALL_KERNELS,
    ATTENTION,
    OfStage,
    Operator,
    Product,
    View,
)
from nsight_prof.reports.formats import (
    count,
    counted,
    duration,
    listed,
    quantity,
    share,
    shorten,
    significant,
)

WORTH = 0.02
"""Part of a stage's kernel time from which time beyond the roof is worth a sentence."""
AGREE = 0.02
"""Views that differ by less agree."""
APART = 0.1
"""Part by which the operator view's kernel time may exceed the trace's without a sentence."""
NAMED = 3
"""Products that are named for the time beyond their roofs."""
SHORT_NS = 20_000.0
"""A product this short is some launches long, and its start is a part of it."""
SKEWED = 0.02
"""Part by which median and mean of calls differ from which both are told."""


def findings(
    stages: Sequence[OfStage], beside: Actions, roofs: Callable[[Product], str]
) -> tuple[BenchFinding, ...]:
    """Return what stands out: each stage's products, their time beyond the roofs, the views.

    `beside` is what the report says of the kernels, `roofs` sets the roofs of a product beside
    each other.
    """
    found: list[BenchFinding] = []
    for stage in stages:
        found += [*_largest(stage, roofs), *_beyond(stage, beside), *_attention(stage, beside)]
        found += _views(stage)
        found += _apart(stage)
    return (*found, *_chosen(stages))


def calls(value: float) -> str:
    """Return a number of calls of a run: a whole one where it is."""
    return count(value) if abs(value - round(value)) < 1e-6 else significant(value)


def _largest(stage: OfStage, roofs: Callable[[Product], str]) -> Iterator[BenchFinding]:
    known = [product for product in stage.products if math.isfinite(product.total_ns)]
    if not known or not math.isfinite(stage.product_share):
        return
    first = max(known, key=lambda product: product.total_ns)
    part = first.total_ns / sum(product.total_ns for product in known)
    roof = ""
    if math.isfinite(first.fraction):
        roof = f" It reaches {share(first.fraction)} of the {first.roof_source}."
    yield BenchFinding(
        f"Matrix products take {share(stage.product_share)} of the kernel time of {stage.label}, "
        f"{share(part)} of it {_named(first)}.{roof}",
        f"{calls(first.calls)} calls of {_call(first)} a run: {_rate(first)}; {first.kernel}",
        " ".join(told for told in (_joined(first), roofs(first)) if told),
    )


def _beyond(stage: OfStage, beside: Actions) -> Iterator[BenchFinding]:
    """Say what the products take beyond their roofs, and which is the farthest from its own."""
    known = [product for product in stage.products if math.isfinite(product.fraction)]
    lost = sum(product.lost_ns for product in known)
    if not known or not lost >= WORTH * stage.kernel_ns:
        return
    parts = sorted(known, key=lambda product: -product.lost_ns)[:NAMED]
    named = listed([f"{product.name} {duration(product.lost_ns)}" for product in parts])
    heavy = [p for p in known if p.total_ns >= WORTH * stage.kernel_ns]
    least = min(heavy or known, key=lambda product: product.fraction)
    split = f", K in {least.split_k} parts" if least.split_k and least.split_k > 1 else ""
    same = beside.of(stage.stage, {p.kernel_id for p in known})
    yield BenchFinding(
        f"At their roofs the matrix products of {stage.label} would take {duration(lost)} less a "
        f"run, {share(lost / stage.kernel_ns)} of its kernel time: {named}.",
        f"farthest from its roof: {_named(least)} at {share(least.fraction)}, {_rate(least)}, tile "
        f"{least.tile or 'unknown'}{split}, {_call(least)} a call{_all_runs(same, lost)}",
        "a launch and the start of a kernel are in its time: no product of some microseconds "
        "reaches its roof" if least.mean_ns < SHORT_NS else "",
        cases=same.places(),
    )  # fmt: skip


def _all_runs(same: Counterpart, lost_ns: float) -> str:
    """Return time of a run beyond its floor for all runs, beside what the kernels' table has."""
    told = same.beside()
    return f"; in {same.whole(lost_ns)}{f'. {told}' if told else ''}"


def _attention(stage: OfStage, beside: Actions) -> Iterator[BenchFinding]:
    """Say how far attention is from what its FLOPs and the KV cache take."""
    view = next((v for v in stage.views if v.quantity == ATTENTION), None)
    if view is None or not view.kernels - view.analytical >= WORTH * stage.kernel_ns:
        return
    lost = view.kernels - view.analytical
    same = beside.of(stage.stage, set(stage.attention))
    yield BenchFinding(
        f"Attention of {stage.label} takes {duration(view.kernels)} a run, "
        f"{significant(view.kernels / view.analytical)} times the {duration(view.analytical)} that "
        "its FLOPs, or reading the KV cache, take at the roofs: the difference is "
        f"{share(lost / stage.kernel_ns)} of the kernel time.",
        f"{duration(view.operators)} in the operator view{_all_runs(same, lost)}",
        "small batches and short contexts give each kernel less work than fills the GPU",
        cases=same.places(),
    )


def _views(stage: OfStage) -> Iterator[BenchFinding]:
    flops = next((v for v in stage.views if v.unit == "FLOP"), None)
    if flops is None or not math.isfinite(flops.operators) or flops.operators <= 0:
        return
    known = [v for v in (flops.analytical, flops.kernels) if math.isfinite(v)]
    if not known:
        return
    yield BenchFinding(
        f"FLOPs of the matrix products of {stage.label}: {_said(flops)}.",
        f"{counted(len(stage.products), 'shape')} of the operator view, times their calls",
        "" if math.isfinite(flops.kernels) else _why_no_kernels(stage),
    )


def _said(view: View) -> str:
    """Return the three values of a quantity in words, and whether they agree."""
    parts = [f"{quantity(view.operators, view.unit)} by the shapes of operators"]
    apart = [0.0]
    if math.isfinite(view.analytical):
        parts.insert(0, f"{quantity(view.analytical, view.unit)} by the model's configuration")
        apart.append(abs(view.operators / view.analytical - 1))
    if math.isfinite(view.kernels):
        more = view.kernels / view.operators - 1
        parts.append(f"{quantity(view.kernels, view.unit)} on the GPU ({share(more)} padding)")
    first = "the views agree" if max(apart) < AGREE else "configuration and shapes differ"
    return f"{listed(parts)}; {first}" if len(apart) > 1 else listed(parts)


def _apart(stage: OfStage) -> Iterator[BenchFinding]:
    """Say where the operator view did more than the trace, and in which operator."""
    view = next((v for v in stage.views if v.quantity == ALL_KERNELS), None)
    more = most_beyond_the_trace(stage)
    if view is None or more is None:
        return
    excess = more.gpu_ns - more.traced_ns
    yield BenchFinding(
        f"The operator view of {stage.label} has {duration(view.operators)} of kernels a run, the "
        f"trace {duration(view.kernels)}: {duration(excess)} more of it in {more.name}. Its kernel "
        f"({more.kernel}) takes {duration(more.gpu_ns)} a run in the operator view and "
        f"{duration(more.traced_ns)} in the trace.",
        f"{calls(more.calls)} calls of {duration(more.gpu_ns / more.calls)} in the operator view, "
        f"with inputs {shorten(more.shapes, 60)}",
        "an operator view without torch.compile and CUDA graphs has the same products; its other "
        "operators may differ",
    )


def most_beyond_the_trace(stage: OfStage) -> Operator | None:
    """Return the operator that took most more time than its kernel in the trace.

    None where the whole view took about as long as the trace.
    """
    view = next((v for v in stage.views if v.quantity == ALL_KERNELS), None)
    if view is None or not view.operators > (1 + APART) * view.kernels:
        return None
    more = max(stage.operators, key=lambda operator: operator.gpu_ns - operator.traced_ns)
    return more if more.gpu_ns > more.traced_ns else None


def _why_no_kernels(stage: OfStage) -> str:
    without = sorted({product.reason for product in stage.products if not product.join})
    return f"not told for the kernels: {without[0]}" if without and without[0] else ""


def _chosen(stages: Sequence[OfStage]) -> Iterator[BenchFinding]:
    """Say where the trace ran another kernel than the operator view."""
    joined = [p for stage in stages for p in stage.products if p.join]
    other = [p for p in joined if p.join == BY_ORDER]
    if not other:
        return
    slower = max(other, key=lambda p: abs(p.median_ns / p.operator_ns - 1))
    ratio = slower.median_ns / slower.operator_ns
    yield BenchFinding(
        f"For {len(other)} of {counted(len(joined), 'matrix product')} the traced run had another "
        "kernel than the operator view: the library chose otherwise there.",
        f"most apart: {_named(slower)}, {significant(ratio)} times the operator view's time: "
        f"{slower.kernel} in place of {slower.operator_kernel}",
        "joined by the order of the stage's products",
    )


def _call(product: Product) -> str:
    """Return the mean time of a call, with the median where calls of two kinds set them apart."""
    mean = duration(product.mean_ns)
    if not abs(product.median_ns / product.mean_ns - 1) >= SKEWED:
        return mean
    return f"{mean} in the mean (median {duration(product.median_ns)})"


def _named(product: Product) -> str:
    return f"{product.name} ({product.size})" if product.module else product.size


def _rate(product: Product) -> str:
    if product.roof == "dram":
        return quantity(product.byte_rate, "B/s")
    return quantity(product.flop_rate, "FLOP/s")


def _joined(product: Product) -> str:
    if product.join == BY_NAME:
        return f"joined by the kernel's name alone: {product.reason}"
    return ""
