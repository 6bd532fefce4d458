"""The section of the target vllm-serve."""

from __future__ import annotations

import dataclasses

from nsight_prof.parsers.cells import known, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Fact, Json, Section, Text, Verbatim, arranged
from nsight_prof.reports.serving.points import clock_limit, lost_points, model_facts
from nsight_prof.reports.serving.timeline import timeline
from nsight_prof.reports.studies.serving_load import causes, rates
from nsight_prof.reports.studies.serving_load.basis import basis
from nsight_prof.reports.studies.serving_load.charts import charts
from nsight_prof.reports.studies.serving_load.limit import limit
from nsight_prof.reports.studies.serving_load.points import (
    RATE,
    TARGET,
    LoadTest,
    Point,
    keeping,
    load_test,
)
from nsight_prof.reports.studies.serving_load.tables import tables

KEY = "serving_load"
MADE_UP = Text(
    "The server listens on this machine only; the client streams completions of random prompts "
    "of token ids, no two alike, and ignores the end of a sequence, so that all answers are "
    "equally long. Every request counts, from the first to the last, as `vllm bench serve` has "
    "it."
)
OF_FILE = Text(
    "The client streams answers to the requests of a file, over and over where a load has more, so "
    "that a prefix cache may find them. A row without a text has a random prompt of its length, "
    "whose first blocks are those that its hash_ids name. Answers have the length that the file "
    "names, else that of the recipe: the end of a sequence is ignored."
)
TRACE = Text(
    "Requests arrive as the trace has them, and count from the moment when they were due, also "
    "where the client was late; the rate is their mean."
)
LOOPS = Text(
    "Closed loop: each client sends its next request when the one before is answered. Open "
    "loop: requests arrive at uniformly random times, which is a Poisson process of exactly "
    "the given rate, and count from the moment when they were due, also where the client was "
    "late."
)
METHOD = (
    Text(
        "TTFT ends with the first piece of the answer that brings a token; TPOT is (last token - "
        "first token) / (tokens - 1) of a request; ITL is the time between two tokens, 0 where one "
        "piece brings both. The server reports with each piece how many tokens it has sent."
    ),
    Text(
        "Requests pile up where their number in the server grows, over the last two thirds of the "
        "arrivals, by more than three standard deviations of what chance gives (twice its mean as "
        "variance) and by more than a tenth of the arrivals. The law of the closed loops is that "
        "of one answer: t(n) = t0 + c max(0, n - k) for n clients; by Little's law an open loop of "
        "rate r has the n with n / t(n) = r in the server in the long run. It holds for as many "
        "clients as were measured; the capacity is what was answered, not the law's limit 1 / c."
    ),
    Text(
        "The server's own numbers are the growth of its counters and histograms at /metrics; a "
        "look at /metrics takes its front end some milliseconds, so that there is one per second."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section; None where the run has no measured point of this target."""
    found = load_test(run)
    if not found.points:
        return None
    limiting, agreement = limit(found), causes.agreement(found)
    findings = (
        *rates.limits(found),
        limiting,
        rates.scaling(found),
        rates.goodput(found),
        causes.waiting(found),
        rates.bursts(found),
        causes.stalls(found),
        causes.front_end(found),
        causes.client(found),
        lost_points(run, TARGET),
        clock_limit(found.loads, lambda point: point.load_text),
        agreement,
    )
    return Section(
        KEY,
        Text("The server under load"),
        arranged(
            _intro(found),
            findings,
            (*charts(found), *timeline(run)),
            tables(found),
            (*_sent(found), *METHOD),
        ),
        numbers=_numbers(found),
        facts=(*model_facts(run), *_facts(found)),
        basis=tuple(basis(found, limiting, agreement)),
    )


def _sent(found: LoadTest) -> tuple[Text, Text]:
    """What was sent, and when."""
    points = found.points
    return (
        OF_FILE if any(text(point.row["requests_of"]) for point in points) else MADE_UP,
        TRACE if any(point.is_trace for point in points) else LOOPS,
    )


def _intro(found: LoadTest) -> list[Text]:
    engine = found.engine
    if engine is None:
        return []
    return [
        Text(
            "Model {model} behind the OpenAI-compatible server of {engine} {version} on {n} GPU. "
            "Targets: TTFT {ttft}, TPOT {tpot}.",
            "Model {model} behind the OpenAI-compatible server of {engine} {version} on {n} GPUs. "
            "Targets: TTFT {ttft}, TPOT {tpot}.",
            model=Verbatim(engine.model), engine=Verbatim(engine.product),
            version=Verbatim(engine.version), n=engine.tensor_parallel,
            ttft=rates.target(found.slo.ttft_s), tpot=rates.target(found.slo.tpot_s),
        )
    ]  # fmt: skip


def _facts(found: LoadTest) -> list[Fact]:
    """Return the latencies of the lightest load and of the one to run at.

    Without an open loop that the server keeps up with these are closed loops.
    """
    points = [*found.closed[:1], *([found.recommended] if found.recommended else [])]
    if found.recommended is None:
        points += found.closed[1:][-1:]
    return [fact for point in points for fact in _latencies(point)]


def _latencies(point: Point) -> list[Fact]:
    load = point.load_text
    ttft, tpot = (point.latency(quantity, "p50") for quantity in ("ttft", "tpot"))
    return [
        Fact(Text("{load}: wait for the first word, median", load=load), ttft),
        Fact(Text("{load}: each further word or part of one, median", load=load), tpot),
        Fact(Text("{load}: text for all together", load=load), point.number(RATE)),
    ]


def _numbers(found: LoadTest) -> dict[str, Json]:
    """Return for metrics.json: targets, the law of closed loops, and the results by load."""
    law = found.law
    return {
        "targets": {name: known(value) for name, value in dataclasses.asdict(found.slo).items()},
        "client_law": None
        if law is None
        else {name: known(value) for name, value in dataclasses.asdict(law).items()}
        | {"bend": known(law.bend), "limit_requests_per_s": known(law.limit)},
        "points": {str(point.row["case"]): _point(found, point) for point in found.points},
    }


def _point(found: LoadTest, point: Point) -> dict[str, Json]:
    state = keeping(point, found.law)
    return {
        "goodput_requests_per_s": known(point.goodput),
        "within_targets": known(point.met),
        "first_token_parts_s": point.first_token_parts(),
        "keeps_up": None if state is None else state.verdict,
        "requests_in_server": None if state is None else known(state.in_flight),
        "requests_in_server_by_law": None if state is None else known(state.expected),
        "client_over_server": {name: known(value) for name, value in point.differences().items()},
    }
