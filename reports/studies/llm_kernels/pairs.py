"""Cases measured in two ways, and counted beside stated work: ratios, and why they are not 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import grouped
from nsight_prof.reports.cases.rows import NOT_COUNTED
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Finding,
    Interval,
    Name,
    Number,
    Ref,
    Table,
    Text,
)
from nsight_prof.reports.studies.llm_kernels.points import (
    DETAILS,
    POINTWISE,
    Point,
    first,
    of_tokens,
    rate_table,
    select,
    slowdown,
    slowdown_interval,
)

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
            evidence,
            operation=few.operation,
            longer=few.time.times(many.time),
            few=of_tokens(n=few.tokens),
            slow=few.time,
            many=of_tokens(n=many.tokens),
            fast=many.time,
            tokens=of_tokens(n=many.tokens),
        ),
        disproof=SENTENCES.text(
            "inversion",
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
        evidence,
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


LINEAR = "linear layers"
CLOSE = 0.05
"""A ratio within 5 % of 1 needs no reason."""
ABOVE = 1.1
"""DRAM bytes under 10 % above the compulsory ones are no sign that tiles read inputs again."""
MANY = 1024
"""Tokens that fill tiles, which have at most 256 rows."""
PADDED = Text("FLOPs: rows of a tile that no token fills are computed too")
OTHER_PIPE = Text("FLOPs: the kernel counts on another pipe")
INSTRUCTIONS = Text("FLOPs: exp, quotients and conversions are several instructions or none")
MASKED = Text("FLOPs: all pairs are computed and half of them masked; softmax is counted")
DIAGONAL = Text("FLOPs: tiles on the diagonal are computed whole; softmax is counted")
ONE_QUERY = Text("FLOPs: the one query of a sequence is padded to a tile of queries")
ALGORITHM = Text("FLOPs: the algorithm or its padding differs from the direct sum")
CACHED = Text("DRAM below 1: a part stays in L2")
SCORES = Text("DRAM above 1: scores are stored and read again")
KV_REREAD = Text("DRAM above 1: KV heads are repeated or reread, or parts of a split are stored")
UNFUSED = Text("DRAM above 1: each step is a kernel that stores what the next one reads")
TILES_REREAD = Text("DRAM above 1: tiles that do not share inputs through L2 read them again")
REREAD = Text("DRAM above 1: inputs are read again, or intermediates are stored")


@dataclass(frozen=True)
class Agreement:
    """Counted over stated work of the cases of one operation."""

    operation: str
    variant: str
    cases: tuple[Point, ...]

    @property
    def ref(self) -> Ref:
        """Its row of the table."""
        return Ref("formulas", f"{self.operation}, {self.variant}")

    @property
    def flops(self) -> Interval:
        """Smallest and largest ratio of FLOPs; unknown where none was counted."""
        return span(point.flops_ratio for point in self.cases)

    @property
    def bytes(self) -> Interval:
        """Smallest and largest ratio of DRAM bytes."""
        return span(point.bytes_ratio for point in self.cases)

    @property
    def reasons(self) -> list[Text]:
        """Why the ratios differ from 1; empty where they do not."""
        point = self.cases[0]
        low, high = self.bytes.low, self.bytes.high
        reasons = []
        if _differs(self.flops):
            reasons.append(_flops_reason(point, above=(self.flops.high or 0) > 1))
        if low is not None and low < 1 - CLOSE:
            reasons.append(CACHED)
        if high is not None and high > 1 + CLOSE:
            reasons.append(_bytes_reason(point))
        return reasons


def span(ratios: Iterable[Number]) -> Interval:
    """Return the smallest and the largest of the known ratios."""
    known = [ratio.value for ratio in ratios if ratio.value is not None]
    return Interval(min(known, default=None), max(known, default=None), "x")


def agreements(found: Sequence[Point]) -> list[Agreement]:
    """Return one agreement per operation (attention: per back end; fusible: eager, compiled)."""
    groups: dict[tuple[str, str], dict[str, Point]] = {}
    for point in found:
        if point.counted is not None:
            # Variants that share the counted kernels count once.
            operation = LINEAR if point.param("family") == "linear" else point.operation
            cases = groups.setdefault((operation, _variant(point)), {})
            cases[str(point.counted["case_id"])] = point
    return [Agreement(*key, tuple(cases.values())) for key, cases in groups.items()]


def _variant(point: Point) -> str:
    if point.param("family") == "attention":
        return point.backend
    if point.param("family") in POINTWISE:
        return "compiled" if str(point.param("variant")).startswith("compiled") else "eager"
    return point.dtype


def _differs(ratios: Interval) -> bool:
    if ratios.low is None or ratios.high is None:
        return False
    return max(abs(ratios.low - 1), abs(ratios.high - 1)) > CLOSE


def _flops_reason(point: Point, *, above: bool) -> Text:
    family = point.param("family")
    if family in POINTWISE:
        return INSTRUCTIONS
    if family == "attention":
        if point.param("stage") != "prefill":
            return ONE_QUERY
        return MASKED if point.param("backend") == "math" else DIAGONAL
    if family in ("linear", "bmm"):
        return PADDED if above else OTHER_PIPE
    return ALGORITHM


def _bytes_reason(point: Point) -> Text:
    family = point.param("family")
    if family == "attention":
        return SCORES if point.param("backend") == "math" else KV_REREAD
    if family in POINTWISE and _variant(point) == "eager":
        return UNFUSED
    return TILES_REREAD if family in ("linear", "bmm") else REREAD


def formula_table(found: Sequence[Point]) -> Table[Agreement]:
    """Return counted over stated FLOPs and bytes of every operation, with the reasons."""
    return Table(
        "llm-formulas",
        Text("Formulas against counters"),
        [
            Column(Text("operation"), lambda row: row.operation),
            Column(Text("of"), lambda row: row.variant),
            Column(Text("cases counted"), lambda row: len(row.cases)),
            Column(Text("counted FLOPs"), lambda row: _without_width(row.flops)),
            Column(Text("DRAM bytes"), lambda row: _without_width(row.bytes)),
            Column(Text("reasons"), lambda row: row.reasons or Text("as stated")),
        ],
        agreements(found),
        note=SENTENCES.note("llm-formulas"),
        refs=lambda row: [row.ref],
        preview=DETAILS,
    )


def _without_width(ratios: Interval) -> Interval | Number:
    if ratios.low == ratios.high:
        return Number(ratios.low, "x", missing=NOT_COUNTED)
    return ratios


def formulas(found: Sequence[Point]) -> Finding | None:
    """State how well counted FLOPs and bytes agree with the formulas of products."""
    # Those in a graph first: the tables show these.
    linear = sorted(select(found, family="linear"), key=lambda p: p.param("variant") != "graph")
    counted = [point for point in linear if point.flops_ratio.value]
    rows = [row for row in agreements(found) if row.operation == LINEAR]
    if not counted or not rows:
        return None
    large = [point for point in counted if point.tokens >= MANY]
    low, high = _ends([point.flops_ratio for point in counted])
    ends = _ends([point.flops_ratio for point in large]) if large else (None, None)
    return SENTENCES.finding(
        "tile_padding",
        (
            Evidence(
                Text("cases counted by ncu:"),
                Number(sum(len(row.cases) for row in rows), "count", tuple(r.ref for r in rows)),
            ),
            *_moved(linear),
        ),
        low=low,
        high=high,
        low_large=ends[0],
        high_large=ends[1],
        tokens=of_tokens(n=MANY) if large else None,
    )


def _ends(ratios: Sequence[Number]) -> tuple[Number, Number]:
    ranked = sorted(ratios, key=lambda ratio: ratio.value or 0)
    return ranked[0].at_digits(3), ranked[-1].at_digits(3)


def _moved(linear: Sequence[Point]) -> Iterator[Text]:
    """Yield how many times their compulsory bytes few and many tokens make DRAM move.

    Below one a part stayed in L2, above one tiles read inputs again: the ends of the range have
    opposite reasons.
    """
    counted = [point for point in linear if point.bytes_ratio.value]
    few = [point.bytes_ratio for point in counted if point.tokens < MANY]
    many = [point for point in counted if point.tokens >= MANY]
    if not few or not many:
        return
    low, high = _ends([point.bytes_ratio for point in many])
    if (high.value or 0) < ABOVE:
        return
    few_low, few_high = _ends(few)
    yield SENTENCES.text(
        "dram_moves",
        few_low=few_low,
        few_high=few_high,
        tokens=of_tokens(n=MANY),
        high=high,
    )
    if (low.value or 0) < 1 / ABOVE:
        smallest = min(many, key=lambda point: point.bytes_ratio.value or 0)
        size = Number(smallest.bytes, "B", (smallest.ref,))
        yield Text("at least {low}, of {size}: a part of them stays in L2", low=low, size=size)
