"""Section about vLLM's server under load: latencies over clients and rates, goodput, waiting."""

from __future__ import annotations

import dataclasses
from typing import Any

from nsight_prof.parsers.cells import known
from nsight_prof.reports.bench import serving_load_causes as causes
from nsight_prof.reports.bench import serving_load_findings as told
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.bench.serving_load_figures import figures
from nsight_prof.reports.bench.serving_load_points import (
    TARGET,
    LoadTest,
    Point,
    keeping,
    load_test,
)
from nsight_prof.reports.bench.serving_load_tables import differences, limit, name_of, rate, tables
from nsight_prof.reports.bench.serving_lost import lost
from nsight_prof.reports.formats import seconds
from nsight_prof.reports.load import Run
from nsight_prof.reports.page import Verbatim
from nsight_prof.reports.serving.points import model_facts
from nsight_prof.reports.serving.timeline import timeline

KEY = "serving_load"
TITLE = "The server under load"
METHOD = (
    "The server listens on this machine only; the client streams completions of random prompts of "
    "token ids, no two alike, and ignores the end of a sequence, so that all answers are equally "
    "long. Every request counts, from the first to the last, as `vllm bench serve` has it.",
    "Closed loop: each client sends its next request when the one before is answered. Open loop: "
    "requests arrive at uniformly random times, which is a Poisson process of exactly the given "
    "rate, and count from the moment when they were due, also where the client was late.",
    "TTFT ends with the first piece of the answer that brings a token; TPOT is (last token - first "
    "token) / (tokens - 1) of a request; ITL is the time between two tokens, 0 where one piece "
    "brings both. The server tells with each piece how many tokens it has sent.",
    "Requests pile up where their number in the server grows, over the last two thirds of the "
    "arrivals, by more than three standard deviations of what chance gives (twice its mean as "
    "variance) and by more than a tenth of the arrivals. The law of the closed loops is that of "
    "one answer: t(n) = t0 + c max(0, n - k) for n clients; by Little's law an open loop of rate r "
    "has the n with n / t(n) = r in the server in the long run, and 1 / c is the highest rate.",
    "The server's own numbers are the growth of its counters and histograms at /metrics; a look "
    "at /metrics takes its front end some milliseconds, so that there is one a second.",
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured point of this target."""
    found = load_test(run)
    if not found.points:
        return None
    model = [("Model", f.value.text) for f in model_facts(run) if isinstance(f.value, Verbatim)]
    made = (
        told.limits(found),
        told.scaling(found),
        told.goodput(found),
        causes.waiting(found),
        told.bursts(found),
        causes.stalls(found),
        causes.front_end(found),
        causes.client(found),
        lost(run, TARGET),
        causes.power(found),
        causes.agreement(found),
    )
    return Section(
        key=KEY,
        title=TITLE,
        intro=_intro(found),
        findings=tuple(finding for finding in made if finding is not None),
        tables=tables(found),
        figures=(*figures(found), *timeline(run)),
        method=METHOD,
        numbers=numbers(found),
        plain=(*model, *_plain(found)),
    )


def _intro(found: LoadTest) -> str:
    engine = found.engine
    if engine is None:
        return ""
    split = f" on {engine.tensor_parallel} GPUs" if engine.tensor_parallel > 1 else ""
    weights = ", with random weights" if engine.dummy_weights else ""
    return (
        f"{engine.model}{split}{weights}, behind the OpenAI-compatible server of vLLM "
        f"{engine.version}. Targets: first token within {limit(found.slo.ttft_s)}, then "
        f"{limit(found.slo.tpot_s)} a token."
    )


def _plain(found: LoadTest) -> tuple[tuple[str, str], ...]:
    rows: list[tuple[str, str]] = []
    for point in (found.closed[:1] + found.closed[-1:])[: len(found.closed)]:
        words = f"With {name_of(point)}"
        rows.append((f"{words}, first word", seconds(point.percentile("ttft", "p50"))))
        rows.append((f"{words}, each further one", seconds(point.percentile("tpot", "p50"))))
        rows.append((f"{words}, all together", rate(point.value("output_tokens_per_s"))))
    return tuple(rows)


def numbers(found: LoadTest) -> dict[str, Any]:
    """Return for metrics.json: targets, the law of closed loops, and what each load gave."""
    law = found.law
    return {
        "targets": {name: known(value) for name, value in dataclasses.asdict(found.slo).items()},
        "client_law": None
        if law is None
        else {name: known(value) for name, value in dataclasses.asdict(law).items()}
        | {"bend": known(law.bend), "limit_requests_per_s": known(law.limit)},
        "points": {str(point.row["case"]): _numbers(found, point) for point in found.points},
    }


def _numbers(found: LoadTest, point: Point) -> dict[str, Any]:
    kept = keeping(point, found.law)
    return {
        "goodput_requests_per_s": known(point.goodput),
        "within_targets": known(point.met),
        "first_token_parts_s": point.first_token_parts(),
        "keeps_up": None if kept is None else kept.verdict,
        "requests_in_server": None if kept is None else known(kept.in_flight),
        "requests_in_server_by_law": None if kept is None else known(kept.expected),
        "client_over_server": {name: known(value) for name, value in differences(point).items()},
    }
