"""Findings about launches, fusion, data, layouts and the truth of the formulas."""

from __future__ import annotations

import statistics

from reports.bench.llm_kernels_agreement import LINEAR, agreements, range_words
from reports.bench.llm_kernels_findings import fold, of_roof, samples, tokens_text
from reports.bench.llm_kernels_points import Point, one, select, times
from reports.bench.llm_kernels_tables import by_shape
from reports.bench.models import BenchFinding
from reports.formats import byte_rate, count, flop_rate, listed, seconds, share

MANY = 1024
"""Tokens that fill tiles, which have at most 256 rows."""
CLEAR = 1.1
"""A gain under 10 % is not worth a sentence of its own."""


def launch_bound(found: list[Point]) -> BenchFinding | None:
    """Say what a CUDA graph gains where kernels are shorter than their launch."""
    pairs = [
        (made["eager"], made["graph"])
        for made in by_shape(found)
        if "eager" in made and "graph" in made
    ]
    fewest = min((eager.param("tokens") for eager, _ in pairs), default=0)
    small = [pair for pair in pairs if pair[0].param("tokens") == fewest]
    if not small:
        return None
    gains = {eager.operation: times(eager, graph).value for eager, graph in small}
    best = max(gains, key=gains.__getitem__)
    middle = statistics.median(gains.values())
    if middle < CLEAR:
        return None
    eager, graph = next(pair for pair in small if pair[0].operation == best)
    sentence = (
        f"At {tokens_text(fewest)} norms, activations and sampling wait for their launches: a CUDA "
        f"graph makes them {fold(middle)} as fast in the median, and {best} {fold(gains[best])} "
        f"({seconds(eager.seconds)} to {seconds(graph.seconds)})."
    )
    gone = [e.param("tokens") for e, g in pairs if times(e, g).value < CLEAR]
    limits = f"From {tokens_text(min(gone))} on the gain is gone for some of them." if gone else ""
    flat = [point for pair in small for point in pair]
    plain = "Short steps wait for the host; recording them once and replaying them removes that."
    return BenchFinding(sentence, f"The same functions; {samples(*flat)}.", limits, plain)


def fusion(found: list[Point]) -> BenchFinding | None:
    """Say what torch.compile gains at the largest size, and whether bytes explain it."""
    largest: dict[str, tuple[float, dict[str, Point]]] = {}
    for made in by_shape(found):
        if {"graph", "compiled-graph"} <= made.keys():
            held = largest.get(made["graph"].operation)
            if held is None or made["graph"].param("tokens") > held[1]["graph"].param("tokens"):
                gain = times(made["graph"], made["compiled-graph"]).value
                largest[made["graph"].operation] = (gain, made)
    ranked = sorted(largest.values(), key=lambda item: -item[0])
    if not ranked or ranked[0][0] < CLEAR:
        return None
    words = [f"{made['graph'].operation} {fold(gain)}" for gain, made in ranked if gain >= CLEAR]
    gain, made = ranked[0]
    eager, fused = made["graph"].bytes_ratio, made["compiled-graph"].bytes_ratio
    moved = ""
    if eager > 0 and fused > 0:
        moved = (
            f" {made['graph'].operation} moves {fold(eager)} its compulsory DRAM bytes eagerly "
            f"and {fold(fused)} fused."
        )
    best = made["compiled-graph"]
    sentence = (
        f"torch.compile makes large inputs faster where it fuses kernels: {listed(words)} "
        f"({tokens_text(best.param('tokens'))}, both in graphs).{moved}"
    )
    slower = [m["graph"].operation for g, m in ranked if g < 1 / CLEAR]
    limits = f"It is slower for {listed(slower)}." if slower else ""
    both = (made["graph"], best)
    return BenchFinding(sentence, f"Compiled for each size alone; {samples(*both)}.", limits)


def streaming(found: list[Point]) -> BenchFinding | None:
    """Say how near to DRAM's roof the operations without products come at their largest size."""
    best: dict[str, Point] = {}
    for made in by_shape(found):
        fastest = min(made.values(), key=lambda p: p.seconds)
        held = best.get(fastest.operation)
        if held is None or fastest.param("tokens") > held.param("tokens"):
            best[fastest.operation] = fastest
    ranked = sorted(
        (p for p in best.values() if p.fraction == p.fraction), key=lambda p: -p.fraction
    )
    if len(ranked) < 2:
        return None
    high, low = ranked[0], ranked[-1]
    sentence = (
        f"At their largest sizes {high.operation} comes nearest to its roof "
        f"({byte_rate(high.byte_rate)}{of_roof(high.fraction, high.roof)}) and {low.operation} "
        f"stays farthest from it ({byte_rate(low.byte_rate)}{of_roof(low.fraction, low.roof)}, "
        f"{seconds(low.seconds)} at {tokens_text(low.param('tokens'))})."
    )
    return BenchFinding(sentence, f"Fastest variant of each; {samples(high, low)}.", "")


def zeros(found: list[Point]) -> BenchFinding | None:
    """Say what zeros instead of random numbers do to a large product."""
    pairs = [
        (p, blank)
        for blank in select(found, data="zeros", family="linear")
        for p in select(found, family="linear")
        if p.name == blank.name
    ]
    if not pairs:
        return None
    random, blank = max(pairs, key=lambda pair: pair[0].flops)
    gap = times(random, blank)
    if not gap.clear:
        return None
    clocks = [float(p.row["clock_hz"] or "nan") for p in (random, blank)]
    clock = ""
    if all(value > 0 for value in clocks):
        clock = f" at {share(clocks[1] / clocks[0])} of the clock"
    sentence = (
        f"On zeros the layer {random.param('projection')} at {tokens_text(random.param('tokens'))} "
        f"runs {fold(gap.value)} as fast as on random numbers ({flop_rate(blank.flop_rate)} "
        f"instead of {flop_rate(random.flop_rate)}){clock}: benchmarks on empty tensors promise "
        "too much."
    )
    return BenchFinding(sentence, f"N(0, 1) against zeros; {samples(random, blank)}.", "")


def layouts(found: list[Point]) -> BenchFinding | None:
    """Say what channels-last gains for a convolution."""
    for first in select(found, family="conv", layout="channels-first", variant="graph"):
        same = {"layer": first.param("layer"), "variant": "graph"}
        last = one(found, family="conv", layout="channels-last", **same)
        if last is None or 1 / CLEAR < times(first, last).value < CLEAR:
            continue
        gain = times(first, last).value
        order = "long" if gain > 1 else "fast"
        sentence = (
            f"A convolution ({first.param('layer')}, bf16) takes {seconds(last.seconds)} "
            f"channels-last and {seconds(first.seconds)} in torch's default layout, which is "
            f"{fold(max(gain, 1 / gain))} as {order}."
        )
        return BenchFinding(sentence, f"cuDNN; {samples(first, last)}.", "")
    return None


def formulas(found: list[Point]) -> BenchFinding | None:
    """Say how well counted FLOPs and bytes agree with the formulas of products."""
    made = [a for a in agreements(found) if a.operation == LINEAR]
    low = min((a.flops[0] for a in made), default=float("nan"))
    high = max((a.flops[1] for a in made), default=float("nan"))
    large = [
        p.flops_ratio
        for p in select(found, family="linear")
        if p.param("tokens") >= MANY and p.flops_ratio > 0
    ]
    if not low > 0:
        return None
    cases = sum(a.cases for a in made)
    many = ""
    if large:
        many = f", {range_words((min(large), max(large)))} from {tokens_text(MANY)} on"
    sentence = (
        f"The counted FLOPs of linear layers are {range_words((low, high))} 2mnk{many}: the rest "
        "are rows of tiles that no token fills."
    )
    return BenchFinding(
        sentence,
        f"{count(cases)} cases counted by ncu; all operations stand in the table of formulas.",
        "",
    )
