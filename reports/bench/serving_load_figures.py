"""Figures of a load test: latencies and throughput over the load, and what one costs the other."""

from __future__ import annotations

import math
from collections.abc import Callable

from nsight_prof.reports.bench.serving_load_points import LoadTest, Point, keeping
from nsight_prof.reports.bench.serving_load_tables import limit
from nsight_prof.reports.formats import count
from nsight_prof.reports.formats import significant as digits
from nsight_prof.reports.page.charts import Chart, LineFigure, Panel, Series

MS = 1e3
WIDE = 20.0
"""Ratio of the highest to the lowest latency from which on the axis is logarithmic."""
SHOWN = (("p50", "median"), ("p95", "95 %"), ("p99", "99 %"))


def figures(found: LoadTest) -> tuple[Chart, ...]:
    """Return the figures that the points allow."""
    made = (closed_figure(found), open_figure(found), trade_figure(found))
    return tuple(figure for figure in made if figure is not None)


def closed_figure(found: LoadTest) -> LineFigure | None:
    """Return throughput and latencies over the number of clients."""
    sweep = found.closed
    if len(sweep) < 2:
        return None
    law = found.law
    marks: tuple[tuple[float, str], ...] = ()
    if law is not None and law.bend_measured:
        marks = ((law.bend, f"bends at {digits(law.bend, 2)} clients"),)
    return LineFigure(
        name="serving-clients",
        title="Throughput and latencies over the number of clients",
        alt="Output tokens a second, time to first token and time per output token over the number "
        "of clients that wait for their answers",
        subtitle=_shape(sweep[0]),
        x_label="clients",
        x_log=True,
        marks=marks,
        panels=(
            _panel(sweep, "output tokens/s", "Output", lambda p: p.value("output_tokens_per_s")),
            *_latencies(found, sweep),
        ),
    )


def open_figure(found: LoadTest) -> LineFigure | None:
    """Return what was answered, latencies and the share within the targets over the rate."""
    sweep = found.opened
    if len(sweep) < 2:
        return None
    at = tuple(p.load for p in sweep)
    answered = Panel(
        "requests/s",
        (
            Series("answered", at, tuple(p.value("requests_per_s") for p in sweep)),
            Series("within targets", at, tuple(p.goodput for p in sweep)),
            Series("sent", at, at),
        ),
        "Requests",
    )
    return LineFigure(
        name="serving-rates",
        title="Answers and latencies over the rate of requests",
        alt="Requests answered a second, those within the targets, time to first token and time "
        "per output token over the rate at which requests arrive",
        subtitle=f"{_shape(sweep[0])} Arrivals are Poisson. answered: over the time until the last "
        "answer, so that it is below the rate for a short load",
        x_label="requests a second that arrive",
        panels=(answered, *_latencies(found, sweep)),
    )


def _latencies(found: LoadTest, sweep: list[Point]) -> tuple[Panel, ...]:
    return (
        _latency(sweep, "ttft", "Time to first token", found.slo.ttft_s),
        _latency(sweep, "tpot", "Time per output token", found.slo.tpot_s),
    )


def _latency(sweep: list[Point], name: str, title: str, target_s: float) -> Panel:
    at = tuple(p.load for p in sweep)
    lines = [
        Series(words, at, tuple(MS * p.percentile(name, which) for p in sweep))
        for which, words in SHOWN
    ]
    told = tuple(line for line in lines if not all(map(math.isnan, line.y)))
    values = [y for line in told for y in line.y if not math.isnan(y)]
    highest, lowest = max(values, default=0.0), min(values, default=0.0)
    # A target far above all that was measured would flatten the lines.
    near = MS * target_s <= 2 * highest
    levels = ((MS * target_s, f"target {limit(target_s)}"),) if near else ()
    return Panel("ms", told, title, levels=levels, y_log=highest > WIDE * lowest > 0)


def _panel(sweep: list[Point], unit: str, title: str, value: Callable[[Point], float]) -> Panel:
    at = tuple(p.load for p in sweep)
    return Panel(unit, (Series("measured", at, tuple(map(value, sweep))),), title)


def trade_figure(found: LoadTest) -> LineFigure | None:
    """Return what all users get together over what each of them gets."""
    lines = []
    for words, sweep in (("closed loops", found.closed), ("open loops", found.opened)):
        kept = (keeping(p, found.law) for p in sweep)
        known = [
            p
            for p, one in zip(sweep, kept, strict=True)
            if p.user_rate > 0 and (one is None or one.verdict != "no")
        ]
        if known:
            lines.append(
                Series(
                    words,
                    tuple(p.user_rate for p in known),
                    tuple(p.value("output_tokens_per_s") for p in known),
                )
            )
    if not any(len(line.x) > 1 for line in lines):
        return None
    return LineFigure(
        name="serving-trade",
        title="What all users get over what each of them gets",
        alt="Output tokens a second of the server over the tokens a second of one user",
        subtitle="Each point is a load that the server keeps up with; the lightest stand at the "
        "right. One user: tokens of an answer over the median latency of the whole request",
        x_label="tokens/s of one user",
        y_label="output tokens/s of the server",
        series=tuple(lines),
    )


def _shape(point: Point) -> str:
    return f"{count(point.prompt)} prompt and {count(point.output)} output tokens a request."
