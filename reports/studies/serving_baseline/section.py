"""The section of the target vllm-baseline."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from nsight_prof.parsers.cells import known
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Fact, Interval, Json, Number, Section, Text, Verbatim, arranged
from nsight_prof.reports.serving.points import clock_limit, lost_points, model_facts
from nsight_prof.reports.serving.scaling_fit import Scaling, exponents
from nsight_prof.reports.serving.timeline import timeline
from nsight_prof.reports.studies.serving_baseline import findings
from nsight_prof.reports.studies.serving_baseline.points import TARGET, Baseline, Load, baseline
from nsight_prof.reports.studies.serving_baseline.tables import charts, tables

KEY = "serving_baseline"
METHOD = (
    Text(
        "All requests of a batch are added before the first step of the engine; prompts are random "
        "tokens, and each request generates exactly as many tokens as asked for. A duration is "
        "from the first request to the return of the last step, as the host sees it."
    ),
    Text(
        "Prefill lasts until every request of the batch has a first token. A decode step gives "
        "each request one token and follows such a step; its time is from the return of the step "
        "before to its own. TPOT is (end - first token) / (tokens - 1) of a request."
    ),
    Text(
        "Scaling bends where 1 % more requests bring less than 0.5 % more tokens/s, by the law "
        "t = t0 + c max(0, n - k) fitted to the relative errors; k is 0 unless another k at least "
        "halves the error. A doubling is 2 to the slope between two measured lengths on "
        "logarithmic axes."
    ),
    Text(
        "MFU and MBU: the least FLOPs and bytes that the model's configuration needs, over the "
        "time and the roof. A decode step is worked out for the middle of the output. Bytes are "
        "those of weights and KV cache that one GPU reads."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section; None where the run has no measured point of this target."""
    found = baseline(run)
    if not found.points:
        return None
    conclusions = (
        findings.scaling(found),
        findings.doubled_prompt(found),
        findings.bound(found),
        findings.idle(found),
        findings.graphs(found),
        findings.latency(found),
        findings.cache(found),
        lost_points(run, TARGET),
        clock_limit(found.batches, lambda point: Text("batch {n}", n=point.batch)),
        findings.agreement(found),
    )
    return Section(
        KEY,
        Text("How fast the engine serves"),
        arranged(
            _intro(run, found), conclusions, (*charts(found), *timeline(run)), tables(found), METHOD
        ),
        numbers=_numbers(found),
        facts=(*model_facts(run), *_facts(found)),
    )


def _intro(run: Run, found: Baseline) -> Iterator[Text]:
    engine = found.engine
    if engine is None:
        return
    yield Text(
            "Model {model}, served offline by vLLM {version} on {n} GPU.",
            "Model {model}, served offline by vLLM {version} on {n} GPUs.",
            model=Verbatim(engine.model), version=Verbatim(engine.version),
            n=engine.tensor_parallel,
        )  # fmt: skip
    if starts := [value for value in map(known, run.engines["start_s"]) if value is not None]:
        low, high = min(starts), max(starts)
        yield Text(
            "{n} engine started in {time}.",
            "{n} engines started in {time}.",
            n=len(starts),
            time=Interval(low, high, "s") if low < high else Number(low, "s"),
        )


def _facts(found: Baseline) -> Iterator[Fact]:
    for point in found.of("latency")[:1]:
        yield Fact(Text("A single request: wait for the first token"), point.number("ttft_p50_s"))
        yield Fact(Text("A single request: each further token"), point.number("tpot_p50_s"))
    sweep = [p for p in found.batches if not math.isnan(p.value(findings.RATE))]
    for point in sweep:
        if point not in (sweep[0], found.recommended, sweep[-1]):
            continue
        label = Text(
            "{n} request at once: tokens per second of all together",
            "{n} requests at once: tokens per second of all together",
            n=point.batch,
        )
        yield Fact(label, point.number(findings.RATE))


def _numbers(found: Baseline) -> dict[str, Json]:
    """Return for metrics.json: the laws, the doublings, each point's loads, and the pairs."""
    first = found.first_tokens
    return {
        "batch_law": _law(found.batch_law),
        "prompt_law": _law(found.prompt_law),
        "doublings": [
            {"from_tokens": low, "to_tokens": high, "factor": 2**power}
            for low, high, power in exponents(list(first), list(first.values()))
        ],
        "points": {
            str(point.row["case_id"]): {
                "prefill": _finite(point.prefill),
                "decode": _finite(point.decode),
            }
            for point in found.points
        },
        "cuda_graphs_speedup": {
            str(eager.batch): known(eager.step_s / graph.step_s) for eager, graph in found.pairs
        },
    }


def _law(law: Scaling | None) -> dict[str, Json] | None:
    if law is None:
        return None
    return _finite(law) | {"bend": known(law.bend), "bend_was_measured": law.bend_measured}


def _finite(values: Scaling | Load) -> dict[str, Json]:
    return {name: known(value) for name, value in dataclasses.asdict(values).items()}
