"""Norms, activations, gathers and sampling: what launches, fusion and CUDA graphs change."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from nsight_prof.parsers.cells import grouped
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Name, Number, Table, Text, Value
from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.studies.llm_kernels.points import (
    DETAILS,
    VARIANTS,
    Point,
    fastest,
    of_tokens,
    sized,
    slowdown,
    variants_by_shape,
)

SENTENCES = Sentences("llm_kernels")

UNEXPLAINED = 1.3
"""A gain this many times larger than that in DRAM bytes has another reason, too."""
CLEAR = 1.1
"""A gain under 10 % is not worth a sentence of its own."""
LISTED = 4
"""Operations that a verdict names; the others stand in its evidence."""
Variants = dict[str, Point]


def launch_bound(found: Sequence[Point]) -> Finding | None:
    """State what a CUDA graph gains where kernels are shorter than their launch."""
    pairs = [
        (v["eager"], v["graph"]) for v in variants_by_shape(found) if {"eager", "graph"} <= v.keys()
    ]
    fewest = min((eager.tokens for eager, _ in pairs), default=0)
    small = [pair for pair in pairs if pair[0].tokens == fewest]
    if not small:
        return None
    median = statistics.median(slowdown(*pair) for pair in small)
    if median < CLEAR:
        return None
    eager, graph = max(small, key=lambda pair: slowdown(*pair))
    gone = [eager.tokens for eager, graph in pairs if slowdown(eager, graph) < CLEAR]
    refs = tuple(point.ref for pair in small for point in pair)
    gain = Number(median, "x", refs).by(Text("median of {n} ratios", n=len(small)))
    return replace(
        SENTENCES.finding(
            "launch_bound",
            (Evidence(Text("operations compared:"), len(small)),),
            tokens=of_tokens(n=fewest),
            gain=gain,
            operation=eager.operation,
            best=eager.time.times(graph.time),
            eager=eager.time,
            graph=graph.time,
        ),
        disproof=Text("From {tokens} on some of them gain nothing.", tokens=of_tokens(n=min(gone)))
        if gone
        else None,
    )


def fusion(found: Sequence[Point]) -> Finding | None:
    """State what torch.compile gains at the largest size, and whether bytes explain it."""
    both = (v for v in variants_by_shape(found) if {"graph", "compiled-graph"} <= v.keys())
    ranked = sorted(_at_size(both, max), key=_fusion_gain, reverse=True)
    gained = [variants for variants in ranked if _fusion_gain(variants) >= CLEAR]
    if not gained:
        return None
    gains = [
        Text("{operation} {gain}", operation=v["graph"].operation, gain=_gain(v)) for v in gained
    ]
    slower = [v["graph"].operation for v in ranked if _fusion_gain(v) < 1 / CLEAR]
    evidence: list[Evidence | Text] = [Text("largest sizes, both in CUDA graphs")]
    if gains[LISTED:]:
        evidence.append(Evidence(Text("others:"), gains[LISTED:]))
    evidence += [moved for variants in gained[:2] if (moved := _moved(variants))]
    return SENTENCES.finding(
        "fusion",
        evidence,
        gains=gains[:LISTED],
        gain=_gain(gained[0]),
        operations=slower if slower else None,
    )


def _gain(variants: Variants) -> Number:
    return variants["graph"].time.times(variants["compiled-graph"].time)


def _fusion_gain(variants: Variants) -> float:
    return slowdown(variants["graph"], variants["compiled-graph"])


def _moved(variants: Variants) -> Text | None:
    """Return how far fewer DRAM bytes explain a gain; None where they were not counted."""
    eager, fused = variants["graph"], variants["compiled-graph"]
    before, after = eager.bytes_ratio.value, fused.bytes_ratio.value
    if not before or not after:
        return None
    values: dict[str, Value] = {
        "operation": eager.operation,
        "eager": eager.bytes_ratio,
        "fused": fused.bytes_ratio,
    }
    if _fusion_gain(variants) <= UNEXPLAINED * before / after:
        return Text(
            "{operation}: {eager} its compulsory DRAM bytes eagerly, {fused} fused", **values
        )
    return SENTENCES.text(
        "gain_unexplained",
        kernels=Text(" (eager kernels: {kernels})", kernels=eager.kernels) if eager.kernels else "",
        **values,
    )


def compile_overhead(found: Sequence[Point]) -> Finding | None:
    """State what calling a compiled function costs the host, and what a graph makes of it."""
    wanted = {"eager", "graph", "compiled", "compiled-graph"}
    every = [variants for variants in variants_by_shape(found) if wanted <= variants.keys()]
    tokens = min((variants["eager"].tokens for variants in every), default=0)
    small = [variants for variants in every if variants["eager"].tokens == tokens]
    slower = [v for v in small if slowdown(v["compiled"], v["eager"]) > CLEAR]
    if len(slower) * 2 < len(small) or not slower:
        return None
    worst = max(slower, key=lambda v: slowdown(v["compiled"], v["eager"]))
    gain = statistics.median(slowdown(v["eager"], v["compiled-graph"]) for v in small)
    return SENTENCES.finding(
        "compile_overhead",
        tokens=of_tokens(n=tokens),
        slower=len(slower),
        all=len(small),
        operation=worst["eager"].operation,
        compiled=worst["compiled"].time,
        eager=worst["eager"].time,
        gain=Number(
            gain, "x", tuple(v[name].ref for v in small for name in ("eager", "compiled-graph"))
        ).by(Text("median of {n} ratios", n=len(small))),
        option=Name('mode="reduce-overhead"'),
        time=worst["compiled-graph"].time,
    )


def streaming(found: Sequence[Point]) -> Finding | None:
    """State how near the operations without products come to their roof at their largest size."""
    best = [fastest(variants.values()) for variants in _at_size(variants_by_shape(found), max)]
    shares = [(p.fraction.value, p) for p in best if p.fraction.value is not None]
    if len(shares) < 2:
        return None
    high, low = (pick(shares, key=lambda pair: pair[0]) for pick in (max, min))
    point = low[1]
    kernels = len(point.kernels.split(" + ")) if point.kernels else 0
    evidence = [
        Evidence(Text("its fastest variant takes"), point.time),
        Evidence(Text("compulsory bytes:"), point.byte_rate),
    ]
    if kernels > 1 and (point.bytes_ratio.value or 0) > CLEAR:
        evidence.append(
            Evidence(
                Text("its {n} kernels move, of the compulsory bytes,", n=kernels), point.bytes_ratio
            )
        )
    return replace(
        SENTENCES.finding(
            "roof_distance",
            evidence,
            worst=point.operation,
            share=point.fraction,
            roof=point.roof,
            tokens=of_tokens(n=point.tokens),
            best=high[1].operation,
            best_share=high[1].fraction,
            operation=point.operation,
        ),
        gain=Number((1 - low[0]) * point.seconds, "s"),
    )


def table(found: Sequence[Point]) -> Table[Variants]:
    """Return the variants of norms, activations, gathers and sampling side by side."""

    def of(heading: Text, variant: str, cell: Callable[[Point], Number]) -> Column[Variants]:
        return Column(heading, lambda row: cell(row[variant]) if variant in row else None)

    time, moved = attrgetter("time"), attrgetter("bytes_ratio")
    return Table(
        "llm-pointwise",
        Text("Norms, activations, gathers and sampling: the variants"),
        [
            Column(Text("operation"), lambda row: fastest(row.values()).operation),
            Column(Text("tokens"), lambda row: fastest(row.values()).tokens),
            of(Text("eager"), "eager", time),
            of(Text("CUDA graph"), "graph", time),
            of(Text("compiled"), "compiled", time),
            of(Text("compiled, in a graph"), "compiled-graph", time),
            Column(Text("fastest"), lambda row: fastest(row.values()).byte_rate, "GB/s"),
            Column(Text("of its roof"), lambda row: fastest(row.values()).fraction),
            of(Text("DRAM bytes, eager"), "eager", moved),
            of(Text("DRAM bytes, compiled"), "compiled", moved),
        ],
        variants_by_shape(found),
        note=Text("DRAM bytes: counted under ncu, over the compulsory ones."),
        refs=lambda row: [point.ref for point in row.values()],
        preview=DETAILS,
    )


def launches_chart(found: Sequence[Point]) -> BarFigure | None:
    """Return the time of each variant at the smallest compiled size."""
    bars = tuple(
        Bar(
            sized(point),
            1e6 * point.seconds,
            1e6 * point.interval[0],
            1e6 * point.interval[1],
            VARIANTS[variant],
            quantity(point.seconds, "s", 3),
        )
        for variants in _compiled_at_size(found, min)
        for variant, point in variants.items()
    )
    if not bars:
        return None
    return BarFigure(
        **SENTENCES.chart("llm-launches"),
        bars=bars,
    )


def fusion_chart(found: Sequence[Point]) -> BarFigure | None:
    """Return the bytes per second of the eager and the compiled function at the largest size."""
    bars = []
    for variants in _compiled_at_size(found, max):
        for variant, group in (("graph", "eager"), ("compiled-graph", "compiled")):
            if point := variants.get(variant):
                rate = point.bytes / point.seconds
                text = f"{quantity(rate, 'B/s', 3)}, {quantity(point.seconds, 's', 3)}"
                bars.append(Bar(sized(point), rate / 1e9, group=group, text=text))
    if not bars:
        return None
    return BarFigure(
        **SENTENCES.chart("llm-fusion"),
        bars=tuple(bars),
    )


def _compiled_at_size(found: Sequence[Point], pick: Callable[..., Variants]) -> list[Variants]:
    """Return the variants of each operation at its smallest or largest compiled size."""
    compiled = (
        {name: v[name] for name in VARIANTS if name in v}
        for v in variants_by_shape(found)
        if "eager" in v and v.keys() & {"compiled", "compiled-graph"}
    )
    return _at_size(compiled, pick)


def _at_size(found: Iterable[Variants], pick: Callable[..., Variants]) -> list[Variants]:
    """Return the variants of each operation at its smallest or largest (`pick`) size."""

    def first(variants: Variants) -> Point:
        return next(iter(variants.values()))

    by_operation = grouped(found, lambda variants: first(variants).operation)
    return [pick(same, key=lambda v: first(v).tokens) for same in by_operation.values()]
