"""Figures of a prediction: throughput and latency over load, the KV cache, and parts of steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, grouped, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Text, Value, Verbatim, Word
from nsight_prof.reports.page.charts import LineFigure, Panel, Series, Stack, StackFigure, spaced
from nsight_prof.reports.page.formats import duration, percent
from nsight_prof.reports.page.values import Words

SAME = ("experiment", "prompt_tokens", "output_tokens")
"""What points of one line have in common."""
LOADS = {
    "batch": ("batch", Text("Requests at once (batch)"), Text("Latency over requests at once")),
    "closed": ("concurrency", Text("Clients (closed loop)"), Text("Latency over clients")),
    "open": (
        "request_rate",
        Text("Requests per second (open loop)"),
        Text("Latency over requests per second"),
    ),
}
"""How requests come -> column of the load, what it is called, and the title over it."""
LIMITS = {
    "dram": Text("memory"),
    "tensor": Text("compute"),
    "host": Text("the host"),
    "gpu": Text("the GPU"),
    "link": Text("other GPUs"),
}
MILLI, NANO = 1e3, 1e9
NAMED = 6
"""Operators of a step that have a colour of their own."""
MOST = 12
"""Steps that are drawn and that have a table: evenly spaced ones of all."""
MOST_LINES = 6
LENGTHS = tuple(2.0**power for power in range(7, 18))
"""Tokens of a request over which the KV cache is drawn."""
NEAR = 2.0
"""The end of the KV cache is drawn where it is at most this many times the largest load."""


def different(steps: Sequence[Row]) -> list[Row]:
    """Return the steps without those that compute the same: eight requests are eight clients."""
    keys = [(row["kind"], row["tokens"], known(row["context"])) for row in steps]
    return [row for index, row in enumerate(steps) if keys.index(keys[index]) == index]


@dataclass(frozen=True)
class Lines:
    """The points of each line by its name, by growing load; `left_out`: lines without room."""

    drawn: tuple[tuple[Text, list[Row]], ...]
    left_out: int

    @property
    def note(self) -> Value:
        """What a reader must know of lines that are not there."""
        if not self.left_out:
            return ""
        drawn = len(self.drawn)
        return Text(" {n} of {total} lines are drawn.", n=drawn, total=drawn + self.left_out)


def _lines(points: Sequence[Row], *experiments: str) -> Lines:
    drawn = (r for r in points if r["status"] == "ok" and r["experiment"] in experiments)
    lines = grouped(drawn, lambda row: tuple(row[name] for name in SAME))
    spread = spaced(list(lines.values()), MOST_LINES)
    labelled = (
        (
            Text(
                "{experiment}, {prompt} + {output} tokens",
                experiment=Word(text(row["experiment"])),
                prompt=int(row["prompt_tokens"]),
                output=int(row["output_tokens"]),
            ),
            sorted(rows, key=_load),
        )
        for row, *rest in spread
        for rows in [[row, *rest]]
    )
    return Lines(tuple(labelled), len(lines) - len(spread))


def _load(row: Row) -> float:
    return number(row[LOADS[text(row["experiment"])][0]])


def pareto(points: Sequence[Row]) -> LineFigure | None:
    """Return throughput per GPU against interactivity, each point with its load."""
    lines = _lines(points, *LOADS)
    series = [
        Series(
            name,
            tuple(1 / number(row["tpot_p50_s"]) for row in rows),
            tuple(number(row["output_tokens_per_s"]) / int(row["tensor_parallel"]) for row in rows),
            texts=tuple(f"{_load(row):g}" for row in rows),
        )
        for name, rows in lines.drawn
    ]
    if sum(map(len, (line.x for line in series))) < 2:
        return None
    return LineFigure(
        "predicted-pareto",
        "Throughput per GPU against interactivity",
        "Lines: output tokens/s per GPU over tokens/s per user; each point is a load",
        "Interactivity: tokens/s per user (1 / TPOT)",
        "Output tokens/s per GPU",
        tuple(series),
        subtitle=Text(
            "Each point has its load beside it: requests of a batch, clients, or requests per "
            "second. Up and to the right is better.{note}",
            note=lines.note,
        ),
    )


def latencies(points: Sequence[Row], kv_tokens: float, max_requests: float) -> Iterator[LineFigure]:
    """Yield TTFT and TPOT over the load, with their intervals, for each way that requests come."""
    for experiment, (_, label, title) in LOADS.items():
        lines = _lines(points, experiment)
        if max((len(rows) for _, rows in lines.drawn), default=0) < 2:
            continue
        ends: list[tuple[float, Words]] = []
        if experiment != "open":
            ends = list(_ends([rows for _, rows in lines.drawn], kv_tokens, max_requests))
        yield LineFigure(
            f"predicted-latency-{experiment}",
            title,
            "Lines with bands: median TTFT and TPOT over the load",
            label,
            panels=(
                Panel("TTFT, median (ms)", _over(lines, "ttft_p50_s"), y_log=True),
                Panel("TPOT, median (ms)", _over(lines, "tpot_p50_s")),
            ),
            x_log=True,
            marks=tuple(ends),
            subtitle=Text("Bands are the intervals of the points.{note}", note=lines.note),
        )  # fmt: skip


def _over(lines: Lines, column: str) -> tuple[Series, ...]:
    """Return a column over the load."""
    return tuple(
        with_band(name, tuple(map(_load, rows)), rows, column) for name, rows in lines.drawn
    )


def with_band(label: Words, x: tuple[float, ...], rows: Sequence[Row], name: str) -> Series:
    """Return a column of rows in milliseconds with its interval, where that has an upper end."""
    value, low, high = (
        tuple(MILLI * number(row[name + end]) for row in rows) for end in ("", "_low", "_high")
    )
    band = (low, high) if any(map(math.isfinite, high)) else (None, None)
    return Series(label, x, value, *band)


def _ends(
    lines: Sequence[list[Row]], kv_tokens: float, max_requests: float
) -> Iterator[tuple[float, Words]]:
    """Yield the loads at which the KV cache of each line is full, and the engine's own limit."""
    largest = max(_load(rows[-1]) for rows in lines)
    for rows in lines:
        tokens = int(rows[0]["prompt_tokens"]) + int(rows[0]["output_tokens"])
        requests_of_cache = kv_tokens / tokens
        if 1 <= requests_of_cache <= NEAR * _load(rows[-1]):
            yield requests_of_cache, Text("KV cache full ({n} tokens)", n=tokens)
    if max_requests <= NEAR * largest:
        yield max_requests, f"max_num_seqs {max_requests:,.0f}"


def kv_cache(points: Sequence[Row], kv_tokens: float, max_requests: float) -> LineFigure | None:
    """Return how many requests run at once, over their length: the KV cache or vLLM's limit."""
    if not kv_tokens > 0:
        return None
    at_once = tuple(min(kv_tokens / tokens, max_requests) for tokens in LENGTHS)
    rows = [row for row in points if row["experiment"] in ("batch", "closed")]
    lengths = tuple(number(row["prompt_tokens"]) + number(row["output_tokens"]) for row in rows)
    return LineFigure(
        "predicted-kv-cache",
        "How many requests run at once",
        "Line: most requests at once over the tokens of a request; points: the predicted loads",
        "Tokens of a request, prompt and output",
        "Requests at once",
        (
            Series("most requests at once", LENGTHS, at_once),
            Series("predicted loads", lengths, tuple(map(_load, rows)), style="points"),
        ),
        x_log=True,
        y_log=True,
        levels=((max_requests, f"max_num_seqs {max_requests:,.0f}"),)
        if known(max_requests)
        else (),
        subtitle=Text(
            "The KV cache of {n} tokens is full where the line falls; above it requests wait, or "
            "lose their place and are computed again.",
            n=round(kv_tokens),
        ),
    )


def steps(run: Run, kind: str) -> StackFigure | None:
    """Return what the steps of a kind spend their time on: decode steps, or a prompt token."""
    rows = records(run.predicted_steps)
    chosen = spaced(different([row for row in rows if row["kind"] == kind]), MOST)
    if not chosen:
        return None
    of_kind = run.predicted_operators[run.predicted_operators["kind"].eq(kind)]
    by_share = of_kind.groupby("operator")["share"].sum().sort_values(ascending=False)
    largest = [str(name) for name in by_share.index[:NAMED]]
    groups = (*largest, "gaps between kernels", "other operators")
    operators_of_case = {case: records(frame) for case, frame in of_kind.groupby("case")}
    bars = tuple(_stack(row, operators_of_case[row["case"]], largest) for row in chosen)
    decode = kind == "decode"
    return StackFigure(
        f"predicted-{kind}",
        Text("What a decode step spends its time on")
        if decode
        else Text("What a prompt token costs"),
        "Stacked bars: GPU time of each operator of a decode step"
        if decode
        else "Stacked bars: GPU time of each operator of a prefill step, over its tokens",
        Text("GPU time of a step") if decode else Text("GPU time per prompt token"),
        groups,
        bars,
        subtitle="Each operator as recorded steps correct it. Beside each bar: its sum, and the "
        "part of it in operators that memory or compute bounds, by the datasheet.",
    )


def _stack(step: Row, operators: Sequence[Row], largest: Sequence[str]) -> Stack:
    per = 1.0 if step["kind"] == "decode" else number(step["tokens"])
    per /= correction(step)
    seconds = {name: 0.0 for name in (*largest, "other")}
    for row in operators:
        name = text(row["operator"])
        seconds[name if name in largest else "other"] += number(row["seconds"])
    gaps = known(step["gap_s"]) or 0.0
    total = number(step["gpu_s"])
    limit, share = largest_bound(step, operators)
    values = (*(seconds[name] for name in largest), gaps, seconds["other"])
    tokens = int(step["tokens"])
    where = Text("{n} prompt token", "{n} prompt tokens", n=tokens)
    if step["kind"] == "decode":
        where = Text(
            "{n} request of {context} tokens",
            "{n} requests of {context} tokens",
            n=tokens,
            context=round(number(step["context"])),
        )
    return Stack(
        where,
        tuple(NANO * value / per for value in values),
        Text(
            "{time}, {share} {limit}",
            time=Verbatim(duration(NANO * total / per)),
            share=Verbatim(percent(100 * share)),
            limit=limit,
        ),
    )


def correction(step: Row) -> float:
    """Return how many times as long a step takes as what it is the sum of, its operators.

    By how recorded steps lay from such sums, and by the power limit.
    """
    return number(step["seconds"]) / max(number(step["gpu_s"]), known(step["host_s"]) or 0.0)


def largest_bound(step: Row, operators: Sequence[Row]) -> tuple[Value, float]:
    """Return what bounds most of the GPU time of a step by the datasheet, and what part."""
    bounds = dict.fromkeys((text(row["bound_by"]) for row in operators), 0.0)
    for row in operators:
        bounds[text(row["bound_by"])] += number(row["seconds"])
    name = max(bounds, key=lambda name: bounds[name])
    return LIMITS.get(name) or Verbatim(name), bounds[name] / number(step["gpu_s"])
