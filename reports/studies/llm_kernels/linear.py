"""Linear layers: what batching, large prompts and fp8 gain, and how much of the roofs they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from nsight_prof.parsers.cells import known, names, number
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Number, Table, Text, Value
from nsight_prof.reports.page.charts import LineFigure, Panel, Series, line
from nsight_prof.reports.studies.llm_kernels.points import (
    DETAILS,
    DRAM,
    TENSOR,
    Layer,
    Point,
    layers,
    model_titles,
    of_roof,
    of_tokens,
    rate_table,
    roof_levels,
    select,
    title,
)

SENTENCES = Sentences("llm_kernels")

FEW = 16
"""Tokens of the batch that is compared with a single token."""
NEAR = 0.9
"""Share of the best rate from which more tokens gain little."""
SAME = 0.005
"""Part by which a time is longer that is no news."""
CLEAR = 1.05
"""Ratio of the rates of two models from which their difference is worth a finding."""


def batching(found: Sequence[Point], model: str) -> Finding | None:
    """State what a decode step gains from batching: weights are read once for all tokens."""
    swept = layers(found, model=model)
    alone = next((layer for layer in swept if layer.tokens == 1), None)
    batches = [layer for layer in swept if layer.tokens > 1]
    if alone is None or not batches:
        return None
    few = min(batches, key=lambda layer: abs(layer.tokens - FEW))
    ratio = few.time.times(alone.time)
    n, times = few.tokens, {"a": few.time.at_digits(4), "b": alone.time.at_digits(4)}
    gain = Number(n * alone.seconds / few.seconds, "x", ratio.refs).by(
        Text("{n} x {b} / {a}", n=n, **times)
    )
    extra = Number(number(ratio.value) - 1, "fraction", ratio.refs).by(
        Text("{a} / {b} - 1", **times)
    )
    longer = Text("{part} longer", part=extra)
    if number(extra.value) < SAME:
        longer = Text("no longer")
    return SENTENCES.finding(
        "decode_batching",
        model=title(model),
        longer=longer,
        tokens=of_tokens(n=few.tokens),
        time=alone.time,
        n=few.tokens,
        gain=gain,
        rate=alone.byte_rate,
        of_roof=of_roof(alone),
    )


def saturation(found: Sequence[Point], model: str) -> Finding | None:
    """State what large prompts reach, and from how many tokens on."""
    swept = layers(found, model=model)
    if len(swept) < 2:
        return None
    rates = [number(layer.flop_rate.value) for layer in swept]
    best = swept[rates.index(max(rates))]
    enough = next(
        layer for layer, rate in zip(swept, rates, strict=True) if rate >= NEAR * max(rates)
    )
    limited = _clock_limit(best)
    return SENTENCES.finding(
        "prefill_saturation",
        (
            Evidence(Text("tokens swept:"), [layer.tokens for layer in swept]),
            *([limited] if limited else []),
        ),
        tokens=of_tokens(n=enough.tokens),
        model=title(model),
        near=Number(NEAR, "fraction"),
        rate=best.flop_rate,
        at=of_tokens(n=best.tokens),
        of_roof=of_roof(best),
    )


def _clock_limit(layer: Layer) -> Text | None:
    """Return what limited the clock during the samples of a layer; None where nothing did."""
    limited = [p for p in layer.projections if number(p.row["throttled_samples"]) > 0]
    reasons = sorted({reason for p in limited for reason in names(p.row["throttle_reasons"])})
    clocks = [clock for p in limited if (clock := known(p.row["clock_hz"])) is not None]
    if not reasons or not clocks:
        return None
    return Text(
        "{n} of its {all} products ran with a limited clock ({reasons}), down to {clock}",
        n=len(limited),
        all=len(layer.projections),
        reasons=[reason.replace("_", " ") for reason in reasons],
        clock=Number(min(clocks), "Hz"),
    )


def models(found: Sequence[Point]) -> Finding | None:
    """State which model's layers are the farthest from the roof at the largest size."""
    every = layers(found)
    largest = max((layer.tokens for layer in every), default=0)
    ranked = sorted(
        (layer for layer in every if layer.tokens == largest),
        key=lambda layer: number(layer.flop_rate.value),
    )
    if len(ranked) < 2:
        return None
    low, high = ranked[0], ranked[-1]
    if number(high.flop_rate.times(low.flop_rate).value) < CLEAR:
        return None
    return SENTENCES.finding(
        "model_shapes",
        tokens=of_tokens(n=largest),
        low=title(low.model),
        low_rate=low.flop_rate,
        low_roof=of_roof(low),
        high=title(high.model),
        high_rate=high.flop_rate,
        high_roof=of_roof(high),
    )


def precision(found: Sequence[Point]) -> Finding | None:
    """State what fp8 gains at the ends of the sweep."""
    pairs = [(wide, narrow) for wide, narrow in _pairs(found) if narrow is not None]
    if len(pairs) < 2:
        return None
    (few, few_fp8), (many, many_fp8) = pairs[0], pairs[-1]
    gain = many.time.times(many_fp8.time)
    return SENTENCES.finding(
        "fp8",
        model=title(many.model),
        large=gain,
        many=of_tokens(n=many.tokens),
        rate=many_fp8.flop_rate,
        of_roof=of_roof(many_fp8),
        small=few.time.times(few_fp8.time),
        few=of_tokens(n=few.tokens),
        gain=gain,
    )


Precisions = tuple[Layer, Layer | None]
"""A decoder layer's linear layers in bf16, and in fp8 where that was measured."""


def _pairs(found: Sequence[Point]) -> list[Precisions]:
    narrow = {(layer.model, layer.tokens): layer for layer in layers(found, "fp8")}
    return [(layer, narrow.get((layer.model, layer.tokens))) for layer in layers(found)]


def layer_table(found: Sequence[Point]) -> Table[Precisions]:
    """Return the linear layers of a decoder layer together, by model and tokens."""
    rows = _pairs(found)

    def fp8(cell: Callable[[Layer], Value]) -> Callable[[Precisions], Value | None]:
        return lambda row: None if row[1] is None else cell(row[1])

    columns: list[Column[Precisions]] = [
        Column(Text("model"), lambda row: title(row[0].model)),
        Column(Text("tokens"), lambda row: row[0].tokens),
        Column(Text("bf16 time"), lambda row: row[0].time),
        Column(Text("bf16 rate"), lambda row: row[0].flop_rate, "TFLOP/s"),
        Column(Text("bytes"), lambda row: row[0].byte_rate, "GB/s"),
        Column(Text("of its roof"), lambda row: row[0].fraction),
    ]
    if any(narrow for _, narrow in rows):
        columns += [
            Column(Text("fp8 time"), fp8(lambda layer: layer.time)),
            Column(Text("fp8 rate"), fp8(lambda layer: layer.flop_rate), "TFLOP/s"),
            Column(Text("fp8, of its roof"), fp8(lambda layer: layer.fraction)),
            Column(Text("gain"), lambda row: row[0].time.times(row[1].time) if row[1] else None),
        ]
    return Table(
        "llm-layers",
        Text("Linear layers of one decoder layer"),
        columns,
        rows,
        note=SENTENCES.note("llm-layers"),
        refs=lambda row: [row[0].ref],
        preview=2 * DETAILS,
    )


def case_table(found: Sequence[Point], model: str) -> Table[Point]:
    """Return rates and counters of every linear layer, those of `model` first."""
    rows = sorted(
        select(found, family="linear", variant="graph"),
        key=lambda p: (p.param("model") != model, p.param("model"), p.dtype, p.tokens),
    )
    return rate_table(
        "llm-linear",
        Text("Every linear layer"),
        [
            Column(Text("model"), lambda point: ", ".join(model_titles(point))),
            Column(Text("layer"), lambda point: point.param("projection")),
            Column(Text("outputs x inputs"), lambda p: f"{p.param('n'):,} x {p.param('k'):,}"),
            Column(Text("dtype"), lambda point: point.dtype),
            Column(Text("tokens"), lambda point: point.tokens),
        ],
        rows,
    )


def chart(found: Sequence[Point]) -> LineFigure | None:
    """Return TFLOP/s and GB/s of a layer's linear layers over tokens, one line per model."""
    lines: list[tuple[str, str, list[Layer]]] = []
    for model in dict.fromkeys(layer.model for layer in layers(found)):
        lines.append((model, title(model), layers(found, model=model)))
        lines.append((model, f"{title(model)}, fp8", layers(found, "fp8", model)))
    lines = [swept for swept in lines if len(swept[2]) > 1]
    if not lines:
        return None

    def series(rate: Callable[[Layer], Number], scale: float) -> tuple[Series, ...]:
        columns = (attrgetter("tokens"), lambda layer: number(rate(layer).value) / scale)
        return tuple(line(label, swept, *columns, group=model) for model, label, swept in lines)

    return LineFigure(
        **SENTENCES.chart("llm-linear"),
        x_log=True,
        panels=(
            Panel(
                "TFLOP/s",
                series(lambda layer: layer.flop_rate, 1e12),
                levels=roof_levels(found, TENSOR, 1e12),
            ),
            Panel(
                "GB/s of compulsory bytes",
                series(lambda layer: layer.byte_rate, 1e9),
                levels=roof_levels(found, DRAM, 1e9),
            ),
        ),
    )
