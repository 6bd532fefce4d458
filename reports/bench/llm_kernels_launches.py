"""Findings about launches, fusion, data, layouts and the truth of the formulas."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from nsight_prof.reports.bench.llm_kernels_agreement import (
    LINEAR,
    agreements,
    range_words,
    row_source,
)
from nsight_prof.reports.bench.llm_kernels_findings import (
    cases,
    fold,
    of_roof,
    samples,
    tokens_text,
)
from nsight_prof.reports.bench.llm_kernels_points import Point, one, select, times
from nsight_prof.reports.bench.llm_kernels_tables import by_shape
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.formats import (
    byte_rate,
    count,
    data_size,
    flop_rate,
    listed,
    seconds,
    share,
)

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
    return BenchFinding(
        sentence, f"The same functions; {samples(*flat)}.", limits, plain, cases(*flat)
    )


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
    both = [ranked[0][1]["graph"], best]
    evidence = f"Compiled for each size alone; {samples(*both)}.{rest}{_moved(ranked)}"
    plain = f"A compiler that merges steps makes single ones up to {fold(ranked[0][0])} as fast."
    gained = [made for gain, made in ranked if gain >= CLEAR]
    flat = [made[variant] for made in gained for variant in ("graph", "compiled-graph")]
    return BenchFinding(sentence, evidence, limits, plain, cases(*flat))


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
        f"{seconds(worst['compiled'].seconds)} instead of {seconds(worst['eager'].seconds)}). In a "
        f"CUDA graph {_every(len(small))} {fold(gain)} as fast as eager in the median: what is "
        "slower is the host's part of the call."
    )
    points = [m[variant] for m in small for variant in sorted(wanted)]
    graph = worst["compiled-graph"]
    evidence = (
        f"Each function compiled alone; {samples(*points)}. The compiled "
        f"{worst['eager'].operation} takes {seconds(graph.seconds)} in a CUDA graph, without the "
        "host."
    )
    limits = (
        "What the host does then was not measured: torch checks guards at each call of a compiled "
        "region, which a whole model pays once a step."
    )
    return BenchFinding(sentence, evidence, limits, cases=cases(*points))


def _every(number: int) -> str:
    return "it is" if number == 1 else f"all {count(number)} are"


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
    other = few.kernels and many.kernels and few.kernels != many.kernels
    why = ": the library chooses another kernel by the size" if other else ""
    sentence = (
        f"{_capital(few.operation)} takes {fold(times(few, many).value)} as "
        f"long for {tokens_text(few.param('tokens'))} ({seconds(few.seconds)}) as for "
        f"{count(many.param('tokens'))} ({seconds(many.seconds)}){why}."
    )
    evidence = f"In a CUDA graph; {samples(few, many)}."
    limits = "" if few.kernels and many.kernels else _untold(few, many)
    told = f"{evidence} Kernels: {listed(names)}." if names else evidence
    return BenchFinding(sentence, told, limits, cases=cases(few, many))


def _untold(few: Point, many: Point) -> str:
    """Say that the reason is open where a case has no counted kernels."""
    without = [count(p.param("tokens")) for p in (few, many) if not p.kernels]
    return (
        f"No kernel of the case with {listed(without)} tokens was counted: whether the library "
        "chooses another kernel by the size is not known."
    )


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
    return BenchFinding(
        sentence, f"Fastest variant of each; {samples(high, low)}.", limits, cases=cases(high, low)
    )


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
    evidence = f"N(0, 1) against zeros; {samples(random, blank)}."
    return BenchFinding(sentence, evidence, cases=cases(random, blank))


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
        evidence = f"cuDNN; {samples(first, last)}."
        return BenchFinding(sentence, evidence, cases=cases(first, last))
    return None


def formulas(found: list[Point]) -> BenchFinding | None:
    """Say how well counted FLOPs and bytes agree with the formulas of products."""
    made = [a for a in agreements(found) if a.operation == LINEAR]
    counted = [p for p in _linear(found) if p.flops_ratio > 0]
    if not made or not counted:
        return None
    ends = _ends(counted, _flops)
    large = [p for p in counted if p.param("tokens") >= MANY]
    many = ""
    if large:
        many = f", {_range(large, _flops)} from {tokens_text(MANY)} on"
    sentence = (
        f"The counted FLOPs of linear layers are {_range(counted, _flops)} 2mnk"
        f"{many}: the rest are rows of tiles that no token fills."
    )
    reread, extremes = _reread(found)
    total = sum(a.cases for a in made)
    return BenchFinding(
        sentence,
        f"{count(total)} cases counted by ncu; all operations stand in the table of formulas."
        f"{reread}",
        cases=(*(row_source(a) for a in made), *cases(*ends, *extremes)),
    )


def _ends(points: list[Point], key: Callable[[Point], float]) -> tuple[Point, Point]:
    return min(points, key=key), max(points, key=key)


def _range(points: list[Point], key: Callable[[Point], float]) -> str:
    low, high = _ends(points, key)
    return range_words((key(low), key(high)))


def _linear(found: list[Point]) -> list[Point]:
    """Return the linear layers, those in a graph first: the tables show these."""
    return sorted(select(found, family="linear"), key=lambda p: p.param("variant") != "graph")


def _flops(point: Point) -> float:
    return point.flops_ratio


def _bytes(point: Point) -> float:
    return point.bytes_ratio


def _reread(found: list[Point]) -> tuple[str, tuple[Point, ...]]:
    """Return how many times their compulsory bytes few and many tokens make DRAM move, and whose.

    Below one a part stayed in L2, above one tiles read inputs again: the ends of the range have
    opposite reasons.
    """
    moved = [p for p in _linear(found) if p.bytes_ratio > 0]
    few = [p for p in moved if p.param("tokens") < MANY]
    more = [p for p in moved if p.param("tokens") >= MANY]
    if not few or not more or max(map(_bytes, more)) < CLEAR:
        return "", ()
    low, high = _ends(more, _bytes)
    kept = ""
    if low.bytes_ratio < 1 / CLEAR:
        size = data_size(low.bytes)
        kept = (
            f" The least is {fold(low.bytes_ratio)}, of {size} in all: a part of them stays in L2."
        )
    return (
        f" DRAM moves {_range(few, _bytes)} the compulsory bytes below "
        f"{tokens_text(MANY)}. From there on it moves up to {fold(high.bytes_ratio)} as many, "
        f"where tiles read inputs again.{kept}"
    ), (low, high)
