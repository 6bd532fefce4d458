"""Findings of the operator view: where products take the time, and how near their roof."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.join.gemms import BY_NAME, BY_ORDER
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.products import (
    ALL_KERNELS,
    ATTENTION,
    FLOPS,
    Product,
    Savings,
    Stage,
    excess_operator,
    kernel_savings,
)
from nsight_prof.reports.page import Evidence, Finding, Name, Number, Text, Verbatim
from nsight_prof.reports.page.formats import shorten
from nsight_prof.reports.serving.roofs import roof_name

WORTHWHILE = 0.02
"""Part of a stage's kernel time from which time beyond the roof has a finding."""
ALIKE = 0.02
"""Views, clocks and roofs that differ by less are one; as mean and median of calls."""
EQUAL = 0.005
"""Relative difference of two counts of FLOPs that are the same."""
LARGEST = 3
"""Products that are named for the time beyond their roofs."""
SHORT_NS = 20_000.0
"""A product this short is some launches long, and its start is a part of it."""


def findings(run: Run, stages: Sequence[Stage], savings: Savings) -> Iterator[Finding]:
    """Yield what stands out: each stage's products, their time beyond the roofs, the views."""
    for stage in stages:
        yield from _largest(run, stage)
        yield from _beyond_roofs(run, stage, savings)
        yield from _attention(run, stage, savings)
        yield from _flops(stage)
        yield from _excess(stage)
    yield from _other_kernels(stages)


def calls(value: float) -> Number:
    """Return a number of calls of a run: a whole one where it is."""
    return Number(value, "count" if abs(value - round(value)) < 1e-6 else "")


def _largest(run: Run, stage: Stage) -> Iterator[Finding]:
    timed = [product for product in stage.products if math.isfinite(product.total_ns)]
    if not timed or not math.isfinite(stage.product_share):
        return
    first = max(timed, key=lambda product: product.total_ns)
    time = Number(sum(product.total_ns for product in timed), "ns")
    reached = Text(", at {reached} of the {roof}",
                   reached=first.roof_share, roof=roof_name(first.roof_source))  # fmt: skip
    fraction = Number(stage.product_share, "fraction")
    verdict = Text(
        "Matrix products take {part} of the kernel time of {stage}; {product} takes {of_them} of "
        "that{reached}.",
        part=fraction,
        stage=stage.label,
        product=first.full_name,
        of_them=first.number("total_ns", first.total_ns, "ns").share_of(time),
        reached=reached if math.isfinite(first.fraction) else "",
    )
    evidence: list[Evidence | Text] = [
        Text("{calls} calls of {time} per run: {rate}",
             calls=calls(first.calls), time=_call(first), rate=first.rate),
        Evidence(Text("kernel"), Name(first.kernel)),
        Evidence(Text("all matrix products, of the kernel time:"), fraction),
    ]  # fmt: skip
    if first.join == BY_NAME:
        reason = Verbatim(first.reason)
        evidence.append(Text("joined by the kernel's name alone: {reason}", reason=reason))
    yield Finding(
        "matrix_products",
        verdict,
        (*evidence, *_roofs_by_clock(run, first)),
        technical=True,
    )


def _call(product: Product) -> Text | Number:
    """Return the mean time of a call, with the median where calls of two kinds set them apart."""
    mean = product.number("total_ns", product.mean_ns, "ns")
    if not abs(product.median_ns / product.mean_ns - 1) >= ALIKE:
        return mean
    median = product.number("median_ns", product.median_ns, "ns")
    return Text("{mean} in the mean (median {median})", mean=mean, median=median)


def _roofs_by_clock(run: Run, product: Product) -> Iterator[Text]:
    """Yield the burst roof, that at ncu's clock and the steady one: they differ by the clock alone.

    Nothing for a product that memory limits, and where roofs or clocks are unknown or alike.
    """
    roofs = {
        text(row["kind"]): row
        for row in records(run.measured_roofs)
        if (text(row["level_or_pipe"]), text(row["dtype"])) == ("tensor", product.dtype)
    }
    counters = {text(row["kernel_id"]): row for row in records(run.counters)}
    burst, steady = roofs.get("burst"), roofs.get("steady")
    launch = counters.get(product.kernel_id)
    if product.roof != f"tensor {product.dtype}" or not burst or not steady or not launch:
        return
    peak, clock, lasting = (
        number(burst["value"]), number(burst["clock_hz"]), number(steady["value"])
    )  # fmt: skip
    ncu_clock, rate = known(launch["sm_clock_hz"]), known(launch["flop_throughput"])
    if not ncu_clock or rate is None or not clock > 0 or not lasting < (1 - ALIKE) * peak:
        return
    scaled = peak * ncu_clock / clock
    yield Text(
        "the roof here is that of a burst, {burst} at {clock}; for comparison, at the "
        "{ncu_clock} of the counted launch it is {scaled}, of which that launch reached "
        "{reached}, and {steady} under load that lasts, at {steady_clock}",
        burst=Number(peak, "FLOP/s"),
        clock=Number(clock, "Hz", digits=3),
        scaled=Number(scaled, "FLOP/s"),
        ncu_clock=Number(ncu_clock, "Hz", digits=3),
        reached=Number(rate / scaled, "fraction"),
        steady=Number(lasting, "FLOP/s"),
        steady_clock=Number(known(steady["clock_hz"]), "Hz", digits=3),
    )


def _beyond_roofs(run: Run, stage: Stage, savings: Savings) -> Iterator[Finding]:
    """Yield what the products take beyond their roofs, and which is the farthest from its own."""
    judged = [product for product in stage.products if math.isfinite(product.fraction)]
    lost = sum(product.lost_ns for product in judged)
    if not judged or not lost >= WORTHWHILE * stage.kernel_ns:
        return
    first = sorted(judged, key=lambda product: -product.lost_ns)[:LARGEST]
    heavy = [p for p in judged if p.total_ns >= WORTHWHILE * stage.kernel_ns]
    farthest = min(heavy or judged, key=lambda product: product.fraction)
    split = farthest.split_k if farthest.split_k and farthest.split_k > 1 else 0
    share = stage.share(lost)
    compared, *unadvised = kernel_savings(run, stage, lost, {p.kernel_id for p in judged}, savings)
    yield Finding(
        "products_beyond_roofs",
        Text(
            "At their roofs the matrix products of {stage} would take {lost} less per run, {part} "
            "of its kernel time: {products}. {beside}",
            stage=stage.label,
            lost=Number(lost, "ns"),
            part=share,
            products=[
                Text("{product} {lost}", product=Verbatim(product.name),
                     lost=product.number("roof_fraction", product.lost_ns, "ns").by(
                         Text("{time} x (1 - {part})", time=Number(product.total_ns, "ns"),
                              part=product.roof_share)))
                for product in first
            ],
            beside=compared,
        ),
        (
            Evidence(
                Text("farthest from its roof:"),
                Text(
                    "{product} at {reached}, {rate}, tile {tile}{split}, {time} per call",
                    product=farthest.full_name,
                    reached=farthest.roof_share,
                    rate=farthest.rate,
                    tile=Verbatim(farthest.tile) if farthest.tile else Text("unknown"),
                    split=Text(", K in {n} blocks", n=split) if split else "",
                    time=_call(farthest),
                ),
            ),
            _beyond(lost, share),
            *unadvised,
        ),
        disproof=Text(
            "A launch and the start of a kernel are in its time: no product of a few microseconds "
            "reaches its roof."
        )
        if farthest.mean_ns < SHORT_NS
        else None,
        technical=True,
    )  # fmt: skip


def _beyond(lost_ns: float, share: Number) -> Text:
    """Return how much of a run's kernel time is beyond a roof."""
    time = Number(lost_ns, "ns")
    return Text("beyond the roof, per run: {time} ({part} of the kernel time)",
                time=time, part=share)  # fmt: skip


def _attention(run: Run, stage: Stage, savings: Savings) -> Iterator[Finding]:
    """Yield how far attention is from what its FLOPs and the KV cache take."""
    view = stage.view(ATTENTION)
    if view is None or not view.kernels - view.analytical >= WORTHWHILE * stage.kernel_ns:
        return
    lost = view.kernels - view.analytical
    ratio = view.number("kernels").times(view.number("analytical"))
    share = stage.share(lost)
    compared, *unadvised = kernel_savings(run, stage, lost, set(stage.attention), savings)
    yield Finding(
        "attention_beyond_roof",
        Text(
            "Attention of {stage} takes {time} per run, {ratio} its floor of {floor}: {part} of "
            "the kernel time is lost there. {beside}",
            beside=compared,
            stage=stage.label,
            time=view.number("kernels"),
            ratio=ratio,
            floor=view.number("analytical"),
            part=share,
        ),
        (
            Evidence(Text("in the operator view"), view.number("operators")),
            Evidence(Text("time over floor:"), ratio),
            _beyond(lost, share),
            *unadvised,
        ),
        disproof=Text(
            "The floor is its FLOPs, or reading the KV cache, at the roofs. Small batches and "
            "short contexts give each kernel less work than fills the GPU."
        ),
        technical=True,
    )


def _ratio(ratio: Number) -> Number | Text:
    """Return a ratio of FLOPs; of equal ones only that they are."""
    equal = abs((ratio.value or 0.0) - 1) < EQUAL
    return Text("exactly") if equal else ratio.at_digits(3)


def _flops(stage: Stage) -> Iterator[Finding]:
    """Yield whether configuration, shapes and counters have the same FLOPs."""
    view = stage.view(FLOPS)
    if view is None or not view.operators > 0:
        return
    names = ("analytical", "operators", "kernels")
    by_model, by_shape, by_kernel = (view.number(name).at_digits(4) for name in names)
    evidence: list[Evidence | Text] = [Evidence(Text("by the shapes of operators"), by_shape)]
    verdict: Text | None = None
    padding: Number | None = None
    if by_kernel.value is not None:
        padding = (by_kernel - by_shape).share_of(by_shape)
        evidence.append(Evidence(Text("on the GPU"), by_kernel))
        verdict = Text(
            "Tile padding adds {padding} to the FLOPs of the matrix products of {stage}.",
            padding=padding,
            stage=stage.label,
        )
    if by_model.value is not None:
        evidence.insert(0, Evidence(Text("by the model's configuration"), by_model))
        verdict = Text(
            "The matrix products of {stage} have {ratio} the FLOPs of the model's configuration"
            "{padded}.",
            stage=stage.label,
            ratio=_ratio(by_shape.times(by_model)),
            padded=Text("; tile padding adds {padding}", padding=padding) if padding else "",
        )
    if verdict is None:
        return
    reasons = sorted({product.reason for product in stage.products if not product.join} - {""})
    if by_kernel.value is None and reasons:
        evidence.append(Text("not known of the kernels: {reason}", reason=Verbatim(reasons[0])))
    yield Finding("product_flops", verdict, tuple(evidence), technical=True)


def _excess(stage: Stage) -> Iterator[Finding]:
    """Yield where the operator view did more than the trace, and in which operator."""
    view, operator = stage.view(ALL_KERNELS), excess_operator(stage)
    if view is None or operator is None:
        return
    yield Finding(
        "operator_view_excess",
        Text(
            "The operator view misrepresents {operator} in {stage}: its kernel takes {viewed} "
            "per run there and {traced} in the trace.",
            operator=Name(operator.name),
            stage=stage.label,
            viewed=Number(operator.gpu_ns, "ns"),
            traced=Number(operator.traced_ns, "ns"),
        ),
        (
            Evidence(Text("kernel"), Name(operator.kernel)),
            Text(
                "{calls} calls of {time} in the operator view, with inputs {shapes}",
                calls=calls(operator.calls),
                time=Number(operator.gpu_ns / operator.calls, "ns"),
                shapes=Verbatim(shorten(operator.shapes, 60)),
            ),
            Evidence(Text("its time per run in the trace"), Number(operator.traced_ns, "ns")),
            Evidence(Text("all kernels of a run in the operator view"), view.number("operators")),
            Evidence(Text("in the trace"), view.number("kernels")),
        ),
        disproof=Text(
            "An operator view without torch.compile and CUDA graphs has the same products; its "
            "other operators may differ."
        ),
        technical=True,
    )


def _other_kernels(stages: Sequence[Stage]) -> Iterator[Finding]:
    """Yield where the trace ran another kernel than the operator view."""
    joined = [p for stage in stages for p in stage.products if p.join]
    changed = [p for p in joined if p.join == BY_ORDER]
    if not changed:
        return
    first = max(changed, key=lambda p: abs(p.median_ns / p.operator_ns - 1))
    yield Finding(
        "other_kernels",
        Text(
            "The library chose another kernel in the traced run for {changed} of {n} matrix "
            "products.",
            changed=len(changed),
            n=len(joined),
        ),
        (
            Text(
                "the largest difference: {product}, {ratio} the operator view's time",
                product=first.full_name,
                ratio=Number(first.median_ns / first.operator_ns, "x"),
            ),
            Text("{traced} in place of {viewed}",
                 traced=Name(first.kernel), viewed=Name(first.operator_kernel)),
            Text("joined by the order of the stage's products"),
        ),
        technical=True,
    )  # fmt: skip
