"""Section about the operations of a transformer: what each reaches, and what makes it faster."""

from __future__ import annotations

import math
from typing import Any

from nsight_prof.parsers.cells import known
from nsight_prof.reports.bench import llm_kernels_findings as products
from nsight_prof.reports.bench import llm_kernels_launches as rest
from nsight_prof.reports.bench.case_rows import placed
from nsight_prof.reports.bench.llm_kernels_agreement import agreement_table, agreements
from nsight_prof.reports.bench.llm_kernels_figures import figures
from nsight_prof.reports.bench.llm_kernels_points import (
    TARGET,
    Point,
    layers,
    points,
    select,
    title,
)
from nsight_prof.reports.bench.llm_kernels_tables import tables
from nsight_prof.reports.bench.models import BenchFinding, Section
from nsight_prof.reports.load import Run

REFERENCE = "llama-3.1-8b"
METHOD = (
    "FLOPs and bytes are closed formulas of the shapes. Bytes are compulsory: each input read once "
    "and each output written once. A rate is formula over median time.",
    "The share of the roof is the time that min(peak, intensity x bandwidth) of the measured roofs "
    "allows for these FLOPs and bytes, over the time taken.",
    "eager: the host launches each call, so short calls show the launch. graph: calls are captured "
    "in a CUDA graph. compiled: made by torch.compile for one size (dynamic=False). No tensor "
    "needs a gradient.",
    "Outputs come from torch's caching allocator, as in a program, so that a small output may be "
    "in L2 when it is written.",
    "Ratios of counted to stated work are of the same function under ncu, without a graph.",
    "Findings name their cases as table `bench` does (tables/bench.csv of the run, column "
    "`case_id`), without the ending |cold|normal, and lead to the row of a table that shows them.",
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured case of this target."""
    found = points(run)
    if not found:
        return None
    reference = reference_model(found)
    last = agreement_table(found)
    shown = (*tables(found, reference), *((last,) if last else ()))
    said, shown = placed(findings(found, reference), shown)
    return Section(
        key=TARGET,
        title="The operations of a transformer",
        intro=_intro(found, reference),
        findings=said,
        tables=shown,
        figures=figures(found, reference),
        method=METHOD,
        numbers=numbers(found),
    )


def reference_model(found: list[Point]) -> str:
    """Return the model that is shown in detail: the usual one, or the first there is."""
    models = [str(p.param("model")) for p in found if p.param("model")]
    return REFERENCE if REFERENCE in models or not models else models[0]


def _intro(found: list[Point], reference: str) -> str:
    models = dict.fromkeys(
        name for p in select(found, family="linear") for name in str(p.param("models")).split(", ")
    )
    shapes = f" of {', '.join(title(name) for name in models)}" if models else ""
    return (
        f"Linear layers{shapes}, attention with each back end of torch, norms, activations, "
        f"sampling, convolution and LSTM. Operations that are not swept over models have the sizes "
        f"of {title(reference)}."
    )


def findings(found: list[Point], reference: str) -> tuple[BenchFinding, ...]:
    """Return what the cases support, the largest gains of a user first."""
    made = (
        products.batching(found, reference),
        products.prefill_backends(found, reference),
        rest.launch_bound(found),
        rest.fusion(found),
        rest.compiled_small(found),
        products.decode_backends(found, reference),
        products.saturation(found, reference),
        products.precision(found),
        products.grouped_heads(found, reference),
        products.models(found),
        rest.streaming(found),
        rest.inversion(found),
        rest.zeros(found),
        rest.layouts(found),
        rest.formulas(found),
    )
    return tuple(finding for finding in made if finding is not None)


def numbers(found: list[Point]) -> dict[str, Any]:
    """Return for metrics.json: each case, each decoder layer, and the agreement with counters."""
    return {
        "cases": {str(p.row["case_id"]): _case(p) for p in found},
        "linear_layers": [
            {
                "model": layer.model,
                "tokens": layer.tokens,
                "dtype": dtype,
                "seconds": layer.seconds,
                "flop_per_s": layer.flop_rate,
                "bytes_per_s": layer.byte_rate,
                "roof_fraction": known(layer.fraction),
            }
            for dtype in ("bf16", "fp8")
            for layer in layers(found, dtype)
        ],
        "formulas": [
            {
                "operation": a.operation,
                "of": a.what,
                "cases": a.cases,
                "flops_ratio": [known(value) for value in a.flops],
                "dram_bytes_ratio": [known(value) for value in a.bytes],
            }
            for a in agreements(found)
        ],
    }


def _case(point: Point) -> dict[str, Any]:
    rate = point.flop_rate
    return {
        "seconds": point.seconds,
        "flop_per_s": None if math.isnan(rate) else rate,
        "bytes_per_s": known(point.byte_rate),
        "roof": str(point.row["roof_used"] or ""),
        "roof_fraction": known(point.fraction),
        "flops_ratio": known(point.flops_ratio),
        "dram_bytes_ratio": known(point.bytes_ratio),
    }
