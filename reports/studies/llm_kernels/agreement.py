"""What counters say about the formulas: ratios of counted to stated work, and why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.reports.cases.rows import NOT_COUNTED
from nsight_prof.reports.page import Column, Evidence, Finding, Interval, Number, Ref, Table, Text
from nsight_prof.reports.studies.llm_kernels.points import (
    DETAILS,
    POINTWISE,
    Point,
    of_tokens,
    select,
)
from nsight_prof.reports.studies.sentences import Sentences

SENTENCES = Sentences("llm_kernels")

LINEAR = "linear layers"
CLOSE = 0.05
"""A ratio within 5 % of 1 needs no reason."""
CLEAR = 1.1
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


def table(found: Sequence[Point]) -> Table[Agreement]:
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
    if (high.value or 0) < CLEAR:
        return
    few_low, few_high = _ends(few)
    yield Text(
        "DRAM moves {few_low} to {few_high} the compulsory bytes below {tokens} and up to "
        "{high} from there on, where tiles read inputs again",
        few_low=few_low,
        few_high=few_high,
        tokens=of_tokens(n=MANY),
        high=high,
    )
    if (low.value or 0) < 1 / CLEAR:
        smallest = min(many, key=lambda point: point.bytes_ratio.value or 0)
        size = Number(smallest.bytes, "B", (smallest.ref,))
        yield Text("at least {low}, of {size}: a part of them stays in L2", low=low, size=size)
