"""Strides and gathers: useful bandwidth, and what DRAM moved for each useful byte."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from nsight_prof.parsers.cells import Row, known, number
from nsight_prof.reports.cases.rows import ratio
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Json, Number, Table, Text
from nsight_prof.reports.page.charts import Chart, LineFigure, Panel, line

SENTENCES = Sentences("memory_patterns")

TERA = 1e12
SECTOR = 32.0
"""Bytes."""

WHOLE = 1.1
"""DRAM bytes per useful byte below which nothing but the useful bytes was moved."""

HALF = 0.51
"""Of the bandwidth, noise included, from which on half is said to be lost."""

count = partial(Number, unit="count")
rate = partial(Number, unit="B/s")
fraction = partial(Number, unit="fraction")


class Outcome(NamedTuple):
    """Findings, tables and charts of one kind of pattern, and its numbers for metrics.json."""

    findings: Iterable[Finding]
    tables: Sequence[Table[Any]]
    charts: Sequence[Chart | None]
    numbers: Json


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
        """Useful bytes per second."""
        return self.useful / self.seconds

    @property
    def moved(self) -> float:
        """Bytes that DRAM moved for each useful byte; indices, read in order, are taken off."""
        return (self.dram - self.index) / self.useful

    @property
    def used(self) -> float:
        """Part of what DRAM moves that is useful; NaN without counters."""
        return 1 / self.moved if self.moved > 0 else math.nan


def accesses(rows: Sequence[Row], pattern: str, kind: str, size: str, useful: str) -> list[Access]:
    """Return the measured cases of a pattern, by kind and size, which parameters have."""
    found = [
        Access(
            kind=row["params"][kind],
            size=float(row["params"][size]),
            useful=float(row["params"][useful]),
            index=float(row["params"].get("index_bytes", 0)),
            items=float(row["params"].get("items", 0)),
            seconds=number(row["median_s"]),
            low=number(row["ci_low_s"]),
            high=number(row["ci_high_s"]),
            dram=ratio(row["dram_bytes"], row["counted_calls"]),
        )
        for row in rows
        if row["params"]["pattern"] == pattern
    ]
    return sorted(found, key=lambda access: (access.kind, access.size))


def _outcome(
    found: Sequence[Access],
    findings: Iterable[Finding],
    table: Table[Access],
    kinds: Mapping[str, str],
    unit: float = 1.0,
    **chart: Any,
) -> Outcome:
    """Return what a pattern says, with a chart of useful bandwidth and, by counters, DRAM bytes.

    `kinds` are the names of its lines; sizes times `unit` are bytes.
    """
    useful, moved = [], []
    for kind, words in kinds.items():
        of_kind = [access for access in found if access.kind == kind]
        if of_kind:
            columns = (
                lambda access: unit * access.size,
                lambda access: access.rate / TERA,
                lambda access: access.useful / access.high / TERA,
                lambda access: access.useful / access.low / TERA,
            )
            useful.append(line(words, of_kind, *columns, group=words))
            moved.append(line(words, of_kind, columns[0], lambda access: access.moved, group=words))
    panels = [Panel("useful, TB/s", tuple(useful))]
    counted = any(math.isfinite(access.moved) for access in found)
    if counted:
        level = ((1.0, "all useful"),)
        panels.append(Panel("DRAM bytes per useful byte", tuple(moved), y_log=True, levels=level))
    figure = LineFigure(
        alt=f"{chart['title']}: useful bandwidth"
        + (" and the bytes that DRAM moved for each useful byte." if counted else "."),
        x_log=True,
        x_bytes=True,
        panels=tuple(panels),
        **chart,
    )
    numbers = [
        {
            "kind": access.kind,
            "size": access.size,
            "useful_bytes_per_s": known(access.rate),
            "dram_bytes_per_useful_byte": known(access.moved),
        }
        for access in found
    ]
    return Outcome(findings, (table,), (figure,), numbers)


USEFUL = Column[Access](Text("useful"), lambda access: rate(access.rate), "TB/s")
MOVED = Column[Access](Text("DRAM bytes per useful byte"), lambda access: Number(access.moved))
DRAM_RATE = Column[Access](
    Text("DRAM moves"), lambda access: rate(access.dram / access.seconds), "TB/s"
)
"""Counted bytes over the measured time."""


def strides(rows: Sequence[Row]) -> Outcome | None:
    """Return what the strides say; None without a measured one."""
    found = accesses(rows, "stride", "access", "stride_sectors", "useful_bytes")
    if not found:
        return None
    first = {access.kind: access.rate for access in found if access.size == 1}
    table = Table(
        "memory-patterns-strides",
        Text("One sector of 32 B in every so many"),
        [
            Column[Access](Text("access"), lambda access: access.kind),
            Column(Text("stride, sectors"), lambda access: count(access.size)),
            USEFUL,
            Column(
                Text("of stride 1"),
                lambda access: fraction(access.rate / first.get(access.kind, math.nan)),
            ),
            MOVED,
            DRAM_RATE,
        ],
        found,
        note=SENTENCES.note("memory-patterns-strides"),
    )
    return _outcome(
        found,
        (*_read_strides(found), *_write_strides(found)),
        table,
        {"read": "read", "write": "write"},
        SECTOR,
        name="memory_patterns_stride",
        title="Useful bandwidth at a stride",
        x_label="from one used sector of 32 B to the next",
    )


def _read_strides(found: Sequence[Access]) -> Iterator[Finding]:
    reads = {access.size: access for access in found if access.kind == "read"}
    if 1 not in reads or len(reads) < 2:
        return
    unit_stride, widest = reads[1], reads[max(reads)]
    evidence = [
        Evidence(Text("strides in sectors:"), list(map(count, sorted(reads)))),
        Evidence(Text("useful bandwidth at the widest"), rate(widest.rate)),
    ]
    if math.isfinite(widest.moved):
        label = Text("bytes that DRAM then moves for each useful one:")
        evidence.append(Evidence(label, Number(widest.moved)))
    half = [size for size in sorted(reads) if reads[size].rate <= HALF * unit_stride.rate]
    if half:
        evidence.append(Evidence(Text("half is lost from this stride on:"), count(half[0])))
    several = 2 in reads and len(reads) > 2
    yield SENTENCES.finding(
        "read_strides",
        evidence,
        second=fraction(reads[2].rate / unit_stride.rate) if several else None,
        n=count(widest.size),
        part=fraction(widest.rate / unit_stride.rate),
    )


def _write_strides(found: Sequence[Access]) -> Iterator[Finding]:
    """State what writing some of the sectors costs, and whether DRAM bytes show it."""
    writes = {access.size: access for access in found if access.kind == "write"}
    if 1 not in writes or len(writes) < 2:
        return
    access = writes.get(4, writes[max(writes)])
    evidence: list[Evidence | Text] = [
        Evidence(Text("strides in sectors:"), list(map(count, sorted(writes)))),
        Evidence(Text("useful bandwidth"), rate(access.rate)),
    ]
    if access.moved > 0:
        label = Text("bytes that DRAM moved for each useful one:")
        evidence.append(Evidence(label, Number(access.moved)))
    if 0 < access.moved < WHOLE:
        evidence.append(Text("the traffic is minimal: only the time shows the loss"))
    yield SENTENCES.finding(
        "write_strides",
        evidence,
        n=count(access.size),
        part=fraction(access.rate / writes[1].rate),
    )


def gathers(rows: Sequence[Row]) -> Outcome | None:
    """Return what the gathers say; None without a measured one."""
    found = accesses(rows, "gather", "order", "item_bytes", "gathered_bytes")
    if not found:
        return None
    table = Table(
        "memory-patterns-gathers",
        Text("Gathers from a table"),
        [
            Column[Access](Text("order"), lambda access: access.kind),
            Column(Text("item"), lambda access: Number(access.size, "B"), "B"),
            USEFUL,
            Column(
                Text("10^9 items per second"),
                lambda access: Number(access.items / access.seconds / 1e9),
            ),
            MOVED,
            Column(Text("used of what DRAM moves"), lambda access: fraction(access.used)),
            DRAM_RATE,
        ],
        found,
        note=SENTENCES.note("memory-patterns-gathers"),
    )
    return _outcome(
        found,
        _random_gathers(found),
        table,
        {"random": "random places", "ordered": "in order (control)"},
        name="memory_patterns_gather",
        title="Useful bandwidth of gathers",
        x_label="size of an item",
    )


def _random_gathers(found: Sequence[Access]) -> Iterator[Finding]:
    randoms = [access for access in found if access.kind == "random"]
    if not randoms:
        return
    small, large = randoms[0], randoms[-1]
    counted = small.moved > 0
    yield SENTENCES.finding(
        "random_gathers",
        (Evidence(Text("items per call"), count(small.items)),),
        used=fraction(small.used) if counted else None,
        small=Number(small.size, "B"),
        slow=rate(small.rate),
        most=fraction(large.used) if counted else None,
        large=Number(large.size, "B"),
        fast=rate(large.rate),
    )
