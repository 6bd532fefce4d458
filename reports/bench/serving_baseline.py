"""Section about vLLM's offline engine: latency, throughput over batches, lengths, CUDA graphs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from nsight_prof.parsers.cells import known
from nsight_prof.reports.bench import serving_baseline_findings as speed
from nsight_prof.reports.bench import serving_baseline_hardware as hardware
from nsight_prof.reports.bench.models import BenchFinding, Section
from nsight_prof.reports.bench.scaling_fit import Scaling, exponents, fit_scaling
from nsight_prof.reports.bench.serving_baseline_figures import figures
from nsight_prof.reports.bench.serving_baseline_points import Baseline, Load, baseline, pairs
from nsight_prof.reports.bench.serving_baseline_tables import tables
from nsight_prof.reports.bench.serving_lost import lost
from nsight_prof.reports.bench.serving_points import model_row
from nsight_prof.reports.bench.serving_timeline import timeline
from nsight_prof.reports.formats import counted, seconds
from nsight_prof.reports.load import Run

KEY = "serving_baseline"
TITLE = "How fast the engine serves"
METHOD = (
    "All requests of a batch are added before the first step of the engine; prompts are random "
    "tokens, each request gives exactly as many tokens as asked for. A duration is from the first "
    "request to the return of the last step, as the host sees it.",
    "Prefill lasts until every request of the batch has a first token. A decode step is a step "
    "that gave each request one token and followed such a step; its time is from the return of the "
    "step before to its own. TPOT is (end - first token) / (tokens - 1) of a request.",
    "Scaling bends where 1 % more requests bring less than 0.5 % more tokens/s, by the law "
    "t = t0 + c max(0, n - k) fitted to the relative errors; k is 0 unless another one at least "
    "halves the error. A doubling is 2 to the slope between two measured lengths on "
    "logarithmic axes.",
    "MFU and MBU: the least FLOPs and bytes that the model's configuration needs, over the time "
    "and the roof. A decode step is worked out for the middle of the output. Bytes are those of "
    "weights and KV cache that one GPU reads.",
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured point of this target."""
    found = baseline(run)
    if not found.points:
        return None
    over_time = timeline(run)
    return Section(
        key=KEY,
        title=TITLE,
        intro=_intro(run, found),
        findings=_findings(run, found),
        tables=tables(found),
        figures=(*figures(found), *((over_time,) if over_time else ())),
        method=METHOD,
        numbers=numbers(found),
        plain=(*model_row(run), *_plain(found)),
    )


def _findings(run: Run, found: Baseline) -> tuple[BenchFinding, ...]:
    made = (
        speed.scaling(found),
        speed.doubled_prompt(found),
        hardware.bound(found),
        hardware.idle(found),
        speed.graphs(found),
        speed.latency(found),
        hardware.cache(found),
        lost(run, "vllm-baseline"),
        hardware.power(found),
        hardware.agreement(found),
    )
    return tuple(finding for finding in made if finding is not None)


def _intro(run: Run, found: Baseline) -> str:
    starts = [value for value in map(known, run.engines["start_s"]) if value is not None]
    engine = found.engine
    if engine is None:
        return ""
    split = f" on {engine.tensor_parallel} GPUs" if engine.tensor_parallel > 1 else ""
    weights = ", with random weights" if engine.dummy_weights else ""
    began = f" {counted(len(starts), 'engine')} started in {_range(starts)}." if starts else ""
    return f"{engine.model}{split}{weights}, served by vLLM {engine.version} offline.{began}"


def _range(values: list[float]) -> str:
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else f"{low} to {high}"


def _plain(found: Baseline) -> tuple[tuple[str, str], ...]:
    rows = []
    for point in found.of("latency")[:1]:
        rows.append(("First token of a single request", seconds(point.value("ttft_p50_s"))))
        rows.append(("Each further token", seconds(point.value("tpot_p50_s"))))
    sweep = [p for p in found.batches if not math.isnan(p.value("output_tokens_per_s"))]
    for point in sweep if len(sweep) < 3 else (sweep[0], sweep[-1]):
        words = f"{point.batch} request{'s' if point.batch > 1 else ''} at once"
        rows.append((words, speed.rate(point.value("output_tokens_per_s"))))
    return tuple(rows)


def numbers(found: Baseline) -> dict[str, Any]:
    """Return for metrics.json: the laws, the doublings, each point's loads, and the pairs."""
    first = speed.first_tokens(found)
    law, prompts = speed.batch_law(found), fit_scaling(list(first), list(first.values()))
    return {
        "batch_law": _law(law),
        "prompt_law": _law(prompts),
        "doublings": [
            {"from_tokens": low, "to_tokens": high, "factor": 2**power}
            for low, high, power in exponents(list(first), list(first.values()))
        ],
        "points": {
            str(point.row["case_id"]): {
                "prefill": _load(point.prefill),
                "decode": _load(point.decode),
            }
            for point in found.points
        },
        "cuda_graphs_speedup": {
            str(eager.batch): known(eager.step_s / graph.step_s) for eager, graph in pairs(found)
        },
    }


def _law(law: Scaling | None) -> dict[str, Any] | None:
    if law is None:
        return None
    made = {name: known(value) for name, value in dataclasses.asdict(law).items()}
    return made | {"bend": known(law.bend), "bend_was_measured": law.seen}


def _load(load: Load) -> dict[str, Any]:
    return {name: known(value) for name, value in dataclasses.asdict(load).items()}
