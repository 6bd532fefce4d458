"""The section of the target vllm-serve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from nsight_prof.parsers.cells import count, known, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import (
    Basis,
    Fact,
    Finding,
    Json,
    Section,
    Text,
    Value,
    Verbatim,
    arranged,
)
from nsight_prof.reports.serving.points import PERCENTILES, clock_limit, lost_points, model_facts
from nsight_prof.reports.serving.timeline import timeline
from nsight_prof.reports.studies.serving_load import causes, rates
from nsight_prof.reports.studies.serving_load.causes import limit
from nsight_prof.reports.studies.serving_load.charts import charts
from nsight_prof.reports.studies.serving_load.points import (
    ANSWERED,
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
        None if limiting and limiting.rule == "front_end" else causes.front_end(found),
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
        Fact(
            Text("{load}: tokens generated per second, all together", load=load), point.number(RATE)
        ),
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


MEDIAN = Text("median")


def basis(found: LoadTest, limit: Finding | None, agreement: Finding | None) -> Iterator[Basis]:
    """Yield how many requests were timed, how far client and server agree, and what is open."""
    point = found.recommended or found.capacity
    if point is not None:
        yield _timed(point)
    if found.planned is not None and found.capacity is not None:
        yield _of_capacity(found, found.capacity)
    if agreement is not None:
        yield Basis(agreement.verdict)
    known = limit is not None and limit.rule == "limit"
    unknown = [*([] if known else [Text("what limits throughput")]), *_loads_not_measured(found)]
    not_measured = Text("Not measured: {what}.", what=unknown)
    yield Basis(not_measured, not_measured)


def _of_capacity(found: LoadTest, point: Point) -> Basis:
    """State what the planned rate rests on, and by how much the overloaded loops differ."""
    behind = [p for p in found.opened if p is not point and p.load > point.value(ANSWERED)]
    overloaded: Text | str = ""
    if behind:
        lowest = min(behind, key=lambda p: p.value(ANSWERED))
        overloaded = Text(
            " {load} were answered at {rate}, {part} less.",
            load=lowest.load_text,
            rate=lowest.number(ANSWERED),
            part=lowest.derived(1 - lowest.value(ANSWERED) / point.value(ANSWERED), "fraction"),
        )
    rests = Text(
        "The rate rests on {most}, the most that was answered (at {load}, {requests} requests in "
        "{time}): too short to show what minutes would.{other}",
        most=point.number(ANSWERED),
        load=point.load_text,
        requests=point.number("requests"),
        time=point.number("duration_s"),
        other=overloaded,
    )
    return Basis(rests, rests)


def _timed(point: Point) -> Basis:
    """State the requests at the load to run at, and the intervals of its latencies."""
    repeats = count(point.row["repeats"]) or 1
    values: dict[str, Value] = {
        "load": point.load_text,
        "requests": point.number("requests"),
        "times": Text("once") if repeats == 1 else Text("{n} times", n=repeats),
    }
    which = "p50" if math.isnan(point.percentile("ttft", "p95")) else "p95"
    ttft, tpot = point.interval("ttft", which), point.interval("tpot", "p50")
    intervals: list[Value] = [
        Text(
            "{interval} for {latency} ({percentile})",
            interval=ends,
            latency=latency,
            percentile=name,
        )
        for latency, name, ends in (
            (Text("TTFT"), MEDIAN if which == "p50" else PERCENTILES[which], ttft),
            (Text("TPOT"), MEDIAN, tpot),
        )
        if ends.low is not None
    ]
    timed = Text("At {load} {requests} requests were timed in {time}, {times}.",
                 time=point.number("duration_s"), **values)  # fmt: skip
    if not intervals:
        return Basis(timed, timed)
    return Basis(
        Text("{timed} 95 % intervals: {intervals}.", timed=timed, intervals=intervals),
        timed
        if ttft.low is None
        else Text(
            "At {load} {requests} requests were timed, {times}: the {wait} for the first word may "
            "as well be {interval}.",
            wait=point.latency("ttft", which),
            interval=ttft,
            **values,
        ),
    )


def _loads_not_measured(found: LoadTest) -> Iterator[Text]:
    """Yield what a reader might take from the numbers though nothing measured it."""
    if not found.judged:
        yield Text("requests that arrive at random")
        return
    if found.behind is None:
        yield Text("rates above {load}", load=found.opened[-1].load_text)
    elif found.recommended is not None:
        yield Text(
            "rates between {load} and {over}",
            load=found.recommended.load_text,
            over=found.behind[0].load_text,
        )
    longest = max((p for p, _ in found.judged), key=lambda p: p.value("duration_s"))
    yield Text("load for longer than {time}", time=longest.number("duration_s"))
    yield Text("other lengths of prompts and answers")
