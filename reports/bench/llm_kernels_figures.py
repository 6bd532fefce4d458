"""Figures of the operations of a transformer: roofs reached, sweeps of tokens and positions."""

from __future__ import annotations

import math
from collections.abc import Callable

from nsight_prof.parsers.cells import number
from nsight_prof.reports.bench.llm_kernels_points import (
    BACKENDS,
    VARIANTS,
    LayerPoint,
    Point,
    layers,
    select,
    title,
)
from nsight_prof.reports.bench.llm_kernels_tables import by_shape
from nsight_prof.reports.formats import byte_rate, count, quantity, seconds, share
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series

TERA, GIGA = 1e12, 1e9
TENSOR, DRAM = ("tensor bf16", "tensor fp8"), ("dram",)


def figures(found: list[Point], reference: str) -> tuple[Chart, ...]:
    """Return the figures that the points allow."""
    made = (
        linear_figure(found),
        roof_figure(found, reference),
        prefill_figure(found, reference),
        decode_figure(found, reference),
        launches_figure(found),
        fusion_figure(found),
    )
    return tuple(figure for figure in made if figure is not None)


def linear_figure(found: list[Point]) -> LineFigure | None:
    """Return TFLOP/s and GB/s of a decoder layer's linear layers over tokens, a line a model."""
    wide, narrow = layers(found), layers(found, "fp8")
    models = list(dict.fromkeys(p.model for p in wide))
    lines: list[tuple[str, str, list[LayerPoint]]] = []
    for model in models:
        lines.append((model, title(model), [p for p in wide if p.model == model]))
        mine = [p for p in narrow if p.model == model]
        if mine:
            lines.append((model, f"{title(model)}, fp8", mine))
    lines = [line for line in lines if len(line[2]) > 1]
    if not lines:
        return None
    rates = [
        Series(label, _tokens(mine), tuple(p.flop_rate / TERA for p in mine), group=model)
        for model, label, mine in lines
    ]
    moved = [
        Series(label, _tokens(mine), tuple(p.byte_rate / GIGA for p in mine), group=model)
        for model, label, mine in lines
    ]
    return LineFigure(
        name="llm-linear",
        title="Linear layers: from reading weights to computing",
        alt="TFLOP/s and GB/s of the linear layers of one decoder layer over tokens, by model",
        subtitle="QKV, out, gate/up and down of one decoder layer together, in a CUDA graph",
        x_label="tokens",
        x_log=True,
        panels=(
            Panel("TFLOP/s", tuple(rates), levels=_levels(found, TENSOR, TERA)),
            Panel("GB/s of compulsory bytes", tuple(moved), levels=_levels(found, DRAM, GIGA)),
        ),
    )


def _tokens(points: list[LayerPoint]) -> tuple[float, ...]:
    return tuple(float(p.tokens) for p in points)


def _levels(
    found: list[Point], roofs: tuple[str, ...], scale: float
) -> tuple[tuple[float, str], ...]:
    """Return the measured roofs that limit some of the points, divided by `scale`."""
    levels = {}
    for point in found:
        name = str(point.row["roof_used"])
        value = number(point.row["roof_value"])
        if name in roofs and not math.isnan(value):
            levels[name] = (value / scale, f"{point.roof} roof {quantity(value, _unit(point))}")
    return tuple(levels[name] for name in roofs if name in levels)


def _unit(point: Point) -> str:
    return str(point.row["roof_unit"])


def roof_figure(found: list[Point], reference: str) -> BarFigure | None:
    """Return the share of the roof that each operation reaches, at few and at many tokens."""
    bars = []
    for label, point in _representatives(found, reference):
        if not math.isnan(point.fraction):
            value, words = 100 * point.fraction, share(point.fraction)
            bars.append(Bar(label, value, group=f"bound by {point.roof}", text=words))
    if not bars:
        return None
    return BarFigure(
        name="llm-roofs",
        title="What each operation reaches of its roof",
        subtitle="fastest variant; 100 % is what the measured roofs allow for its FLOPs and bytes",
        alt="Share of the measured roof by operation, at few and at many tokens",
        value_label="% of the roof",
        bars=tuple(bars),
    )


def _representatives(found: list[Point], reference: str) -> list[tuple[str, Point]]:
    """Return labelled points: each operation at its second smallest and its largest size."""
    chosen: list[tuple[str, Point]] = []
    for name in dict.fromkeys(p.operation for p in select(found, family="linear")):
        mine = select(found, family="linear", model=reference, variant="graph")
        same = [p for p in mine if p.operation == name and p.row["dtype"] == "bf16"]
        chosen += _ends(name, same)
    for stage in ("prefill", "decode"):
        mine = select(found, family="attention", stage=stage, model=reference, variant="graph")
        for batch in dict.fromkeys(p.param("batch") for p in mine):
            rivals = [p for p in mine if p.param("batch") == batch]
            longest = max(rivals, key=lambda p: p.param("keys"))
            same = [p for p in rivals if p.param("keys") == longest.param("keys")]
            best = min(same, key=lambda p: p.seconds)
            size = f"{count(batch)} x {count(best.param('keys'))}"
            chosen.append((f"attention {stage}, {size}, {best.backend}", best))
    by_operation: dict[str, list[Point]] = {}
    for made in by_shape(found):
        best = min(made.values(), key=lambda p: p.seconds)
        by_operation.setdefault(best.operation, []).append(best)
    for name, same in by_operation.items():
        chosen += _ends(name, same)
    for family in ("conv", "lstm"):
        mine = select(found, family=family, variant="graph")
        if mine:
            best = max(mine, key=lambda p: (not math.isnan(p.fraction), p.fraction))
            detail = best.param("layer") or f"batch {best.param('batch')}"
            chosen.append((f"{best.operation}, {detail}", best))
    return chosen


def _ends(name: str, points: list[Point]) -> list[tuple[str, Point]]:
    ordered = sorted(points, key=lambda p: p.param("tokens"))
    ends = (
        {p.param("tokens"): p for p in (ordered[min(1, len(ordered) - 1)], ordered[-1])}
        if ordered
        else {}
    )
    return [(f"{name}, {_of_tokens(tokens)}", point) for tokens, point in ends.items()]


def _of_tokens(tokens: int) -> str:
    return f"{count(tokens)} token{'' if tokens == 1 else 's'}"


def prefill_figure(found: list[Point], reference: str) -> LineFigure | None:
    """Return TFLOP/s of causal attention over positions, a line a back end, one sequence."""
    chosen = select(
        found, family="attention", stage="prefill", model=reference, variant="graph", batch=1
    )
    series = _by_backend(chosen, lambda p: p.flop_rate / TERA)
    if not series:
        return None
    return LineFigure(
        name="llm-prefill",
        title=f"Attention of a prompt, {title(reference)}: the back ends",
        subtitle="one sequence, causal; FLOPs of the scored pairs",
        alt="TFLOP/s of causal attention over positions, a line for each back end",
        x_label="positions",
        x_log=True,
        y_label="TFLOP/s",
        series=series,
        levels=_levels(found, TENSOR[:1], TERA),
    )


def decode_figure(found: list[Point], reference: str) -> LineFigure | None:
    """Return GB/s of decode attention over positions, a line a back end, largest swept batch."""
    chosen = select(found, family="attention", stage="decode", model=reference, variant="graph")
    chosen = [p for p in chosen if p.param("kv_groups") != "none" or _only_mha(chosen)]
    lengths = {
        batch: len({p.param("keys") for p in chosen if p.param("batch") == batch})
        for batch in sorted({p.param("batch") for p in chosen})
    }
    swept = [batch for batch, number in lengths.items() if number > 1]
    if not swept:
        return None
    panels = []
    for batch in swept:
        mine = [p for p in chosen if p.param("batch") == batch]
        words = f"{count(batch)} sequence{'' if batch == 1 else 's'}"
        series = _by_backend(mine, lambda p: p.byte_rate / GIGA)
        panels.append(Panel("GB/s", series, title=words, levels=_levels(found, DRAM, GIGA)))
    return LineFigure(
        name="llm-decode",
        title=f"Attention of one new token, {title(reference)}: the back ends",
        subtitle="compulsory bytes: keys and values of the KV heads once",
        alt="GB/s of decode attention over positions, a line for each back end and panel a batch",
        x_label="positions in the KV cache",
        x_log=True,
        panels=tuple(panels),
    )


def _only_mha(points: list[Point]) -> bool:
    return all(p.param("kv_groups") == "none" for p in points)


def _by_backend(points: list[Point], rate: Callable[[Point], float]) -> tuple[Series, ...]:
    made = []
    for backend in BACKENDS:
        mine = sorted(
            (p for p in points if p.param("backend") == backend), key=lambda p: p.param("keys")
        )
        if len(mine) > 1:
            x = tuple(float(p.param("keys")) for p in mine)
            made.append(Series(mine[0].backend, x, tuple(rate(p) for p in mine), group=backend))
    return tuple(made)


def launches_figure(found: list[Point]) -> BarFigure | None:
    """Return the time of each variant at the smallest compiled size."""
    bars = []
    for made in _compiled_sizes(found, largest=False):
        for variant, words in VARIANTS.items():
            if variant in made:
                point = made[variant]
                ends = (1e6 * point.low, 1e6 * point.high)
                text = seconds(point.seconds)
                bars.append(Bar(_label(point), 1e6 * point.seconds, *ends, words, text))
    if not bars:
        return None
    return BarFigure(
        name="llm-launches",
        title="Small inputs: launched by the host, compiled, and in a CUDA graph",
        subtitle="eager and compiled wait for the host; a graph does not",
        alt="Time of each operation by variant, few tokens",
        value_label="us a call",
        bars=tuple(bars),
    )


def fusion_figure(found: list[Point]) -> BarFigure | None:
    """Return the bytes a second of the eager and the compiled function at the largest size."""
    bars = []
    for made in _compiled_sizes(found, largest=True):
        for variant in ("graph", "compiled-graph"):
            if variant in made:
                point = made[variant]
                words = "compiled" if variant.startswith("compiled") else "eager"
                text = f"{byte_rate(point.byte_rate)}, {seconds(point.seconds)}"
                bars.append(Bar(_label(point), point.byte_rate / GIGA, group=words, text=text))
    if not bars:
        return None
    return BarFigure(
        name="llm-fusion",
        title="Large inputs: one fused kernel against several",
        subtitle="compulsory bytes over time, both in CUDA graphs",
        alt="Compulsory bytes a second of eager and compiled functions by operation, many tokens",
        value_label="GB/s of compulsory bytes",
        bars=tuple(bars),
    )


def _label(point: Point) -> str:
    return f"{point.operation}, {_of_tokens(point.param('tokens'))}"


def _compiled_sizes(found: list[Point], largest: bool) -> list[dict[str, Point]]:
    """Return the variants of each operation at its smallest or largest compiled size."""
    chosen: dict[str, dict[str, Point]] = {}
    for made in by_shape(found):
        compiled = made.get("compiled") or made.get("compiled-graph")
        if compiled is None or "eager" not in made:
            continue
        held = chosen.get(compiled.operation)
        tokens = compiled.param("tokens")
        if held is None or (tokens > held["eager"].param("tokens")) == largest:
            chosen[compiled.operation] = made
    return list(chosen.values())
