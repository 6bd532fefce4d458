"""The section of the target vllm-baseline, with its tables and charts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

from nsight_prof.parsers.cells import known
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Fact,
    Interval,
    Json,
    Number,
    Section,
    Table,
    Text,
    Verbatim,
    arranged,
)
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series
from nsight_prof.reports.page.units import quantity, significant
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.serving.points import (
    LATENCIES,
    PERCENTILES,
    TOKEN_RATE,
    cell_column,
    clock_limit,
    engine_columns,
    gpu_columns,
    lost_points,
    model_facts,
    shape,
)
from nsight_prof.reports.serving.scaling_fit import Scaling, exponents
from nsight_prof.reports.serving.timeline import timeline
from nsight_prof.reports.studies.serving_baseline import findings
from nsight_prof.reports.studies.serving_baseline.findings import (
    GRAPHS,
    RATE,
    TARGET,
    Baseline,
    Load,
    Point,
    baseline,
)

SENTENCES = Sentences("serving_baseline")

KEY = "serving_baseline"
METHOD = SENTENCES.texts("method")


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


FOLD_FROM = 12
MIN_P99 = 100
"""Requests below which the 99th percentile is little more than the slowest of them."""
GAUGES = ("kv_usage_max", "power_w_mean", "sm_clock_hz_mean", "gpu_util_pct_mean")
Pair = tuple[Point, Point]


def tables(found: Baseline) -> Iterator[Table[Any]]:
    """Yield the tables that the points allow."""
    if points := found.of("latency"):
        yield _latencies(points)
    if sweep := found.batches:
        yield _batches(sweep)
    if sampled := [p for p in sweep if any(not math.isnan(p.value(c)) for c in GAUGES)]:
        yield _machine(sampled)
    if points := found.of("lengths", found.mode):
        yield _lengths(sorted(points, key=lambda p: (p.prompt, p.output)))
    if found.pairs:
        yield _graphs(found.pairs)


def _latencies(points: list[Point]) -> Table[tuple[Point, str]]:
    def percentile(which: str) -> Column[tuple[Point, str]]:
        return Column(PERCENTILES[which], lambda row: row[0].number(f"{row[1]}_{which}_s"))

    return Table(
        "serving-latency",
        Text("Latency of a single request"),
        [
            Column(Text("Request"), lambda row: shape(row[0])),
            Column(Text("Requests"), lambda row: row[0].number("requests")),
            Column(Text("Latency"), lambda row: LATENCIES[row[1]]),
            *map(percentile, PERCENTILES),
        ],
        [(p, name) for p in points for name in LATENCIES
         if not math.isnan(p.value(f"{name}_p50_s"))],
        note=SENTENCES.text("latencies", n=MIN_P99,),
        refs=lambda row: [row[0].ref],
    )  # fmt: skip


def _batches(sweep: list[Point]) -> Table[Point]:
    first = sweep[0]

    def gain(point: Point) -> Number:
        return point.number(RATE).times(first.number(RATE))

    def efficiency(point: Point) -> Number:
        proportional = point.batch / first.batch
        return point.derived((gain(point).value or math.nan) / proportional, "fraction")

    return Table(
        "serving-batches",
        Text("Throughput over the batch size"),
        [
            Column(Text("Batch"), lambda p: p.batch),
            cell_column(Text("Duration"), "duration_s"),
            cell_column(Text("Output"), RATE, TOKEN_RATE),
            Column(Text("Speed-up over batch {n}", n=first.batch), gain),
            Column(Text("Scaling efficiency"), efficiency),
            cell_column(Text("TTFT, median"), "ttft_p50_s"),
            cell_column(Text("TPOT, median"), "tpot_p50_s"),
            cell_column(Text("Prefill"), "prefill_s"),
            Column(Text("Decode step"), lambda p: p.step),
            Column(
                Text("Output while decoding"),
                lambda p: p.derived(p.batch / p.step_s, TOKEN_RATE),
                TOKEN_RATE,
            ),
            *_utilization(),
        ],
        sweep,
        note=SENTENCES.text(
            "batches",
            shape=shape(first),
            mode=first.mode_text,
        ),
        refs=lambda p: [p.ref],
    )


def _utilization() -> list[Column[Point]]:
    def share(point: Point, load: Load, utilization: float) -> Number:
        missing = "" if math.isfinite(load.flops) else "the model's shape is not known"
        return Number(utilization, "fraction", (point.ref,), missing or "no roof is known")

    return [
        Column(Text("Prefill MFU"), lambda p: share(p, p.prefill, p.prefill.mfu)),
        Column(Text("Decode MBU"), lambda p: share(p, p.decode, p.decode.mbu)),
    ]


def _machine(sweep: list[Point]) -> Table[Point]:
    return Table(
        "serving-machine",
        Text("Engine and GPU by batch"),
        [Column(Text("Batch"), lambda p: p.batch), *engine_columns(), *gpu_columns()],
        sweep,
        note=SENTENCES.note("serving-machine"),
        refs=lambda p: [p.ref],
        folded=True,
    )


def _lengths(points: list[Point]) -> Table[Point]:
    return Table(
        "serving-lengths",
        Text("Prompt and output length, one request at a time"),
        [
            Column(Text("Prompt tokens"), lambda p: p.prompt),
            Column(Text("Output tokens"), lambda p: p.output),
            cell_column(Text("TTFT, median"), "ttft_p50_s"),
            cell_column(Text("TPOT, median"), "tpot_p50_s"),
            cell_column(Text("End to end, median"), "e2e_p50_s"),
            cell_column(Text("Output"), RATE, TOKEN_RATE),
            *_utilization(),
        ],
        points,
        refs=lambda p: [p.ref],
        folded=len(points) > FOLD_FROM,
    )


def _graphs(pairs: list[Pair]) -> Table[Pair]:
    return Table(
        "serving-graphs",
        Text("Eager against CUDA graphs"),
        [
            Column(Text("Batch"), lambda pair: pair[0].batch),
            Column(Text("Decode step, eager"), lambda pair: pair[0].step),
            Column(Text("Decode step, CUDA graphs"), lambda pair: pair[1].step),
            Column(Text("Speed-up of a step"), lambda pair: pair[0].step.times(pair[1].step)),
            Column(Text("Output, eager"), lambda pair: pair[0].number(RATE), TOKEN_RATE),
            Column(Text("Output, CUDA graphs"), lambda pair: pair[1].number(RATE), TOKEN_RATE),
            Column(
                Text("Speed-up of the output"),
                lambda pair: pair[1].number(RATE).times(pair[0].number(RATE)),
            ),
        ],
        pairs,
        note=Text("{shape} each.", shape=shape(pairs[0][0])),
        refs=lambda pair: [point.ref for point in pair],
    )


MS = 1e3
CURVE = 80
"""Points of a fitted curve."""
FLOOR = "at the roofs"


def charts(found: Baseline) -> tuple[Chart | None, ...]:
    """Return the charts that the points allow."""
    return (
        _throughput(found),
        _stages(found),
        _first_token(found),
        _lengths_chart(found),
        _graphs_chart(found),
    )


def _curve(law: Scaling) -> list[float]:
    step = (law.last / law.first) ** (1 / (CURVE - 1))
    return [law.first * step**n for n in range(CURVE)]


def _measured(at: tuple[float, ...], values: list[float], law: Scaling | None) -> Series:
    """Return the measured values: points where a law is drawn through them, else a line."""
    return Series("measured", at, tuple(values), style="line" if law is None else "points")


def _throughput(found: Baseline) -> LineFigure | None:
    """Return throughput over the batch, with its law and a proportional growth."""
    sweep = [p for p in found.batches if not math.isnan(p.value(RATE))]
    if len(sweep) < 2:
        return None
    first = sweep[0]
    at = tuple(float(p.batch) for p in sweep)
    alone = first.value(RATE) / first.batch
    law = found.batch_law
    lines = [
        _measured(at, [p.value(RATE) for p in sweep], law),
        Series("while decoding", at, tuple(p.batch / p.step_s for p in sweep)),
        Series("proportional", at, tuple(alone * b for b in at)),
    ]
    marks: tuple[tuple[float, Words], ...] = ()
    if law is not None:
        xs = _curve(law)
        lines.insert(0, Series("fit", tuple(xs), tuple(first.output * x / law.at(x) for x in xs)))
        if law.bend_measured:
            marks = ((law.bend, Text("bends at batch {n}", n=significant(law.bend, 2))),)
    return LineFigure(
        **SENTENCES.chart("serving-throughput"),
        subtitle=SENTENCES.text(
            "throughput",
            prompt=first.prompt,
            output=first.output,
        ),
        series=tuple(lines),
        x_log=True,
        y_log=True,
        marks=marks,
    )


def _stages(found: Baseline) -> LineFigure | None:
    """Return prefill and decode step over the batch, and their times at the roofs."""
    sweep = [p for p in found.batches if not math.isnan(p.step_s)]
    if len(sweep) < 2:
        return None
    at = tuple(float(p.batch) for p in sweep)
    known = not math.isnan(sweep[0].decode.floor_s)

    def lines(seconds: Iterable[float], floors: Iterable[float]) -> tuple[Series, ...]:
        measured = Series("measured", at, _ms(seconds))
        return (measured, Series(FLOOR, at, _ms(floors))) if known else (measured,)

    decode = lines((p.step_s for p in sweep), (p.decode.floor_s for p in sweep))
    prefill = lines((p.value("prefill_s") for p in sweep), (p.prefill.floor_s for p in sweep))
    return LineFigure(
        **SENTENCES.chart("serving-stages"),
        subtitle=_roofs(found),
        x_log=True,
        panels=(
            Panel("ms", decode, "Decode step"),
            Panel("ms", prefill, "Prefill of the whole batch", y_log=True),
        ),
    )


def _roofs(found: Baseline) -> Words:
    memory, compute = found.roofs.memory, found.roofs.compute
    if memory is None or compute is None:
        return ""
    return Text(
        "At the roofs: bytes at the {memory} or FLOPs at the {compute}, if longer",
        memory=memory.name,
        compute=compute.name,
    )


def _ms(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(MS * value for value in values)


def _first_token(found: Baseline) -> LineFigure | None:
    """Return the time to first token over the prompt length, with its law."""
    first = found.first_tokens
    if len(first) < 2:
        return None
    at, times = tuple(float(n) for n in first), list(first.values())
    law = found.prompt_law
    lines = [_measured(at, [MS * t for t in times], law)]
    if law is not None:
        xs = _curve(law)
        lines.insert(0, Series("fit", tuple(xs), tuple(MS * law.at(x) for x in xs)))
    floors = {p.prompt: p.prefill.floor_s for p in found.of("lengths", found.mode)}
    floor = _ms(floors.get(n, math.nan) for n in first)
    if not all(map(math.isnan, floor)):
        lines.append(Series(FLOOR, at, floor))
    return LineFigure(
        **SENTENCES.chart("serving-first-token"),
        subtitle=Text(
            "One request at a time; a short prompt pays {time} anyway",
            time=quantity(times[0], "s", 3),
        ),
        series=tuple(lines),
        x_log=True,
        y_log=True,
    )


def _lengths_chart(found: Baseline) -> LineFigure | None:
    """Return the latency of a whole request over the prompt length, one line per output length."""
    points = found.of("lengths", found.mode)
    outputs = sorted({p.output for p in points})
    lines = []
    for output in outputs:
        sweep = sorted((p for p in points if p.output == output), key=lambda p: p.prompt)
        at = tuple(float(p.prompt) for p in sweep)
        times = tuple(MS * p.value("e2e_p50_s") for p in sweep)
        lines.append(Series(Text("{n} output tokens", n=output), at, times))
    if not any(len(line.x) > 1 for line in lines):
        return None
    return LineFigure(
        **SENTENCES.chart("serving-lengths"),
        series=tuple(lines),
        x_log=True,
    )


def _graphs_chart(found: Baseline) -> BarFigure | None:
    """Return the decode step with and without CUDA graphs, by batch."""
    both = [(e, g) for e, g in found.pairs if not math.isnan(e.step_s + g.step_s)]
    if not both:
        return None
    bars = [bar for pair in both for bar in map(_step_bar, pair)]
    return BarFigure(
        **SENTENCES.chart("serving-graphs"),
        bars=tuple(bars),
    )


def _step_bar(point: Point) -> Bar:
    return Bar(
        Text("batch {n}", n=point.batch),
        MS * point.step_s,
        group="CUDA graphs" if point.mode == GRAPHS else point.mode,
        text=quantity(point.step_s, "s", 3),
    )
