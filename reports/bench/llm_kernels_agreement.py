"""What counters say about the formulas: ratios of counted to stated work, and why they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nsight_prof.reports.bench.llm_kernels_points import Point
from nsight_prof.reports.bench.models import BenchTable, Source
from nsight_prof.reports.formats import NA, count, significant, speedup

LINEAR = "linear layers"
CLOSE = 0.05
"""A ratio within 5 % of 1 needs no reason."""
PADDED = "the tile is larger than the rows of tokens, and its empty rows are computed too"
CACHED = "part stays in L2: outputs not written back yet, or inputs left there by the call before"


@dataclass(frozen=True)
class Agreement:
    """Counted over stated work of the cases of one operation; ranges are NaN where none was."""

    operation: str
    what: str
    cases: int
    flops: tuple[float, float]
    bytes: tuple[float, float]
    reasons: tuple[str, ...]


def agreements(found: list[Point]) -> list[Agreement]:
    """Return one agreement for each operation (attention: back end; fusible: eager, compiled)."""
    groups: dict[tuple[str, str], dict[str, Point]] = {}
    for point in found:
        if point.counted is not None:
            # Variants that share the counted kernels count once.
            case = str(point.counted["case_id"])
            groups.setdefault((_operation(point), _what(point)), {})[case] = point
    return [_agreement(key, list(points.values())) for key, points in groups.items()]


def _operation(point: Point) -> str:
    return LINEAR if point.param("family") == "linear" else point.operation


def _what(point: Point) -> str:
    family = point.param("family")
    if family == "attention":
        return point.backend
    if family in ("norm", "elementwise", "sampling"):
        return "compiled" if str(point.param("variant")).startswith("compiled") else "eager"
    return str(point.row["dtype"])


def _agreement(key: tuple[str, str], points: list[Point]) -> Agreement:
    flops = _range([p.flops_ratio for p in points])
    moved = _range([p.bytes_ratio for p in points])
    reasons = [_flops_reason(points[0], flops), *_bytes_reasons(points[0], moved)]
    return Agreement(*key, len(points), flops, moved, tuple(r for r in reasons if r))


def _range(ratios: list[float]) -> tuple[float, float]:
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return (min(known), max(known)) if known else (math.nan, math.nan)


def _flops_reason(point: Point, ratios: tuple[float, float]) -> str:
    low, high = ratios
    if math.isnan(low) or (abs(low - 1) <= CLOSE and abs(high - 1) <= CLOSE):
        return ""
    family, stage = point.param("family"), point.param("stage")
    if family in ("norm", "elementwise", "sampling"):
        return "FLOPs: exp, quotients and conversions are several instructions or none, by unit"
    if family == "attention" and point.param("backend") == "math" and stage == "prefill":
        return "FLOPs: all pairs are computed and half of them masked away; softmax is counted"
    if family == "attention" and stage == "prefill":
        return "FLOPs: tiles on the diagonal are computed whole, and softmax is counted"
    if family == "attention":
        return "FLOPs: the one query of a sequence is padded to a tile of queries"
    if family in ("linear", "bmm"):
        return f"FLOPs: {PADDED}" if high > 1 else "FLOPs: the kernel counts on another pipe"
    return "FLOPs: the algorithm or its padding differs from the direct sum"


def _bytes_reasons(point: Point, ratios: tuple[float, float]) -> list[str]:
    low, high = ratios
    reasons = []
    if not math.isnan(low) and low < 1 - CLOSE:
        reasons.append(f"DRAM below 1: {CACHED}")
    if not math.isnan(high) and high > 1 + CLOSE:
        reasons.append(f"DRAM above 1: {_more(point)}")
    return reasons


def _more(point: Point) -> str:
    family = point.param("family")
    if family == "attention" and point.param("backend") == "math":
        return "scores are stored and read again"
    if family == "attention":
        return "key and value heads are repeated, reread, or parts of a split are stored"
    if _what(point) == "eager" and family in ("norm", "elementwise", "sampling"):
        return "each step is a kernel of its own and stores what the next one reads"
    if family in ("linear", "bmm"):
        return "inputs are read again by tiles that do not share them through L2"
    return "inputs are read again, or intermediates are stored"


def agreement_table(found: list[Point]) -> BenchTable | None:
    """Return counted over stated FLOPs and bytes of every operation, with the reasons."""
    made = agreements(found)
    rows = [
        (
            a.operation,
            a.what,
            count(a.cases),
            range_text(a.flops),
            range_text(a.bytes),
            "; ".join(a.reasons) or "as stated",
        )
        for a in made
    ]
    if not rows:
        return None
    return BenchTable(
        "Formulas against counters",
        ("operation", "of", "cases counted", "FLOPs", "DRAM bytes", "why they differ"),
        tuple(rows),
        "Counted over stated, smallest to largest of the cases. Stated bytes are compulsory: each "
        "input read once, each output written once.",
        left=("operation", "of", "why they differ"),
        anchors=tuple((row_source(a).anchor,) for a in made),
    )


def row_source(agreement: Agreement) -> Source:
    """Return the row of an agreement, for findings that tell its range."""
    of = f"{agreement.operation}, {agreement.what}"
    kept = "".join(c if c.isalnum() else "-" for c in of)
    return Source(f"formulas against counters: {of}", f"formulas-{kept}")


def range_words(ratios: tuple[float, float]) -> str:
    """Return "1.00 to 1.13 times", or "1.00 times" where both ends look alike."""
    low, high = (significant(value) for value in ratios)
    return f"{low} times" if low == high else f"{low} to {high} times"


def range_text(ratios: tuple[float, float]) -> str:
    """Return "1.00x to 1.13x", or one number where both ends look alike."""
    low, high = (speedup(value) for value in ratios)
    if low == NA:
        return NA
    return low if low == high else f"{low} to {high}"
