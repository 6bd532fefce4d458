"""The section of the target vllm-serve, with its tables and charts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from nsight_prof.parsers.cells import count, known, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Basis,
    Column,
    Fact,
    Finding,
    Json,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    arranged,
)
from nsight_prof.reports.page.charts import Chart, LineFigure, Panel, Series
from nsight_prof.reports.page.units import quantity, significant
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.serving.points import (
    LATENCIES,
    PERCENTILES,
    REQUEST_RATE,
    TOKEN_RATE,
    amount,
    cell_column,
    clock_limit,
    engine_columns,
    gpu_columns,
    lost_points,
    model_facts,
    shape,
)
from nsight_prof.reports.serving.timeline import timeline
from nsight_prof.reports.studies.serving_load import causes, rates
from nsight_prof.reports.studies.serving_load.causes import limit
from nsight_prof.reports.studies.serving_load.points import (
    ANSWERED,
    RATE,
    TARGET,
    LoadTest,
    Point,
    keeping,
    load_test,
)
from nsight_prof.reports.studies.serving_load.rates import target

SENTENCES = Sentences("serving_load")

KEY = "serving_load"
MADE_UP = SENTENCES.text("made_up")
OF_FILE = SENTENCES.text("of_file")
TRACE = SENTENCES.text("trace")
LOOPS = SENTENCES.text("loops")
METHOD = SENTENCES.texts("method")


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
    return [fact for point in points for fact in _latency_facts(point)]


def _latency_facts(point: Point) -> list[Fact]:
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
    rests = SENTENCES.text(
        "of_capacity",
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
        else SENTENCES.text(
            "timed",
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


VERDICTS = {"yes": Text("yes"), "no": Text("no"), "not settled": Text("not settled")}
AT_RANDOM = Text("Requests that arrive at random (open loops)")
AS_TRACED = Text("Requests that arrive as a trace has them (open loop)")
NO_METRICS = "the server's metrics were not read"


def tables(found: LoadTest) -> Iterator[Table[Any]]:
    """Yield the tables that the points allow."""
    closed = Column[Point](Text("Clients"), lambda p: round(p.load))
    if found.closed:
        yield _loads(
            found, "serving-closed", Text("Clients that wait for their answers (closed loops)"),
            found.closed, [closed, *_results()],
        )  # fmt: skip
    if found.opened:
        sent = Column[Point](Text("Sent, requests/s"), lambda p: amount(p.load))
        keeps_up = Column[Point](Text("Keeps up"), lambda p: _verdict(found, p))
        yield _loads(
            found, "serving-open", AS_TRACED if found.opened[0].is_trace else AT_RANDOM,
            found.opened, [sent, *_results(), keeps_up],
        )  # fmt: skip
    yield _percentiles(found)
    if any(point.first_token_parts() for point in found.loads):
        yield _waiting(found)
    yield _machine(found)
    if points := [p for p in found.loads if p.differences()]:
        yield _agreement(points)


def _load() -> Column[Point]:
    return Column(Text("Load"), lambda p: p.load_text)


def _verdict(found: LoadTest, point: Point) -> Text | None:
    state = keeping(point, found.law)
    return None if state is None else VERDICTS[state.verdict]


def _results() -> list[Column[Point]]:
    def latency(heading: Text, name: str, which: str) -> Column[Point]:
        return Column(heading, lambda p: p.latency(name, which))

    return [
        cell_column(Text("Requests"), "requests"),
        cell_column(Text("Answered"), "requests_per_s", REQUEST_RATE),
        cell_column(Text("Output"), RATE, TOKEN_RATE),
        latency(Text("TTFT, median"), "ttft", "p50"),
        latency(Text("TTFT, P95"), "ttft", "p95"),
        latency(Text("TPOT, median"), "tpot", "p50"),
        latency(Text("TPOT, P95"), "tpot", "p95"),
        latency(Text("ITL, P99"), "itl", "p99"),
        latency(Text("End to end, median"), "e2e", "p50"),
        Column(Text("Within targets"), lambda p: Number(p.met, "fraction")),
        Column(Text("Goodput"), lambda p: Number(p.goodput, REQUEST_RATE), REQUEST_RATE),
    ]


def _loads(
    found: LoadTest, key: str, title: Text, points: list[Point], columns: list[Column[Point]]
) -> Table[Point]:
    note = SENTENCES.text(
        "at_random",
        shape=shape(points[0]),
        ttft=target(found.slo.ttft_s),
        tpot=target(found.slo.tpot_s),
    )
    if points[0].closed:
        note = SENTENCES.text(
            "in_step",
            **note.values,
        )
    return Table(key, title, columns, points, note=note, refs=lambda p: [p.ref])


def _percentiles(found: LoadTest) -> Table[tuple[Point, str]]:
    def percentile(which: str) -> Column[tuple[Point, str]]:
        return Column(PERCENTILES[which], lambda row: row[0].latency(row[1], which))

    return Table(
        "serving-percentiles",
        Text("Percentiles of all latencies"),
        [
            Column(Text("Load"), lambda row: row[0].load_text),
            Column(Text("Latency"), lambda row: LATENCIES[row[1]]),
            Column(Text("Values"), lambda row: row[0].samples(row[1])),
            *map(percentile, PERCENTILES),
        ],
        [(p, name) for p in found.loads for name in LATENCIES if p.samples(name)],
        note=SENTENCES.note("serving-percentiles"),
        folded=True,
    )


def _waiting(found: LoadTest) -> Table[Point]:
    def phase(heading: Text, name: str) -> Column[Point]:
        return Column(heading, lambda p: Number(p.first_token_parts().get(name), "s",
                                                missing=NO_METRICS))  # fmt: skip

    def hits(point: Point) -> Number:
        prompts = point.server["prompt_tokens"]
        share = point.server["prefix_hit_tokens"] / prompts if prompts else None
        return Number(share, "fraction", missing=NO_METRICS)

    headings = {
        "queue": Text("In the queue"),
        "prefill": Text("Prefill"),
        "front": Text("Front end"),
        "server": Text("Prefill and front end"),
        "client": Text("HTTP and client"),
    }
    measured = {name for point in found.loads for name in point.first_token_parts()}
    columns = [phase(heading, name) for name, heading in headings.items() if name in measured]
    return Table(
        "serving-first-token",
        Text("What a first token waits for"),
        [
            _load(),
            cell_column(Text("TTFT, mean"), "ttft_mean_s"),
            *columns,
            *engine_columns(),
            Column(Text("Prefix cache hits"), hits),
        ],
        found.loads,
        note=SENTENCES.note("serving-first-token"),
        folded=True,
    )


def _machine(found: LoadTest) -> Table[Point]:
    return Table(
        "serving-machine",
        Text("GPU and client by load"),
        [
            _load(),
            *gpu_columns(),
            Column(Text("Client's CPU"), lambda p: Number(p.server["client_cpu"], "fraction")),
            Column(
                Text("Latest request late by"),
                lambda p: None if p.closed else Number(p.server["client_late_s"], "s"),
            ),
        ],
        found.loads,
        note=SENTENCES.note("serving-machine"),
        folded=True,
    )


def _agreement(points: list[Point]) -> Table[Point]:
    def server(heading: Text, name: str) -> Column[Point]:
        return Column(heading, lambda p: Number(p.server[name], "s"))

    def difference(heading: Text, name: str) -> Column[Point]:
        return Column(heading, lambda p: Number(p.differences().get(name), "fraction"))

    return Table(
        "serving-agreement",
        Text("Client beside server"),
        [
            _load(),
            cell_column(Text("Output, client"), RATE, TOKEN_RATE),
            cell_column(Text("Output, server"), "vllm_output_tokens_per_s", TOKEN_RATE),
            difference(Text("Output, difference"), "tokens"),
            cell_column(Text("TTFT, client"), "ttft_mean_s"),
            server(Text("TTFT, server"), "ttft_mean_s"),
            difference(Text("TTFT, difference"), "ttft"),
            cell_column(Text("TPOT, client"), "tpot_mean_s"),
            server(Text("TPOT, server"), "tpot_mean_s"),
            difference(Text("TPOT, difference"), "tpot"),
            cell_column(Text("End to end, client"), "e2e_mean_s"),
            server(Text("End to end, server"), "e2e_mean_s"),
            difference(Text("End to end, difference"), "e2e"),
        ],
        points,
        note=SENTENCES.note("serving-agreement"),
        folded=True,
    )


MS = 1e3
WIDE = 20.0
"""Ratio of the highest to the lowest latency from which on the axis is logarithmic."""
LINES = {"p50": "median", "p95": "P95", "p99": "P99"}


def charts(found: LoadTest) -> tuple[Chart | None, ...]:
    """Return the charts that the points allow: first that of rates, by which a server is sized."""
    return _open(found), _closed(found), _trade(found)


def _closed(found: LoadTest) -> LineFigure | None:
    """Return throughput and latencies over the number of clients."""
    sweep = found.closed
    if len(sweep) < 2:
        return None
    law = found.law
    output = Series("measured", tuple(p.load for p in sweep), tuple(p.value(RATE) for p in sweep))
    marks: tuple[tuple[float, Words], ...] = ()
    if law is not None and law.bend_measured:
        marks = ((law.bend, Text("bends at {n} clients", n=significant(law.bend, 2))),)
    return LineFigure(
        **SENTENCES.chart("serving-clients"),
        subtitle=_shape(sweep[0]),
        x_log=True,
        marks=marks,
        panels=(Panel("output tokens/s", (output,), "Output"), *_latencies(found, sweep)),
    )


def _open(found: LoadTest) -> LineFigure | None:
    """Return what was answered, latencies and the share within the targets over the rate."""
    sweep = found.opened
    if len(sweep) < 2:
        return None
    at, rates = tuple(p.load for p in sweep), "rates"  # one colour, so percentiles keep theirs
    answered = Panel(
        "requests/s",
        (
            Series("answered", at, tuple(p.value("requests_per_s") for p in sweep), group=rates),
            Series("within targets", at, tuple(p.goodput for p in sweep), group=rates),
            Series("sent", at, at, group=rates),
        ),
        "Requests",
    )
    return LineFigure(
        **SENTENCES.chart("serving-rates"),
        subtitle=SENTENCES.text(
            "open",
            shape=_shape(sweep[0]),
        ),
        panels=(answered, *_latencies(found, sweep)),
    )


def _latencies(found: LoadTest, sweep: list[Point]) -> tuple[Panel, ...]:
    return (
        _latency(sweep, "ttft", "TTFT", found.slo.ttft_s),
        _latency(sweep, "tpot", "TPOT", found.slo.tpot_s),
    )


def _latency(sweep: list[Point], name: str, title: str, target_s: float) -> Panel:
    at = tuple(p.load for p in sweep)
    lines = [
        Series(words, at, tuple(MS * p.percentile(name, which) for p in sweep))
        for which, words in LINES.items()
    ]
    drawn = tuple(line for line in lines if not all(map(math.isnan, line.y)))
    values = [y for line in drawn for y in line.y if not math.isnan(y)]
    highest, lowest = max(values, default=0.0), min(values, default=0.0)
    # A target far above all that was measured would flatten the lines.
    near = MS * target_s <= 2 * highest
    target = Text("target {time}", time=quantity(target_s, "s", 3))
    levels = ((MS * target_s, target),) if near else ()
    return Panel("ms", drawn, title, levels=levels, y_log=highest > WIDE * lowest > 0)


def _trade(found: LoadTest) -> LineFigure | None:
    """Return the throughput of the server over that of each user."""
    overloaded = {p.load for p, state in found.judged if state.verdict == "no"}
    lines = []
    for kind, unit, sweep in (
        (Text("closed loops"), Text("clients"), found.closed),
        (Text("open loops"), Text("requests/s"), found.opened),
    ):
        known = [p for p in sweep if p.user_rate > 0 and (p.closed or p.load not in overloaded)]
        if known:
            lines.append(
                Series(
                    Text(
                        "{kind}, {low} to {high} {unit}",
                        kind=kind,
                        low=f"{known[0].load:g}",
                        high=f"{known[-1].load:g}",
                        unit=unit,
                    ),
                    tuple(p.user_rate for p in known),
                    tuple(p.value(RATE) for p in known),
                )
            )
    if not any(len(line.x) > 1 for line in lines):
        return None
    return LineFigure(
        **SENTENCES.chart("serving-trade"),
        series=tuple(lines),
    )


def _shape(point: Point) -> Text:
    return Text(
        "{prompt} prompt and {output} output tokens per request.",
        prompt=point.prompt,
        output=point.output,
    )
