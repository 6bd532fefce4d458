"""The section of the target llm_kernels."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Json, Section, Text, arranged
from nsight_prof.reports.studies.llm_kernels import (
    agreement,
    attention,
    linear,
    overview,
    pairs,
    pointwise,
)
from nsight_prof.reports.studies.llm_kernels.points import (
    TARGET,
    Point,
    layers,
    model_titles,
    points,
    select,
    title,
)

REFERENCE = "llama-3.1-8b"
METHOD = (
    Text(
        "FLOPs and bytes are closed formulas of the shapes. Bytes are compulsory: each input read "
        "once and each output written once. A rate is formula over median time."
    ),
    Text(
        "The share of the roof is the time that min(peak, intensity x bandwidth) of the measured "
        "roofs allows for these FLOPs and bytes, over the time taken."
    ),
    Text(
        "Eager: the host launches each call, so short calls show the launch. CUDA graph: calls are "
        "captured in one. Compiled: made by torch.compile for one size (dynamic=False). No tensor "
        "needs a gradient."
    ),
    Text(
        "Outputs come from torch's caching allocator, as in a program, so that a small output may "
        "be in L2 when it is written."
    ),
    Text(
        "Ratios of counted to stated work are of the same function under ncu, without a graph. "
        "Every case is in tables/bench.csv of the run."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured case of this target."""
    found = points(run)
    if not found:
        return None
    model = reference_model(found)
    findings = (
        overview.decode_limit(found, model),
        overview.prefill_limit(found, model),
        linear.batching(found, model),
        attention.prefill_backends(found, model),
        pointwise.launch_bound(found),
        pointwise.fusion(found),
        linear.precision(found),
        pointwise.compile_overhead(found),
        attention.decode_backends(found, model),
        linear.saturation(found, model),
        attention.grouped_heads(found, model),
        linear.models(found),
        pointwise.streaming(found),
        pairs.inversion(found),
        pairs.zeros(found),
        pairs.layouts(found),
        agreement.formulas(found),
    )
    charts = (
        overview.roof_chart(found, model),
        linear.chart(found),
        attention.prefill_chart(found, model),
        attention.decode_chart(found, model),
        pointwise.launches_chart(found),
        pointwise.fusion_chart(found),
    )
    tables = (
        overview.table(found, model),
        linear.layer_table(found),
        linear.case_table(found, model),
        attention.table(found, "prefill"),
        attention.table(found, "decode"),
        pointwise.table(found),
        pairs.layer_table(found),
        pairs.table(found),
        agreement.table(found),
    )
    return Section(
        TARGET,
        Text("The operations of a transformer"),
        arranged([_introduction(found, model)], findings, charts, tables, METHOD),
        numbers=numbers(found, model),
    )


def reference_model(found: Sequence[Point]) -> str:
    """Return the model that is shown in detail: the usual one, or the first there is."""
    models = [str(point.param("model")) for point in found if point.param("model")]
    return REFERENCE if REFERENCE in models or not models else models[0]


def _introduction(found: Sequence[Point], model: str) -> Text:
    models = dict.fromkeys(
        name for point in select(found, family="linear") for name in model_titles(point)
    )
    return Text(
        "Linear layers{models}, attention with each back end of torch, norms, activations, "
        "sampling, convolution and LSTM. Operations that are not swept over models have the sizes "
        "of {model}.",
        models=Text(" of {models}", models=list(models)) if models else "",
        model=title(model),
    )


def numbers(found: Sequence[Point], model: str) -> dict[str, Json]:
    """Return for metrics.json: each case, each decoder layer, and the agreement with counters."""
    return {
        "cases": {str(point.row["case_id"]): _case(point) for point in found},
        "linear_layers": [
            {
                "model": layer.model,
                "tokens": layer.tokens,
                "dtype": dtype,
                "seconds": layer.seconds,
                "flop_per_s": layer.flop_rate.value,
                "bytes_per_s": layer.byte_rate.value,
                "roof_fraction": layer.fraction.value,
            }
            for dtype in ("bf16", "fp8")
            for layer in layers(found, dtype)
        ],
        "decoder_layers": [
            {
                "name": f"{step.stage} {step.batch} x {step.positions}",
                "seconds": step.time.value,
                "shares": {name: step.share(name).value for name in step.operations},
                "savings": {name: step.saving(name).value for name in step.operations},
            }
            for step in overview.steps(found, model)
        ],
        "formulas": [
            {
                "operation": row.operation,
                "of": row.variant,
                "cases": len(row.cases),
                "flops_ratio": [row.flops.low, row.flops.high],
                "dram_bytes_ratio": [row.bytes.low, row.bytes.high],
            }
            for row in agreement.agreements(found)
        ],
    }


def _case(point: Point) -> dict[str, Json]:
    return {
        "seconds": point.seconds,
        "flop_per_s": point.flop_rate.value,
        "bytes_per_s": point.byte_rate.value,
        "roof": str(point.row["roof_used"] or ""),
        "roof_fraction": point.fraction.value,
        "flops_ratio": point.flops_ratio.value,
        "dram_bytes_ratio": point.bytes_ratio.value,
    }
