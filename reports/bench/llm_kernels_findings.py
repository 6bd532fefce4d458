"""Findings about products and attention: what batching, precision and back ends gain."""

from __future__ import annotations

import math

from nsight_prof.parsers.cells import count as whole
from nsight_prof.parsers.cells import known, names, number
from nsight_prof.reports.bench.case_rows import sources
from nsight_prof.reports.bench.llm_kernels_points import (
    LayerPoint,
    Point,
    layers,
    one,
    select,
    times,
    title,
)
from nsight_prof.reports.bench.models import BenchFinding, Source
from nsight_prof.reports.formats import (
    byte_rate,
    clock,
    count,
    flop_rate,
    listed,
    seconds,
    share,
    significant,
)

FEW = 16
NEAR = 0.9
"""A share of the best rate from which more tokens gain little."""


def samples(*points: Point) -> str:
    """Return what medians rest on: "medians of at least 30 samples in 3 processes"."""
    least = min(whole(point.row["n"]) or 0 for point in points)
    processes = min(whole(point.row["processes"]) or 0 for point in points)
    across = f"{count(processes)} process{'' if processes == 1 else 'es'}"
    return f"medians of at least {count(least)} samples in {across}"


def cases(*points: Point) -> tuple[Source, ...]:
    """Return the cases that a sentence is from."""
    return sources(point.row for point in points)


def fold(ratio: float) -> str:
    """Return "1.27 times"."""
    return f"{significant(ratio)} times"


def of_roof(fraction: float, roof: str) -> str:
    """Return ", 87 % of the DRAM roof"; empty where that is unknown."""
    if math.isnan(fraction):
        return ""
    return (
        f", {share(fraction)} of the {roof} roof" if roof else f", {share(fraction)} of the roofs"
    )


def tokens_text(tokens: int) -> str:
    """Return "1 token" or "8,192 tokens"."""
    return f"{count(tokens)} token{'' if tokens == 1 else 's'}"


def batching(found: list[Point], reference: str) -> BenchFinding | None:
    """Say what a decode step gains from batching: weights are read once for all tokens."""
    swept = [layer for layer in layers(found) if layer.model == reference]
    first = next((layer for layer in swept if layer.tokens == 1), None)
    more = [layer for layer in swept if layer.tokens > 1]
    if first is None or not more:
        return None
    few = min(more, key=lambda layer: abs(layer.tokens - FEW))
    longer = few.seconds / first.seconds
    rate = of_roof(first.fraction, first.roofs)
    sentence = (
        f"For one token the linear layers of a {title(reference)} layer take "
        f"{seconds(first.seconds)}: they read their weights at {byte_rate(first.byte_rate)}{rate}. "
        f"For {count(few.tokens)} tokens they take {fold(longer)} as long, which yields "
        f"{fold(few.tokens / longer)} as many tokens a second."
    )
    return BenchFinding(
        sentence,
        f"QKV, out, gate/up and down in CUDA graphs, weights not in L2; "
        f"{samples(*first.parts, *few.parts)}.",
        "Attention grows with the batch, because each sequence has its own KV cache.",
        f"Generating for {count(few.tokens)} users at once takes a model's matrix products "
        f"{fold(longer)} as long as for one.",
        cases(*first.parts, *few.parts),
    )


def saturation(found: list[Point], reference: str) -> BenchFinding | None:
    """Say what large prompts reach, and from how many tokens on."""
    swept = [layer for layer in layers(found) if layer.model == reference]
    if len(swept) < 2:
        return None
    best = max(swept, key=lambda layer: layer.flop_rate)
    enough = next(layer for layer in swept if layer.flop_rate >= NEAR * best.flop_rate)
    sentence = (
        f"From {tokens_text(enough.tokens)} on the linear layers of {title(reference)} compute at "
        f"{NEAR * 100:.0f} % of their best rate or more; the best is {flop_rate(best.flop_rate)} "
        f"at {tokens_text(best.tokens)}{of_roof(best.fraction, best.roofs)}."
    )
    sizes = listed([count(layer.tokens) for layer in swept])
    return BenchFinding(
        sentence,
        f"Swept at {sizes} tokens; {samples(*(p for layer in swept for p in layer.parts))}.",
        f"{_held_down(best)}Between the swept sizes tiles and waves make steps: see the recipe "
        "gemm-staircase.",
        cases=cases(*(p for x in swept if x.tokens >= enough.tokens for p in x.parts)),
    )


def _held_down(layer: LayerPoint) -> str:
    """Return what held the clock down while the layers were measured; empty where nothing did."""
    held = [p for p in layer.parts if number(p.row["throttled_samples"]) > 0]
    found = {reason for p in held for reason in names(p.row["throttle_reasons"])}
    reasons = sorted(reason.replace("_", " ") for reason in found)
    clocks = [value for p in held if (value := known(p.row["clock_hz"])) is not None]
    if not reasons or not clocks:
        return ""
    span = " to ".join(dict.fromkeys(clock(value) for value in (min(clocks), max(clocks))))
    return (
        f"{count(len(held))} of the {count(len(layer.parts))} largest products ran under a limit "
        f"({listed(reasons)}), at {span}. "
    )


def models(found: list[Point]) -> BenchFinding | None:
    """Say which model's layers are the farthest from the roof at most tokens."""
    all_layers = layers(found)
    most = max((layer.tokens for layer in all_layers), default=0)
    ends = sorted((p for p in all_layers if p.tokens == most), key=lambda p: p.flop_rate)
    if len(ends) < 2 or ends[-1].flop_rate < 1.05 * ends[0].flop_rate:
        return None
    low, high = ends[0], ends[-1]
    sentence = (
        f"The layers of {title(low.model)} reach {flop_rate(low.flop_rate)} at "
        f"{tokens_text(most)}{of_roof(low.fraction, low.roofs)}, those of {title(high.model)} "
        f"{flop_rate(high.flop_rate)}{of_roof(high.fraction, high.roofs)}."
    )
    return BenchFinding(
        sentence,
        f"One decoder layer of each; {samples(*low.parts, *high.parts)}.",
        cases=cases(*low.parts, *high.parts),
    )


def precision(found: list[Point]) -> BenchFinding | None:
    """Say what fp8 gains at the ends of the sweep."""
    wide = {(p.model, p.tokens): p for p in layers(found)}
    pairs = [
        (wide[p.model, p.tokens], p) for p in layers(found, "fp8") if (p.model, p.tokens) in wide
    ]
    if len(pairs) < 2:
        return None
    first, last = pairs[0], pairs[-1]
    gains = [slow.seconds / fast.seconds for slow, fast in (first, last)]
    rate = of_roof(last[1].fraction, last[1].roofs)
    sentence = (
        f"fp8 makes the linear layers of {title(last[1].model)} {fold(gains[1])} as fast as bf16 "
        f"at {tokens_text(last[1].tokens)} ({flop_rate(last[1].flop_rate)}{rate}) and "
        f"{fold(gains[0])} at {tokens_text(first[1].tokens)}."
    )
    return BenchFinding(
        sentence,
        f"Four products of a decoder layer each; {samples(*first[1].parts, *last[1].parts)}.",
        "Quantizing the activations costs a kernel more, which is not in these times.",
        f"Numbers of 8 bits instead of 16 make a model's matrix products {fold(gains[1])} as fast.",
        cases(*(p for pair in (first, last) for layer in pair for p in layer.parts)),
    )


def prefill_backends(found: list[Point], reference: str) -> BenchFinding | None:
    """Say which back end is fastest for a long prompt, and what the others cost."""
    chosen = select(found, family="attention", stage="prefill", model=reference, variant="graph")
    single = [p for p in chosen if p.param("batch") == 1]
    sizes = sorted({p.param("keys") for p in single}, reverse=True)
    for keys in sizes:
        made = {p.param("backend"): p for p in single if p.param("keys") == keys}
        if len(made) > 2 or (len(made) == 2 and keys == sizes[-1]):
            return _rivals(made, f"a prompt of {count(keys)} positions", prefill=True)
    return None


def decode_backends(found: list[Point], reference: str) -> BenchFinding | None:
    """Say which back end is fastest for a decode step with a long cache."""
    chosen = select(found, family="attention", stage="decode", model=reference, variant="graph")
    grouped = [p for p in chosen if p.param("kv_groups") != "none"] or chosen
    by_size: dict[tuple[int, int], dict[str, Point]] = {}
    for p in grouped:
        by_size.setdefault((p.param("batch"), p.param("keys")), {})[p.param("backend")] = p
    sizes = [size for size, made in by_size.items() if len(made) > 1]
    if not sizes:
        return None
    size = max(sizes, key=lambda s: (len(by_size[s]), s[0] * s[1]))
    sequences = f"{count(size[0])} sequence{'' if size[0] == 1 else 's'}"
    where = f"one new token of {sequences} with {count(size[1])} positions each"
    return _rivals(by_size[size], where, prefill=False)


def _rivals(made: dict[str, Point], where: str, prefill: bool) -> BenchFinding:
    ranked = sorted(made.values(), key=lambda p: p.seconds)
    best = ranked[0]
    rate = flop_rate(best.flop_rate) if prefill else byte_rate(best.byte_rate)
    others = [f"{_backend(p)} takes {fold(times(p, best).value)} as long" for p in ranked[1:]]
    sentence = (
        f"{_backend(best)} is the fastest attention for {where}: {seconds(best.seconds)}, "
        f"{rate}{of_roof(best.fraction, best.roof)}; {listed(others)}."
    )
    expanded = [_backend(p) for p in ranked if p.param("kv_groups") == "expanded"]
    limits = ""
    if expanded:
        limits = (
            f"{listed(expanded)} got repeated KV heads, because it needs as many as query heads."
        )
    shape = f"{best.param('heads')} query and {best.param('kv_heads')} KV heads"
    plain = (
        f"Of the {count(len(ranked))} ways to compute attention the slowest takes "
        f"{fold(times(ranked[-1], best).value)} as long as the fastest: choose it on purpose."
    )
    return BenchFinding(
        sentence,
        f"{shape} of {best.param('head_dim')}, bf16; {samples(*ranked)}.",
        limits,
        plain if prefill else "",
        cases(*ranked),
    )


def _backend(point: Point) -> str:
    return "the math back end" if point.param("backend") == "math" else point.backend


def grouped_heads(found: list[Point], reference: str) -> BenchFinding | None:
    """Say what sharing KV heads saves in a decode step."""
    chosen = {"stage": "decode", "model": reference, "variant": "graph", "backend": "flash"}
    for full in select(found, family="attention", kv_groups="none", **chosen):
        same = {key: full.param(key) for key in ("batch", "keys")}
        shared = one(found, family="attention", kv_groups="native", **chosen, **same)
        if shared is None:
            continue
        gain, heads = times(full, shared), shared.param("heads") / shared.param("kv_heads")
        sentence = (
            f"Sharing each KV head among {heads:.0f} query heads makes a decode step's attention "
            f"{fold(gain.value)} as fast ({count(same['batch'])} sequences, "
            f"{count(same['keys'])} positions), where it moves {heads:.0f} times fewer KV bytes."
        )
        evidence = f"{shared.backend}; {samples(full, shared)}."
        return BenchFinding(sentence, evidence, cases=cases(full, shared))
    return None
