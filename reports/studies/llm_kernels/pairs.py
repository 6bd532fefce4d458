"""Cases measured in two ways: without and with a graph, cold and hot, on random data and zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import grouped
from nsight_prof.reports.page import Column, Evidence, Finding, Name, Table, Text
from nsight_prof.reports.studies.llm_kernels.points import (
    DETAILS,
    Point,
    first,
    of_tokens,
    rate_table,
    samples,
    select,
    slowdown,
    slowdown_interval,
)
from nsight_prof.reports.studies.sentences import Sentences

SENTENCES = Sentences("llm_kernels")

CLEAR = 1.1
"""A difference under 10 % is not worth a sentence of its own."""


Pair = tuple[Text, Point, Point]
"""One case measured in two ways, the first and the second, which the text names."""


def inversion(found: Sequence[Point]) -> Finding | None:
    """State where fewer tokens take longer than more: another kernel is chosen."""
    swept = grouped(
        (point for point in select(found, variant="graph") if point.tokens),
        lambda point: (point.operation, str(point.param("model")), point.dtype),
    )
    pairs = [
        (few, many)
        for same in swept.values()
        for few in same
        for many in same
        if few.tokens < many.tokens and slowdown_interval(few, many)[0] > CLEAR
    ]
    if not pairs:
        return None
    few, many = max(pairs, key=lambda pair: slowdown(*pair))
    kernels = [
        Text("{kernels} at {tokens}", kernels=p.kernels, tokens=of_tokens(n=p.tokens))
        for p in (few, many)
        if p.kernels
    ]
    uncounted = [of_tokens(n=point.tokens) for point in (few, many) if not point.kernels]
    evidence: list[Evidence | Text] = [Evidence(Text("kernels:"), kernels)] if kernels else []
    if len(kernels) == 2 and few.kernels != many.kernels:
        evidence.append(Text("the library chooses another kernel by the size"))
    return replace(
        SENTENCES.finding(
            "size_inversion",
            (*evidence, samples((few, many))),
            operation=few.operation,
            longer=few.time.times(many.time),
            few=of_tokens(n=few.tokens),
            slow=few.time,
            many=of_tokens(n=many.tokens),
            fast=many.time,
            tokens=of_tokens(n=many.tokens),
        ),
        disproof=Text(
            "No kernel was counted at {tokens}: whether the library chooses another one by the "
            "size is not known.",
            tokens=uncounted,
        )
        if uncounted
        else None,
        gain=few.time - many.time,
    )


def zeros(found: Sequence[Point]) -> Finding | None:
    """State what zeros instead of random numbers do to a large product."""
    pairs = [
        (point, blank)
        for blank in select(found, data="zeros", family="linear")
        for point in select(found, family="linear")
        if point.name == blank.name
    ]
    if not pairs:
        return None
    random, blank = max(pairs, key=lambda pair: pair[0].flops)
    low, high = slowdown_interval(random, blank)
    if low <= 1 <= high:
        return None
    evidence = []
    if random.clock.value and blank.clock.value:
        label = Text("SM clock on zeros, of that on random numbers:")
        evidence.append(Evidence(label, blank.clock.share_of(random.clock)))
    return SENTENCES.finding(
        "zeros",
        (*evidence, samples((random, blank))),
        projection=random.param("projection"),
        tokens=of_tokens(n=random.tokens),
        gain=random.time.times(blank.time),
        zeros=blank.flop_rate,
        random=random.flop_rate,
    )


def layouts(found: Sequence[Point]) -> Finding | None:
    """State what channels-last gains for a convolution."""
    for usual in select(found, family="conv", layout="channels-first", variant="graph"):
        layer = usual.param("layer")
        last = first(found, family="conv", layout="channels-last", layer=layer, variant="graph")
        if last is None or 1 / CLEAR < slowdown(usual, last) < CLEAR:
            continue
        slow, fast = sorted((usual, last), key=lambda point: -point.seconds)
        pays = fast is last
        names = [Text("channels-last"), Text("channels-first")]
        best, worst = names if pays else reversed(names)
        return SENTENCES.finding(
            "channels_last",
            (Text("cuDNN; channels-first is torch's default"), samples((slow, fast))),
            layer=layer,
            fast=fast.time,
            best=best,
            slow=slow.time,
            worst=worst,
            longer=slow.time.times(fast.time),
            layout=Name("torch.channels_last") if pays else None,
        )
    return None


def table(found: Sequence[Point]) -> Table[Pair]:
    """Return every case that was measured in two ways."""
    cold = {point.name: point for point in select(found)}
    graphs = {point.shape: point for point in select(found, variant="graph")}
    pairs = [
        (Text("random numbers, zeros"), cold[blank.name], blank)
        for blank in select(found, data="zeros")
        if blank.name in cold
    ]
    pairs += [
        (Text("launched by the host, in a CUDA graph"), eager, graphs[eager.shape])
        for family in ("linear", "bmm", "attention", "conv", "lstm")
        for eager in select(found, family=family, variant="eager")
        if eager.shape in graphs
    ]
    pairs += [
        (Text("cold, hot in L2"), cold[hot.name], hot)
        for hot in select(found, mode="hot")
        if hot.name in cold
    ]
    return Table(
        "llm-pairs",
        Text("Cases measured in two ways"),
        [
            Column(Text("first, second"), lambda pair: pair[0]),
            Column(Text("operation"), lambda pair: pair[1].operation),
            Column(Text("case"), lambda pair: pair[1].case),
            Column(Text("time, first"), lambda pair: pair[1].time),
            Column(Text("time, second"), lambda pair: pair[2].time),
            Column(Text("first over second"), lambda pair: pair[1].time.times(pair[2].time)),
            Column(Text("SM clock, first"), lambda pair: pair[1].clock, "GHz"),
            Column(Text("SM clock, second"), lambda pair: pair[2].clock, "GHz"),
        ],
        pairs,
        refs=lambda pair: [pair[1].ref, pair[2].ref],
        preview=DETAILS,
    )


def layer_table(found: Sequence[Point]) -> Table[Point]:
    """Return batched products, convolutions and LSTMs with rates and counters."""
    rows = [p for f in ("bmm", "conv", "lstm") for p in select(found, family=f, variant="graph")]
    return rate_table(
        "llm-others",
        Text("Batched products, convolution and LSTM"),
        [Column(Text("operation"), lambda point: point.operation), Column(Text("case"), _case)],
        rows,
        preview=0,
    )


def _case(point: Point) -> str | Text:
    if point.param("family") == "bmm":
        sizes = " x ".join(f"{point.param(key):,}" for key in ("batch", "m", "n", "k"))
        return f"{point.param('what')} ({sizes})"
    if point.param("family") == "conv":
        kernel = point.param("kernel")
        return f"{point.param('layer')}, {kernel} x {kernel}, {point.param('layout')}"
    return Text(
        "batch {batch}, {steps} steps, {hidden} wide",
        batch=point.param("batch"),
        steps=point.param("steps"),
        hidden=point.param("hidden"),
    )
