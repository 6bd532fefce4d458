"""Strides and gathers: useful bandwidth, and what DRAM moved for each useful byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.reports.bench.cases import ratio
from nsight_prof.reports.bench.models import (
    BenchFinding,
    BenchTable,
    Json,
    LineFigure,
    Panel,
    Series,
)
from nsight_prof.reports.cells import Row, number
from nsight_prof.reports.formats import NA, byte_rate, count, share, significant

SECTOR = 32.0
"""Bytes."""

WHOLE = 1.1
"""DRAM bytes a useful byte below which nothing but the useful bytes was moved."""

HALF = 0.51
"""Of the bandwidth, noise included, from which on half is said to be lost."""


@dataclass(frozen=True)
class Access:
    """One measured stride or gather.

    Attributes:
        kind: "read" or "write" at a stride, "random" or "ordered" gathers.
        size: sectors of the stride, or bytes of an item.
        useful: bytes that were asked for, indices of a gather left out.
        index: bytes of indices.
        items: items that one call gathers; 0 for a stride.
        seconds, low, high: of one call, with its 95 % interval.
        dram: bytes that DRAM moved for one call, by counters; NaN without them.
    """

    kind: str
    size: float
    useful: float
    index: float
    items: float
    seconds: float
    low: float
    high: float
    dram: float

    @property
    def rate(self) -> float:
        """Useful bytes a second."""
        return self.useful / self.seconds

    @property
    def moved(self) -> float:
        """Bytes that DRAM moved for each useful byte; indices, read in order, are taken off."""
        return (self.dram - self.index) / self.useful

    @property
    def dram_rate(self) -> float:
        """Bytes a second that DRAM moves while it runs: counted bytes over the measured time."""
        return self.dram / self.seconds


@dataclass(frozen=True)
class AccessView:
    """What a section says of strides or gathers."""

    findings: tuple[BenchFinding, ...]
    tables: tuple[BenchTable, ...]
    figures: tuple[LineFigure, ...]
    numbers: list[dict[str, Json]]


def accesses(rows: Sequence[Row], pattern: str) -> list[Access]:
    """Return the measured cases of "stride" or "gather", by kind and size."""
    kind, size, useful = {
        "stride": ("access", "stride_sectors", "useful_bytes"),
        "gather": ("order", "item_bytes", "gathered_bytes"),
    }[pattern]
    found = []
    for row in rows:
        params = row["params"]
        if params.get("pattern") != pattern:
            continue
        found.append(
            Access(
                kind=str(params.get(kind, "")),
                size=float(params.get(size, math.nan)),
                useful=float(params.get(useful, math.nan)),
                index=float(params.get("index_bytes", 0)),
                items=float(params.get("items", 0)),
                seconds=number(row["median_s"]),
                low=number(row["ci_low_s"]),
                high=number(row["ci_high_s"]),
                dram=ratio(row["dram_bytes"], row["counted_calls"]),
            )
        )
    return sorted(found, key=lambda one: (one.kind, one.size))


def _tera(rate: float) -> str:
    return significant(rate / 1e12) if math.isfinite(rate) else NA


def _series(label: str, mine: Sequence[Access], *, unit: float, moved: bool = False) -> Series:
    x = tuple(unit * one.size for one in mine)
    if moved:
        return Series(label, x, tuple(one.moved for one in mine), group=label)
    return Series(
        label,
        x,
        tuple(one.rate / 1e12 for one in mine),
        tuple(one.useful / one.high / 1e12 for one in mine),
        tuple(one.useful / one.low / 1e12 for one in mine),
        group=label,
    )


def _figure(
    found: Sequence[Access],
    kinds: dict[str, str],
    *,
    name: str,
    title: str,
    x_label: str,
    unit: float = 1.0,
) -> LineFigure:
    """Return useful bandwidth, and where counters are there DRAM bytes for each useful byte.

    Sizes times `unit` are bytes.
    """
    by_kind = {words: [one for one in found if one.kind == kind] for kind, words in kinds.items()}
    drawn = {words: mine for words, mine in by_kind.items() if mine}
    panels = [
        Panel(
            "useful, TB/s", tuple(_series(words, mine, unit=unit) for words, mine in drawn.items())
        )
    ]
    counted = any(math.isfinite(one.moved) for one in found)
    if counted:
        moved = tuple(_series(words, mine, unit=unit, moved=True) for words, mine in drawn.items())
        panels.append(
            Panel("DRAM bytes a useful byte", moved, y_log=True, levels=((1.0, "all useful"),))
        )
    return LineFigure(
        name=name,
        title=title,
        alt=f"{title}: useful bandwidth"
        + (" and the bytes that DRAM moved for each useful byte." if counted else "."),
        x_label=x_label,
        x_log=True,
        x_bytes=True,
        panels=tuple(panels),
    )


def stride_view(rows: Sequence[Row]) -> AccessView | None:
    """Return what the strides say; None without a measured one."""
    found = accesses(rows, "stride")
    if not found:
        return None
    first = {one.kind: one.rate for one in found if one.size == 1}
    cells = tuple(
        (
            one.kind,
            count(one.size),
            _tera(one.rate),
            share(one.rate / first.get(one.kind, math.nan)),
            significant(one.moved),
            _tera(one.dram_rate),
        )
        for one in found
    )
    table = BenchTable(
        title="One sector of 32 B in every so many",
        columns=("access", "stride, sectors", "useful, TB/s", "of stride 1",
                 "DRAM bytes a useful byte", "DRAM moves, TB/s"),
        rows=cells,
        note="Useful: bytes of the sectors that were asked for. DRAM bytes are counted under ncu, "
        "times are measured without it.",
        left=("access",),
    )  # fmt: skip
    figure = _figure(
        found,
        {"read": "read", "write": "write"},
        name="memory_patterns_stride",
        title="Useful bandwidth at a stride",
        x_label="from one used sector of 32 B to the next",
        unit=SECTOR,
    )
    return AccessView(_stride_finding(found), (table,), (figure,), _numbers(found))


def _stride_finding(found: Sequence[Access]) -> tuple[BenchFinding, ...]:
    reads = {one.size: one for one in found if one.kind == "read"}
    if 1 not in reads or len(reads) < 2:
        return ()
    whole, second = reads[1], reads.get(2)
    widest = reads[max(reads)]
    words = []
    if second is not None:
        words.append(
            f"reading every second sector leaves {share(second.rate / whole.rate)} of the useful "
            f"bandwidth"
        )
    words.append(
        f"one sector in {count(widest.size)} leaves {share(widest.rate / whole.rate)} "
        f"({byte_rate(widest.rate)})"
    )
    sentence = ", ".join(words)
    if math.isfinite(widest.moved):
        sentence += f"; DRAM then moves {significant(widest.moved)} bytes for each useful one"
    writes = {one.size: one for one in found if one.kind == "write"}
    half = [size for size, one in sorted(reads.items()) if one.rate <= HALF * whole.rate]
    evidence = f"Strides of {', '.join(count(size) for size in sorted(reads))} sectors"
    if half:
        evidence += f"; half is lost from a stride of {count(half[0])} on"
    return (
        BenchFinding(
            f"{sentence[:1].upper()}{sentence[1:]}.",
            f"{evidence}.",
            "Lanes of a warp read whole sectors of 32 B; smaller parts of a sector lose more.",
            plain="Skipping over data does not make a program faster by as much as it skips.",
        ),
        *_write_finding(writes),
    )


def _write_finding(writes: dict[float, Access]) -> tuple[BenchFinding, ...]:
    """Say what writing some of the sectors costs, and whether DRAM bytes show it."""
    if 1 not in writes or len(writes) < 2:
        return ()
    size = 4.0 if 4.0 in writes else max(writes)
    one = writes[size]
    sentence = (
        f"Writing one sector in {count(size)} leaves {share(one.rate / writes[1].rate)} of the "
        f"useful bandwidth ({byte_rate(one.rate)})"
    )
    if one.moved > 0:
        sentence += f", with {significant(one.moved)} bytes that DRAM moved for each useful one" + (
            ": time shows what bytes do not" if one.moved < WHOLE else ""
        )
    return (
        BenchFinding(
            f"{sentence}.",
            f"Strides of {', '.join(count(size) for size in sorted(writes))} sectors.",
            "The written sectors are whole: nothing has to be read before.",
        ),
    )


def gather_view(rows: Sequence[Row]) -> AccessView | None:
    """Return what the gathers say; None without a measured one."""
    found = accesses(rows, "gather")
    if not found:
        return None
    cells = tuple(
        (
            one.kind,
            count(one.size),
            _tera(one.rate),
            significant(one.items / one.seconds / 1e9),
            significant(one.moved),
            share(1 / one.moved if one.moved > 0 else math.nan),
            _tera(one.dram_rate),
        )
        for one in found
    )
    table = BenchTable(
        title="Gathers from a table",
        columns=("order", "item, B", "useful, TB/s", "10^9 items a second",
                 "DRAM bytes a useful byte", "used of what DRAM moves", "DRAM moves, TB/s"),
        rows=cells,
        note="Useful: bytes of the items. Indices of 4 B an item are read in order beside them: "
        "they are in what DRAM moves a second, and taken off the bytes a useful byte.",
        left=("order",),
    )  # fmt: skip
    figure = _figure(
        found,
        {"random": "random places", "ordered": "in order (control)"},
        name="memory_patterns_gather",
        title="Useful bandwidth of gathers",
        x_label="size of an item",
    )
    return AccessView(_gather_finding(found), (table,), (figure,), _numbers(found))


def _gather_finding(found: Sequence[Access]) -> tuple[BenchFinding, ...]:
    randoms = {one.size: one for one in found if one.kind == "random"}
    if not randoms:
        return ()
    small, large = randoms[min(randoms)], randoms[max(randoms)]
    sentence = (
        f"Gathers of {count(small.size)} B from random places bring {byte_rate(small.rate)} "
        f"of useful bytes, those of {count(large.size)} B {byte_rate(large.rate)}"
    )
    if small.moved > 0 and large.moved > 0:
        sentence += (
            f": {share(1 / small.moved)} and {share(1 / large.moved)} of what DRAM moves for them "
            "is used"
        )
    return (
        BenchFinding(
            f"{sentence}.",
            f"{count(small.items)} items a call, indices made in advance and not counted as "
            "useful; DRAM bytes by counters.",
            "Indices are uniform over the table: real ones that repeat or cluster find more in L2.",
            plain="Fetching small pieces from random places wastes most of what memory delivers.",
        ),
    )


def _numbers(found: Sequence[Access]) -> list[dict[str, Json]]:
    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return [
        {
            "kind": one.kind,
            "size": one.size,
            "useful_bytes_per_s": known(one.rate),
            "dram_bytes_per_useful_byte": known(one.moved),
        }
        for one in found
    ]
