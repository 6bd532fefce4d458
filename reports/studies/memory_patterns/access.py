"""Strides and gathers: useful bandwidth, and what DRAM moved for each useful byte."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, known, number
from nsight_prof.reports.cases.rows import ratio
from nsight_prof.reports.page import Column, Evidence, Finding, Json, Number, Table, Text
from nsight_prof.reports.page.charts import LineFigure, Panel, Series
from nsight_prof.reports.studies.memory_patterns.points import Outcome

TERA = 1e12
SECTOR = 32.0
"""Bytes."""

WHOLE = 1.1
"""DRAM bytes per useful byte below which nothing but the useful bytes was moved."""

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

    @property
    def dram_rate(self) -> float:
        """Bytes per second that DRAM moves while it runs: counted bytes over the measured time."""
        return self.dram / self.seconds


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
    return sorted(found, key=lambda access: (access.kind, access.size))


def _chart(
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
    useful, moved = [], []
    for kind, words in kinds.items():
        if of_kind := [access for access in found if access.kind == kind]:
            sizes = tuple(unit * access.size for access in of_kind)
            rates, low, high = (
                tuple(access.useful / getattr(access, seconds) / TERA for access in of_kind)
                for seconds in ("seconds", "high", "low")
            )
            useful.append(Series(words, sizes, rates, low, high, group=words))
            ratios = tuple(access.moved for access in of_kind)
            moved.append(Series(words, sizes, ratios, group=words))
    panels = [Panel("useful, TB/s", tuple(useful))]
    counted = any(math.isfinite(access.moved) for access in found)
    if counted:
        level = ((1.0, "all useful"),)
        panels.append(Panel("DRAM bytes per useful byte", tuple(moved), y_log=True, levels=level))
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


def strides(rows: Sequence[Row]) -> Outcome | None:
    """Return what the strides say; None without a measured one."""
    found = accesses(rows, "stride")
    if not found:
        return None
    first = {access.kind: access.rate for access in found if access.size == 1}
    table = Table(
        "memory-patterns-strides",
        Text("One sector of 32 B in every so many"),
        [
            Column[Access](Text("access"), lambda access: access.kind),
            Column(Text("stride, sectors"), lambda access: Number(access.size, "count")),
            Column(Text("useful"), lambda access: Number(access.rate, "B/s"), "TB/s"),
            Column(
                Text("of stride 1"),
                lambda access: Number(access.rate / first.get(access.kind, math.nan), "fraction"),
            ),
            Column(Text("DRAM bytes per useful byte"), lambda access: Number(access.moved)),
            Column(Text("DRAM moves"), lambda access: Number(access.dram_rate, "B/s"), "TB/s"),
        ],
        found,
        note=Text(
            "Useful: bytes of the sectors that were asked for. DRAM bytes are counted under ncu, "
            "times are measured without it."
        ),
    )
    chart = _chart(
        found,
        {"read": "read", "write": "write"},
        name="memory_patterns_stride",
        title="Useful bandwidth at a stride",
        x_label="from one used sector of 32 B to the next",
        unit=SECTOR,
    )
    findings = (*_read_strides(found), *_write_strides(found))
    return Outcome(findings, (table,), (chart,), _numbers(found))


def _read_strides(found: Sequence[Access]) -> Iterator[Finding]:
    reads = {access.size: access for access in found if access.kind == "read"}
    if 1 not in reads or len(reads) < 2:
        return
    unit_stride, widest = reads[1], reads[max(reads)]
    evidence: list[Evidence | Text] = [
        Evidence(Text("strides in sectors:"), [Number(size, "count") for size in sorted(reads)]),
        Evidence(Text("useful bandwidth at the widest"), Number(widest.rate, "B/s")),
    ]
    if math.isfinite(widest.moved):
        label = Text("bytes that DRAM then moves for each useful one:")
        evidence.append(Evidence(label, Number(widest.moved)))
    half = [
        size for size, access in sorted(reads.items()) if access.rate <= HALF * unit_stride.rate
    ]
    if half:
        label = Text("half is lost from this stride on:")
        evidence.append(Evidence(label, Number(half[0], "count")))
    verdict = Text(
        "Strided reads waste bandwidth: reading one sector in {n} leaves {part} of the useful "
        "bandwidth.",
        n=Number(widest.size, "count"),
        part=Number(widest.rate / unit_stride.rate, "fraction"),
    )
    if 2 in reads and len(reads) > 2:
        verdict = Text(
            "Strided reads waste bandwidth: reading every second sector leaves {second} of the "
            "useful bandwidth, one in {n} leaves {part}.",
            second=Number(reads[2].rate / unit_stride.rate, "fraction"),
            n=Number(widest.size, "count"),
            part=Number(widest.rate / unit_stride.rate, "fraction"),
        )
    yield Finding(
        "read_strides",
        verdict,
        tuple(evidence),
        action=Text("Store together what is read together."),
        disproof=Text(
            "Lanes of a warp read whole sectors of 32 B; smaller parts of a sector lose more."
        ),
    )


def _write_strides(found: Sequence[Access]) -> Iterator[Finding]:
    """State what writing some of the sectors costs, and whether DRAM bytes show it."""
    writes = {access.size: access for access in found if access.kind == "write"}
    if 1 not in writes or len(writes) < 2:
        return
    size = 4.0 if 4.0 in writes else max(writes)
    access = writes[size]
    evidence: list[Evidence | Text] = [
        Evidence(Text("strides in sectors:"), [Number(size, "count") for size in sorted(writes)]),
        Evidence(Text("useful bandwidth"), Number(access.rate, "B/s")),
    ]
    if access.moved > 0:
        label = Text("bytes that DRAM moved for each useful one:")
        evidence.append(Evidence(label, Number(access.moved)))
    if 0 < access.moved < WHOLE:
        evidence.append(Text("the traffic is minimal: only the time shows the loss"))
    verdict = Text(
        "Writing one sector in {n} leaves {part} of the useful bandwidth.",
        n=Number(size, "count"),
        part=Number(access.rate / writes[1].rate, "fraction"),
    )
    yield Finding(
        "write_strides",
        verdict,
        tuple(evidence),
        disproof=Text("The written sectors are whole: nothing has to be read before."),
        technical=True,
    )


def gathers(rows: Sequence[Row]) -> Outcome | None:
    """Return what the gathers say; None without a measured one."""
    found = accesses(rows, "gather")
    if not found:
        return None
    table = Table(
        "memory-patterns-gathers",
        Text("Gathers from a table"),
        [
            Column[Access](Text("order"), lambda access: access.kind),
            Column(Text("item"), lambda access: Number(access.size, "B"), "B"),
            Column(Text("useful"), lambda access: Number(access.rate, "B/s"), "TB/s"),
            Column(
                Text("10^9 items per second"),
                lambda access: Number(access.items / access.seconds / 1e9),
            ),
            Column(Text("DRAM bytes per useful byte"), lambda access: Number(access.moved)),
            Column(Text("used of what DRAM moves"), lambda access: Number(access.used, "fraction")),
            Column(Text("DRAM moves"), lambda access: Number(access.dram_rate, "B/s"), "TB/s"),
        ],
        found,
        note=Text(
            "Useful: bytes of the items. Indices of 4 B per item are read in order beside them: "
            "they are in what DRAM moves per second, and not in the bytes per useful byte."
        ),
    )
    chart = _chart(
        found,
        {"random": "random places", "ordered": "in order (control)"},
        name="memory_patterns_gather",
        title="Useful bandwidth of gathers",
        x_label="size of an item",
    )
    return Outcome(_random_gathers(found), (table,), (chart,), _numbers(found))


def _random_gathers(found: Sequence[Access]) -> Iterator[Finding]:
    randoms = {access.size: access for access in found if access.kind == "random"}
    if not randoms:
        return
    small, large = randoms[min(randoms)], randoms[max(randoms)]
    verdict = Text(
        "Fetch large pieces from random places: gathers of {small} bring {slow} of useful bytes, "
        "those of {large} {fast}.",
        small=Number(small.size, "B"),
        slow=Number(small.rate, "B/s"),
        large=Number(large.size, "B"),
        fast=Number(large.rate, "B/s"),
    )
    if small.moved > 0:
        verdict = Text(
            "Fetching small pieces from random places wastes most of what memory delivers: "
            "{used} is used in gathers of {small} ({slow}), {most} in those of {large} ({fast}).",
            used=Number(small.used, "fraction"),
            small=Number(small.size, "B"),
            slow=Number(small.rate, "B/s"),
            most=Number(large.used, "fraction"),
            large=Number(large.size, "B"),
            fast=Number(large.rate, "B/s"),
        )
    yield Finding(
        "random_gathers",
        verdict,
        (
            Evidence(Text("items per call"), Number(small.items, "count")),
            Text("indices were made in advance and are not counted as useful"),
            Text("DRAM bytes are those of the counters"),
        ),
        disproof=Text(
            "Indices are uniform over the table: real ones that repeat or cluster find more in L2."
        ),
    )


def _numbers(found: Sequence[Access]) -> list[dict[str, Json]]:
    return [
        {
            "kind": access.kind,
            "size": access.size,
            "useful_bytes_per_s": known(access.rate),
            "dram_bytes_per_useful_byte": known(access.moved),
        }
        for access in found
    ]
