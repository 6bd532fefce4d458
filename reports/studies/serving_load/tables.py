"""Tables of a load test: results by load, percentiles, waiting, client beside server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nsight_prof.reports.page import Column, Number, Table, Text
from nsight_prof.reports.serving.points import (
    LATENCIES,
    PERCENTILES,
    REQUEST_RATE,
    TOKEN_RATE,
    amount,
    cell_column,
    engine_columns,
    gpu_columns,
    shape,
)
from nsight_prof.reports.studies.serving_load.points import RATE, LoadTest, Point, keeping
from nsight_prof.reports.studies.serving_load.rates import target

VERDICTS = {"yes": Text("yes"), "no": Text("no"), "not settled": Text("not settled")}
AT_RANDOM = Text("Requests that arrive at random (open loops)")
TRACE = Text("Requests that arrive as a trace has them (open loop)")
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
            found, "serving-open", TRACE if found.opened[0].is_trace else AT_RANDOM,
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
    note = Text(
        "{shape} each. Within targets: TTFT at most {ttft} and TPOT at most {tpot}; goodput: such "
        "requests per second. Rates are over the time until the last answer. Keeps up: requests do "
        "not pile up while they arrive; not settled: they do, and the law of the closed loops "
        "expects as many in the long run.",
        shape=shape(points[0]), ttft=target(found.slo.ttft_s), tpot=target(found.slo.tpot_s),
    )  # fmt: skip
    if points[0].closed:
        note = Text(
            "{shape} each. Within targets: TTFT at most {ttft} and TPOT at most {tpot}; goodput: "
            "such requests per second. The clients begin together and stay in step, which "
            "lengthens TTFT.",
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
        note=Text(
            "Linear between order statistics. Times of all tokens are recorded for some requests "
            "of a load, spread evenly over it, so that ITL has fewer requests than the others."
        ),
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
        note=Text(
            "Means over the requests. In the queue: from its arrival in the engine to its first "
            "step; prefill: from there to its first token, with all that those steps compute; "
            "front end: the rest of the server's own time; HTTP and client: what the client sees "
            "beyond. Running, waiting and KV cache: the most that looks at /metrics saw."
        ),
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
        note=Text(
            "Power, clock and utilization: means of NVML; utilization is the part of the time in "
            "which any kernel ran. Client's CPU: of one core."
        ),
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
        note=Text(
            "Means. Server: growth of its own counters and histograms at /metrics over the "
            "load. It counts from the arrival of a request in its front end, the client from the "
            "moment when the request was due."
        ),
        folded=True,
    )
