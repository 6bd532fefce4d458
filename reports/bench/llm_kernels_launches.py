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
UNEXPLAINED = 1.3
"""A gain this many times larger than that in DRAM bytes has another reason, too."""
CLEAR = 1.1
"""A gain under 10 % is not worth a sentence of its own."""
NAMED = 4
"""Operations that a sentence names; the others stand in its evidence."""


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
    plain = (
        "Short steps wait for the host: recorded once and replayed, they are "
        f"{fold(middle)} as fast."
    )
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
    rest = f" Others: {listed(words[NAMED:])}." if words[NAMED:] else ""
    best = ranked[0][1]["compiled-graph"]
    sentence = (
        f"torch.compile makes large inputs faster where it fuses kernels: {listed(words[:NAMED])}"
        " (largest sizes, both in CUDA graphs)."
    )
    slower = [m["graph"].operation for g, m in ranked if g < 1 / CLEAR]
    limits = f"It is slower for {listed(slower)}." if slower else ""
    both = (ranked[0][1]["graph"], best)
    evidence = f"Compiled for each size alone; {samples(*both)}.{rest}{_moved(ranked)}"
    plain = f"A compiler that merges steps makes single ones up to {fold(ranked[0][0])} as fast."
    return BenchFinding(sentence, evidence, limits, plain)


def _moved(ranked: list[tuple[float, dict[str, Point]]]) -> str:
    """Return how far fewer bytes explain the gains of the first two operations."""
    words = []
    for gain, made in ranked[:2]:
        eager, fused = made["graph"].bytes_ratio, made["compiled-graph"].bytes_ratio
        if gain < CLEAR or not (eager > 0 and fused > 0):
            continue
        part = (
            f" {_capital(made['graph'].operation)} moves {fold(eager)} its compulsory DRAM bytes "
            f"eagerly and {fold(fused)} fused"
        )
        if gain > UNEXPLAINED * eager / fused:
            part += ", which explains its gain in part only"
            part += f" (eager: {made['graph'].kernels})" if made["graph"].kernels else ""
        words.append(f"{part}.")
    return "".join(words)


def compiled_small(found: list[Point]) -> BenchFinding | None:
    """Say what calling a compiled function costs the host, and what a graph makes of it."""
    wanted = {"eager", "graph", "compiled", "compiled-graph"}
    all_made = [made for made in by_shape(found) if wanted <= made.keys()]
    tokens = min((made["eager"].param("tokens") for made in all_made), default=0)
    small = [made for made in all_made if made["eager"].param("tokens") == tokens]
    slower = [m for m in small if times(m["compiled"], m["eager"]).value > CLEAR]
    if len(slower) * 2 < len(small) or not slower:
        return None
    worst = max(slower, key=lambda m: times(m["compiled"], m["eager"]).value)
    gain = statistics.median(times(m["eager"], m["compiled-graph"]).value for m in small)
    sentence = (
        f"At {tokens_text(tokens)} torch.compile alone makes {count(len(slower))} of "
        f"{count(len(small))} operations slower than eager ({worst['eager'].operation} "
        f"{seconds(worst['compiled'].seconds)} instead of {seconds(worst['eager'].seconds)}), "
        f"for the host checks guards at each call; in a CUDA graph they are {fold(gain)} as fast "
        "as eager ones in the median."
    )
    points = [m[variant] for m in small for variant in sorted(wanted)]
    limits = "Guards are checked once a compiled region: a whole model pays them once a step."
    return BenchFinding(sentence, f"Each function compiled alone; {samples(*points)}.", limits)


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def inversion(found: list[Point]) -> BenchFinding | None:
    """Say where fewer tokens take longer than more: another kernel is chosen."""
    swept: dict[tuple[str, str, str], list[Point]] = {}
    for p in select(found, variant="graph"):
        if p.param("tokens"):
            key = (p.operation, str(p.param("model")), str(p.row["dtype"]))
            swept.setdefault(key, []).append(p)
    pairs = [
        (few, many)
        for same in swept.values()
        for few in same
        for many in same
        if few.param("tokens") < many.param("tokens") and times(few, many).low > CLEAR
    ]
    if not pairs:
        return None
    few, many = max(pairs, key=lambda pair: times(*pair).value)
    names = [f"{p.kernels} for {count(p.param('tokens'))}" for p in (few, many) if p.kernels]
    sentence = (
        f"{_capital(few.operation)} takes {fold(times(few, many).value)} as "
        f"long for {tokens_text(few.param('tokens'))} ({seconds(few.seconds)}) as for "
        f"{count(many.param('tokens'))} ({seconds(many.seconds)}): the library chooses its kernel "
        "by the size, and pays for it here."
    )
    evidence = f"In a CUDA graph; {samples(few, many)}."
    return BenchFinding(sentence, f"{evidence} Kernels: {listed(names)}." if names else evidence)


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
    kernels = len(low.kernels.split(" + ")) if low.kernels else 0
    limits = ""
    if kernels > 1 and low.bytes_ratio > CLEAR:
        limits = (
            f"{_capital(low.operation)} is {count(kernels)} kernels that move "
            f"{fold(low.bytes_ratio)} its compulsory bytes."
        )
    return BenchFinding(sentence, f"Fastest variant of each; {samples(high, low)}.", limits)


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
        f"are rows of tiles that no token fills."
    )
    return BenchFinding(
        sentence,
        f"{count(cases)} cases counted by ncu; all operations stand in the table of formulas."
        f"{_reread(found)}",
        "",
    )


def _reread(found: list[Point]) -> str:
    """Return how many times their compulsory bytes few and many tokens make DRAM move."""
    counted = [p for p in select(found, family="linear") if p.bytes_ratio > 0]
    few = [p.bytes_ratio for p in counted if p.param("tokens") < MANY]
    more = [p.bytes_ratio for p in counted if p.param("tokens") >= MANY]
    if not few or not more or max(more) < CLEAR:
        return ""
    return (
        f" DRAM moves {range_words((min(few), max(few)))} the compulsory bytes below "
        f"{tokens_text(MANY)} and {range_words((min(more), max(more)))} from there on, where tiles "
        "read inputs again."
    )
