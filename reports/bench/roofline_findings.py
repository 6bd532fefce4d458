"""Findings of the measured roofs: sentences with evidence, and what would disprove them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.bench.cases import interval_text, rate_text, shape_text, value_text
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.roofline_figures import data_pairs, pace
from nsight_prof.reports.bench.roofline_l2 import l2_edge
from nsight_prof.reports.bench.roofs import MeasuredRoof, Search, clock_text, find
from nsight_prof.reports.figure_views import roof_label
from nsight_prof.reports.formats import (
    clock,
    counted,
    difference,
    listed,
    seconds,
    share,
    significant,
)

WORTH_SAYING = 0.01


def findings(
    rows: list[Row], roofs: list[MeasuredRoof], found: list[Search], l2_bytes: float
) -> tuple[BenchFinding, ...]:
    """Return what the roofs say, the most useful first. `rows` have a time."""
    made = (
        *_dram(roofs),
        *_tensor(roofs),
        *_mixing(roofs),
        *_launch_shape(found),
        *_pipes(roofs),
        *_caches(roofs),
        *l2_edge(rows, l2_bytes),
        *_steady(roofs),
        *_data(rows),
        *_latency(rows, roofs),
        *_launches(rows, roofs),
        *_host(roofs),
    )
    return tuple(made)


def _how(roof: MeasuredRoof) -> str:
    """Return on what a number rests."""
    parts = [
        f"{value_text(roof.value, roof.unit)} (95 % interval "
        f"{interval_text(roof.low, roof.high, roof.unit)}, {counted(roof.samples, 'sample')} in "
        f"{counted(roof.processes, 'process')}"
    ]
    if roof.clock_hz > 0 and roof.key != "host":
        parts.append(f"at {clock(roof.clock_hz)}")
    words = ", ".join(parts) + ")"
    if roof.shape:
        words += f", best of {roof.candidates}: {roof.shape}" if roof.candidates > 1 else ""
    return words


def _seen(roof: MeasuredRoof) -> str:
    if roof.accepted:
        return f" Counters confirm it: {roof.reason.removeprefix('confirmed: ')}."
    return " Not confirmed by counters." if roof.accepted is None else ""


def _dram(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    read, write = find(roofs, "dram", "read"), find(roofs, "dram", "write")
    best = read or write
    if best is None:
        return
    both = f"; writing {write.value_text}{_of_sheet(write)}" if read and write else ""
    of = best.of_datasheet if known(best.of_datasheet) is not None else best.of_counters
    whole = "of the datasheet" if of is best.of_datasheet else "of the peak that the counters give"
    part = f" ({share(of)} {whole})" if known(of) is not None else ""
    verb = "Reading" if read else "Writing"
    yield BenchFinding(
        f"{verb} DRAM reaches {best.value_text}{part}{both}.",
        f"{_how(best)}.{_seen(best)}",
        "Would be disproved by counters that show more than 5 % other DRAM bytes than the probe "
        "asked for, or by a faster kernel.",
        f"This GPU {verb.lower().replace('ing', 's')} its memory at {_brief(best)}{_promised(of)}.",
    )


def _tensor(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    bursts = [r for r in roofs if r.key == "tensor" and r.kind == "burst"]
    if not bursts:
        return
    fastest = max(bursts, key=lambda r: r.value)
    usual = find(roofs, "tensor", "burst", "bf16") or fastest
    parts = [f"{r.dtype} {r.value_text}{_of_sheet(r)}"
             for r in sorted(bursts, key=lambda r: -r.value)]  # fmt: skip
    of = " (share of the datasheet)" if any(_is(r.of_datasheet) for r in bursts) else ""
    yield BenchFinding(
        f"Large matrix products in bursts on random data reach{of}: {', '.join(parts)}.",
        f"{usual.dtype}: {_how(usual)}.{_seen(usual)}",
        "Would be disproved by a library or a shape that is faster on the same data at the same "
        "clock: the products are those of libraries, of int8 Triton's where it is faster.",
        _plain_tensor(usual, find(roofs, "tensor", "steady", usual.dtype)),
    )


def _plain_tensor(burst: MeasuredRoof, steady: MeasuredRoof | None) -> str:
    lasting = f", and at {_brief(steady)} when the load lasts" if steady else ""
    return f"It multiplies matrices ({burst.dtype}) at up to {_brief(burst)}{lasting}."


def _brief(roof: MeasuredRoof) -> str:
    return value_text(roof.value, roof.unit, 3)


def _promised(part: float) -> str:
    return f", {share(part)} of what its maker promises" if _is(part) else ""


def _of_sheet(roof: MeasuredRoof) -> str:
    known_part = _is(roof.of_datasheet)
    return f" ({share(roof.of_datasheet)})" if known_part else ""


def _is(value: float) -> bool:
    return not math.isnan(value)


MIXED = {"memcpy": "cudaMemcpy"}


def _mixing(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    read, copy = find(roofs, "dram", "read"), find(roofs, "dram", "copy")
    if read is None or copy is None:
        return
    lost = 1 - copy.value / read.value
    others = [find(roofs, "dram", kind) for kind in ("memcpy", "scale", "triad")]
    rest = [f"{MIXED.get(r.kind, r.kind)} {r.value_text}" for r in others if r is not None]
    more = f" For comparison: {listed(rest)}." if rest else ""
    yield BenchFinding(
        f"Reading and writing at once costs DRAM {share(lost)} of its bandwidth: a copy by a "
        f"kernel moves {copy.value_text} where reading alone moves {read.value_text}.",
        f"copy: {_how(copy)}.{more}",
        "Would be disproved by a copy kernel that comes within a few per cent of reading alone.",
        f"Programs that read and write at once get {share(lost)} less from its memory.",
    )


def _launch_shape(found: list[Search]) -> Iterator[BenchFinding]:
    """Say what the launch shape decides: DRAM reads first, then where it decides the most."""
    found = [search for search in found if search.roof.key != "tensor"]  # sizes, not shapes
    if not found:
        return
    worst = min(found, key=lambda s: s.kept)
    dram = next((s for s in found if (s.roof.key, s.roof.kind) == ("dram", "read")), None)
    chosen = dram or worst
    sentence = (
        f"The launch shape decides: of {len(chosen.rows)} for {_lower(chosen.roof.name)} the "
        f"poorest keeps {share(chosen.kept)} of the best ({_shape(chosen.best[1])}), the median "
        f"{share(chosen.median / chosen.best[0])}"
    )
    evidence = f"Poorest for {_lower(chosen.roof.name)}: {_shape(chosen.poorest[1])}"
    if worst is not chosen:
        sentence += f"; {_lower(worst.roof.name)} loses most, {share(1 - worst.kept)}"
        evidence += f"; for {_lower(worst.roof.name)}: {_shape(worst.poorest[1])}"
    yield BenchFinding(
        f"{sentence}.",
        f"{evidence}. All shapes are in bench.csv, each with its interval.",
        "Would be disproved by a shape outside of the searched ones that beats the best.",
        "How a program cuts its work into pieces matters: the poorest way that was tried is "
        f"{share(1 - worst.kept)} slower than the best.",
    )


def _shape(row: Row) -> str:
    return shape_text(row["params"]) or text(row["name"])


def _lower(name: str) -> str:
    """Return a name inside of a sentence: acronyms keep their capitals."""
    return name if name[:2].isupper() or name[1:2].isdigit() else f"{name[:1].lower()}{name[1:]}"


def _inside(name: str) -> str:
    return name.replace("Shared memory", "shared memory")


def _pipes(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    mine = [r for r in roofs if r.kind == "fma" and _is(r.per_clock_sm)]
    if not mine:
        return
    parts = [f"{roof_label(r.key, '')} {clock_text(r)}{_of_peak(r)}" for r in mine]
    yield BenchFinding(
        f"Chains of multiply-adds reach, per clock and SM, {listed(parts)}.",
        "; ".join(f"{roof_label(r.key, '')} {_how(r)}" for r in mine) + ".",
        "Would be disproved by counted operations that differ by more than 2 % from those of the "
        "formula.",
    )


def _of_peak(roof: MeasuredRoof) -> str:
    if not _is(roof.of_counters):
        return ""
    peak = roof.per_clock_sm / roof.of_counters
    return f" of {significant(peak)} ({share(roof.of_counters)})"


def _caches(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    mine = [r for r in (find(roofs, "l1", "read"), find(roofs, "shared", "read")) if r is not None]
    l2 = find(roofs, "l2", "read")
    if l2 is None and not mine:
        return
    names = [_inside(r.name.removesuffix(" read")) for r in mine]
    parts = [f"{name} {clock_text(r)}{_of_peak(r)}" for name, r in zip(names, mine, strict=True)]
    words = f"L2 reads reach {l2.value_text}" if l2 else ""
    near = f"per clock and SM, {listed(parts)}" if parts else ""
    evidence = "; ".join(f"{r.name}: {_how(r)}" for r in ([l2] if l2 else []) + mine)
    sentence = "; ".join(part for part in (words, near) if part)
    yield BenchFinding(
        f"{sentence[:1].upper()}{sentence[1:]}.",
        f"{evidence}.{_seen(l2) if l2 else ''}",
        "Would be disproved by counters that show traffic in the levels below (DRAM for the L2, L2 "
        "for the L1).",
    )


def _steady(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    drops = []
    for steady in (r for r in roofs if r.kind == "steady"):
        kind = "burst" if steady.key == "tensor" else "fma"
        burst = find(roofs, steady.key, kind, steady.dtype)
        if burst is not None:
            drops.append((steady.value / burst.value - 1, steady, burst))
    if not drops:
        return
    lost, steady, burst = min(drops, key=lambda drop: drop[0])
    if lost > -WORTH_SAYING:
        sentence = "No pipe is slower under steady load than in bursts by more than "
        yield BenchFinding(
            f"{sentence}{share(max(-lost, 0.0))}.", f"{steady.name}: {_how(steady)}."
        )
        return
    label = _label(steady)
    yield BenchFinding(
        f"Steady load costs up to {share(-lost)}: {label} does {burst.value_text} in bursts and "
        f"{steady.value_text} after 2 s of load, where the clock is {clock(steady.clock_hz)} "
        f"instead of {clock(burst.clock_hz)}.",
        "; ".join(f"{_label(s)} {difference(part)}" for part, s, _ in sorted(drops, key=_first))
        + f".{_capped(steady)}",
        "Would be disproved by a clock that is the same in bursts and under load.",
        f"When the load lasts, its fastest arithmetic slows down by up to {share(-lost)}, because "
        "it reaches its power limit.",
    )


def _first(drop: tuple[float, MeasuredRoof, MeasuredRoof]) -> float:
    return drop[0]


def _label(roof: MeasuredRoof) -> str:
    return roof_label(roof.key, roof.dtype if roof.key == "tensor" else "")


def _capped(roof: MeasuredRoof) -> str:
    marked, n = known(roof.case.get("throttled_samples")), known(roof.case.get("n"))
    if marked is None or not n:
        return ""
    reasons = text(roof.case.get("throttle_reasons")).replace("_", " ")
    why = f" ({reasons})" if reasons else ""
    return f" {share(marked / n)} of the samples of {_label(roof)} ran under a limit{why}."


def _data(rows: list[Row]) -> Iterator[BenchFinding]:
    # A product has one size with a twin, a chain of multiply-adds one launch shape.
    pairs = data_pairs(rows)
    if not pairs:
        return
    worst = max(pairs, key=pace)
    row, zeros = worst
    gap = pace(worst) - 1
    name = f"{text(row['operation'])}{_of_size(row)}"
    yield BenchFinding(
        f"Zeros run up to {share(gap)} faster than random data, which draw more power: {name} "
        f"does {rate_text(zeros)} at {clock(zeros['clock_hz'])} against {rate_text(row)} at "
        f"{clock(row['clock_hz'])}.",
        "; ".join(f"{text(pair[0]['operation'])} {difference(pace(pair) - 1)}" for pair in pairs)
        + " on zeros.",
        "Would be disproved by the same clock on both kinds of data and still another rate.",
        f"Tests on empty data (zeros) show up to {share(gap)} more than real data get; all numbers "
        "here are of random data.",
    )


def _of_size(row: Row) -> str:
    params = row["params"]
    if {"m", "n", "k"} <= set(params):
        return f" {params['m']} x {params['n']} x {params['k']}"
    return ""


def _latency(rows: list[Row], roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    mine = [r for r in roofs if r.kind == "latency" and r.unit == "s" and r.case]
    if not mine:
        return
    parts = [
        f"{significant(number(r.case['latency_cycles']))} cycles ({seconds(r.value)}) from "
        f"{_inside(r.name.removesuffix(' latency'))}"
        for r in sorted(mine, key=lambda r: r.value)
    ]
    spread = next((r for r in rows if text(r["name"]).endswith("by-address")), None)
    more = ""
    if spread is not None and number(spread["p5_s"]) > 0:
        more = (
            f"; where a line lies in the L2 moves its latency between {seconds(spread['p5_s'])} "
            f"and {seconds(spread['p95_s'])}"
        )
    yield BenchFinding(
        f"One dependent load takes {listed(parts)}{more}.",
        "; ".join(f"{r.name}: {_how(r)}" for r in mine)
        + (". Of the L2's lines: 5th and 95th percentile." if more else "."),
        "Would be disproved by a chain of loads that is faster at the same footprint.",
    )


def _launches(rows: list[Row], roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    host, graph = find(roofs, "host", "launch"), find(roofs, "host", "launch-graph")
    if host is None:
        return
    torch = next((r for r in rows if text(r["name"]).endswith("launch/torch")), None)
    ways = [f"{seconds(host.value)} through the driver"]
    ways += [f"{seconds(torch['median_s'])} through PyTorch"] if torch else []
    ways += [f"{seconds(graph.value)} in a CUDA graph"] if graph else []
    yield BenchFinding(
        f"Starting a kernel costs {listed(ways)}: shorter kernels leave the GPU waiting for the "
        "host.",
        f"{_how(host)}.",
        "Holds for this host and driver; would be disproved by a faster way to launch on them. "
        "Counters see nothing of it.",
        f"Each piece of work costs {seconds(host.value)} to start: many small ones leave the GPU "
        "idle.",
    )


def _host(roofs: list[MeasuredRoof]) -> Iterator[BenchFinding]:
    pinned = [r for r in (find(roofs, "host", f"{way}-pinned") for way in ("h2d", "d2h")) if r]
    if not pinned:
        return
    words = [f"{r.value_text} {'host to device' if 'h2d' in r.kind else 'device to host'}"
             for r in pinned]  # fmt: skip
    pageable = [find(roofs, "host", r.kind.replace("pinned", "pageable")) for r in pinned]
    losses = [1 - b.value / a.value for a, b in zip(pinned, pageable, strict=True) if b is not None]
    more = f"; pageable memory loses up to {share(max(losses))} of that" if losses else ""
    yield BenchFinding(
        f"Copies between pinned memory and the GPU reach {listed(words)}{more}.",
        "; ".join(f"{r.name}: {_how(r)}" for r in pinned) + ".",
        "Holds for this host; would be disproved by a larger copy that is faster. Counters see "
        "nothing of it.",
    )
