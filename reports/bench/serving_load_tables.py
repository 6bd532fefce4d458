"""Tables of a load test: what each load gave, percentiles, waiting, client beside server."""

from __future__ import annotations

import math

from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.bench.serving_load_points import SERVER, LoadTest, Point, keeping
from nsight_prof.reports.formats import NA, count, data_size, difference, percent, seconds, share
from nsight_prof.reports.formats import significant as digits

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
QUANTITIES = (
    ("ttft", "Time to first token (TTFT)"),
    ("tpot", "Time per output token after it (TPOT)"),
    ("itl", "Between two tokens (ITL)"),
    ("e2e", "Whole request (end to end)"),
)


KEEPS_UP = (
    " Rates are over the time until the last answer. Keeps up: requests do not pile up while they "
    "arrive; not settled: they do, and the law of the closed loops expects as many in the long run."
)


def tables(found: LoadTest) -> tuple[BenchTable, ...]:
    """Return the tables that the points allow."""
    made = (
        load_table(found, found.closed, "Clients that wait for their answers (closed loops)"),
        load_table(found, found.opened, "Requests that arrive at random (open loops)"),
        percentile_table(found),
        waiting_table(found),
        machine_table(found),
        agreement_table(found),
    )
    return tuple(table for table in made if table is not None)


def rate(value: float) -> str:
    """Return tokens a second: "8,210 tokens/s"."""
    return f"{count(value) if value >= 100 else digits(value)} tokens/s"


def capital(text: str) -> str:
    """Return a text that begins a sentence."""
    return text[:1].upper() + text[1:]


def name_of(point: Point) -> str:
    """Return what a reader calls a load: "8 clients", "16 requests/s"."""
    if point.closed:
        return f"{count(point.load)} client{'' if point.load == 1 else 's'}"
    return f"{brief(point.load)} request{'' if point.load == 1 else 's'}/s"


def brief(value: float) -> str:
    """Return a rate without digits that say nothing: "16", "2.5"."""
    return f"{value:,g}" if value < 1e6 else digits(value)


def load_table(found: LoadTest, points: list[Point], title: str) -> BenchTable | None:
    """Return rates, latencies and the share within the targets by load."""
    if not points:
        return None
    closed = points[0].closed
    return BenchTable(
        title,
        (
            "Clients" if closed else "Requests/s sent",
            "Requests",
            "Answered",
            "Output",
            "TTFT, median",
            "TTFT, 95 %",
            "TPOT, median",
            "TPOT, 95 %",
            "ITL, 99 %",
            "Whole request, median",
            "Within targets",
            "Goodput",
            *(() if closed else ("Keeps up",)),
        ),
        tuple(_load_row(found, point) for point in points),
        f"{count(points[0].prompt)} prompt and {count(points[0].output)} output tokens each. "
        f"Within targets: TTFT at most {limit(found.slo.ttft_s)} and TPOT at most "
        f"{limit(found.slo.tpot_s)}; goodput: such requests a second. A percentile is told from as "
        "many values on as leave one beyond it." + ("" if closed else KEEPS_UP),
    )


def limit(value: float) -> str:
    """Return a target: "500 ms"; "any" where there is none."""
    return "any" if math.isinf(value) else seconds(value)


def _load_row(found: LoadTest, point: Point) -> tuple[str, ...]:
    cells = (
        brief(point.load),
        count(point.value("requests")),
        f"{digits(point.value('requests_per_s'))} /s",
        rate(point.value("output_tokens_per_s")),
        seconds(point.percentile("ttft", "p50")),
        seconds(point.percentile("ttft", "p95")),
        seconds(point.percentile("tpot", "p50")),
        seconds(point.percentile("tpot", "p95")),
        seconds(point.percentile("itl", "p99")),
        seconds(point.percentile("e2e", "p50")),
        share(point.met),
        f"{digits(point.goodput)} /s",
    )
    if point.closed:
        return cells
    kept = keeping(point, found.law)
    return (*cells, NA if kept is None else kept.verdict)


def percentile_table(found: LoadTest) -> BenchTable | None:
    """Return all percentiles of all latencies."""
    rows = [
        (
            name_of(point),
            words,
            count(point.samples(name)),
            *(seconds(point.percentile(name, which)) for which in PERCENTILES),
        )
        for point in (*found.closed, *found.opened)
        for name, words in QUANTITIES
        if point.samples(name)
    ]
    if not rows:
        return None
    return BenchTable(
        "Percentiles of all latencies",
        ("Load", "Latency", "Values", "Mean", "Median", "90 %", "95 %", "99 %"),
        tuple(rows),
        "Linear between order statistics. Times of all tokens are kept of some requests of a load, "
        "spread evenly over it, so that ITL has fewer requests than the others.",
        ("Load", "Latency"),
        folded=True,
    )


def waiting_table(found: LoadTest) -> BenchTable | None:
    """Return what the time to first token is made of, and what waits in the server."""
    points = [*found.closed, *found.opened]
    if not any(point.first_token_parts() for point in points):
        return None
    return BenchTable(
        "What a first token waits for",
        (
            "Load",
            "TTFT, mean",
            "In the queue",
            "Prefill",
            "Front end",
            "HTTP and client",
            "Most running",
            "Most waiting",
            "KV cache in use",
            "Preemptions",
            "Prefix cache hits",
        ),
        tuple(_waiting_row(point) for point in points),
        "Means over the requests. In the queue: from its arrival in the engine to its first step; "
        "prefill: from there to its first token, with what else those steps compute; front end: "
        "the rest of the server's own time; HTTP and client: what the client sees beyond. Running, "
        "waiting and KV cache: the most that looks at /metrics saw.",
        ("Load",),
        folded=True,
    )


def _waiting_row(point: Point) -> tuple[str, ...]:
    parts, prompts = point.first_token_parts(), point.server["prompt_tokens"]
    return (
        name_of(point),
        seconds(point.value("ttft_mean_s")),
        *(seconds(parts.get(name)) for name in ("queue", "prefill", "front", "client")),
        count(point.value("running_max")),
        count(point.value("waiting_max")),
        share(point.value("kv_usage_max")),
        count(point.value("preemptions")),
        share(point.server["prefix_hit_tokens"] / prompts) if prompts else NA,
    )


def machine_table(found: LoadTest) -> BenchTable | None:
    """Return power, clocks and memory by load, and how busy the client was."""
    points = [*found.closed, *found.opened]
    if not points:
        return None
    return BenchTable(
        "The GPU and the client meanwhile",
        (
            "Load",
            "Power",
            "SM clock",
            "GPU utilization",
            "Temperature",
            "Memory in use",
            "Clock held down by",
            "Client's CPU",
            "Latest request late by",
        ),
        tuple(_machine_row(point) for point in points),
        "Power, clock and utilization: means of NVML; utilization is the part of the time in which "
        "any kernel ran. Client's CPU: of one core.",
        ("Load", "Clock held down by"),
        folded=True,
    )


def _machine_row(point: Point) -> tuple[str, ...]:
    watts, clock = point.value("power_w_mean"), point.value("sm_clock_hz_mean")
    heat = point.value("temperature_c_max")
    return (
        name_of(point),
        NA if math.isnan(watts) else f"{digits(watts)} W",
        NA if math.isnan(clock) else f"{digits(clock / 1e9)} GHz",
        percent(point.value("gpu_util_pct_mean")),
        NA if math.isnan(heat) else f"{count(heat)} °C",
        data_size(point.value("memory_used_bytes_max")),
        str(point.row["throttle_reasons"] or "").replace("_", " ") or "–",
        share(point.server["client_cpu"]),
        NA if point.closed else seconds(point.server["client_late_s"]),
    )


def agreement_table(found: LoadTest) -> BenchTable | None:
    """Return the client's numbers beside those of the server's own metrics."""
    points = [p for p in (*found.closed, *found.opened) if differences(p)]
    if not points:
        return None
    return BenchTable(
        "Client beside server",
        (
            "Load",
            *(
                f"{what}, {who}"
                for what in ("Output", "TTFT", "TPOT", "Whole request")
                for who in ("client", "server", "difference")
            ),
        ),
        tuple(_agreement_row(point) for point in points),
        "Means. Server: growth of vLLM's own counters and histograms at /metrics over the load. It "
        "counts from the arrival of a request in its front end, the client from the moment when "
        "the request was due.",
        ("Load",),
        folded=True,
    )


def differences(point: Point) -> dict[str, float]:
    """Return client over server - 1 of tokens/s and mean latencies, where both are known."""
    own = {"tokens": point.value("vllm_output_tokens_per_s")}
    own |= {name: point.server[f"{name}_mean_s"] for name in SERVER}
    ours = {"tokens": point.value("output_tokens_per_s")}
    ours |= {name: point.value(f"{name}_mean_s") for name in SERVER}
    both = {name: ours[name] / own[name] - 1 for name in own if own[name] > 0}
    return {name: value for name, value in both.items() if not math.isnan(value)}


def _agreement_row(point: Point) -> tuple[str, ...]:
    found = differences(point)
    cells = [
        name_of(point),
        rate(point.value("output_tokens_per_s")),
        rate(point.value("vllm_output_tokens_per_s")),
        difference(found.get("tokens")),
    ]
    for name in SERVER:
        cells += [seconds(point.value(f"{name}_mean_s")), seconds(point.server[f"{name}_mean_s"])]
        cells.append(difference(found.get(name)))
    return tuple(cells)
