"""Findings of the measured roofs: which to trust, what they mean for a kernel, what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.cases.roofs import ARITHMETIC, MeasuredRoof, Search, find
from nsight_prof.reports.cases.rows import data_pairs, shape_text, slowdown
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Evidence, Finding, Link, Number, Text, Value, Verbatim
from nsight_prof.reports.studies.roofline.charts import DIGITS, PipeRidges, l2_finding

SENTENCES = Sentences("roofline")

NEGLIGIBLE = 0.01
"""Loss under lasting load that is no news."""


@dataclass(frozen=True)
class Measured:
    """What the findings are about: cases with a time, every roof, and what belongs to them."""

    rows: Sequence[Row]
    every_roof: Sequence[MeasuredRoof]
    searches: Sequence[Search]
    ridges: Sequence[PipeRidges]
    l2_bytes: float

    @property
    def roofs(self) -> list[MeasuredRoof]:
        """The roofs that counters do not contradict."""
        return [roof for roof in self.every_roof if roof.accepted is not False]

    def find(self, key: str, kind: str, dtype: str = "") -> MeasuredRoof | None:
        """Return a roof by level or pipe, kind and input type."""
        return find(self.roofs, key, kind, dtype)


def findings(measured: Measured) -> tuple[Finding, ...]:
    """Return what the roofs say, the most useful first."""
    return tuple(finding for rule in RULES if (finding := rule(measured)) is not None)


def _dram(measured: Measured) -> Finding | None:
    read, write = measured.find("dram", "read"), measured.find("dram", "write")
    roof = read or write
    if roof is None:
        return None
    promised = Number(roof.of_datasheet, "fraction")
    of = Text(", {part} of what its maker promises", part=promised) if promised.value else ""
    found = SENTENCES.finding(
        "dram_bandwidth" if read else "dram_bandwidth/writes",
        (*_evidence(roof), *_confirmation(roof)),
        rate=roof.number,
        of=_of_datasheet(roof),
        writes=None if not read else Text(", writes {rate}", rate=write.number) if write else "",
    )
    lay_verdict = SENTENCES.text("reads" if read else "writes", rate=roof.number, of=of)
    return replace(found, lay_verdict=lay_verdict)


def _tensor(measured: Measured) -> Finding | None:
    bursts = [roof for roof in measured.roofs if roof.key == "tensor" and roof.kind == "burst"]
    if not bursts:
        return None
    bursts.sort(key=lambda roof: -roof.value)
    usual = measured.find("tensor", "burst", "bf16") or bursts[0]
    steady = measured.find("tensor", "steady", usual.dtype)
    eight_bit = measured.find("tensor", "burst", "fp8")
    rates = [
        Text("{dtype} {rate}{of}", dtype=roof.dtype, rate=roof.number, of=_of_sheet(roof))
        for roof in bursts
    ]
    lasting: Value = ""
    if steady:
        lasting = Text(", and at {rate} when the load lasts", rate=steady.number.at_digits(3))
    faster = eight_bit is not None and eight_bit is not usual
    return SENTENCES.finding(
        "tensor_peaks",
        (*_evidence(usual), *_confirmation(usual)),
        rates=rates,
        dtype=usual.dtype,
        times=eight_bit.number.times(usual.number) if eight_bit and faster else None,
        rate=usual.number.at_digits(3),
        lasting=lasting,
    )


def _ridges(measured: Measured) -> Finding | None:
    """State from which arithmetic intensity on arithmetic limits, not DRAM."""
    by_pipe = {(pipe.pipe, pipe.dtype if pipe.pipe == "tensor" else ""): pipe
               for pipe in measured.ridges if "dram" in pipe.intensity}  # fmt: skip
    tensor, vector = by_pipe.get(("tensor", "bf16")), by_pipe.get(("fp32", ""))
    if tensor is None:
        return None
    ridge = tensor.at("dram")
    return SENTENCES.finding(
        "ridge_points",
        (Evidence(Text("against L2:"), tensor.at("l2")),) if "l2" in tensor.intensity else (),
        ridge=ridge,
        vector=Text(", FP32 code without them below {ridge}", ridge=vector.at("dram"))
        if vector
        else "",
        rows=Number(ridge.value, "", ridge.refs, formula=ridge.formula),
    )


def _trust(measured: Measured) -> Finding | None:
    """State whether to compare kernels with the measured roofs or with the datasheet."""
    judged = [r for r in measured.every_roof if r.key != "host" and r.unit != "cycles"]
    ceilings = [r for r in measured.roofs if r.is_ceiling and not math.isnan(r.of_datasheet)]
    confirmed = [roof for roof in judged if roof.accepted]
    if not confirmed or not ceilings:
        return None
    lowest = min(ceilings, key=lambda roof: roof.of_datasheet)
    doubtful = [roof.name for roof in judged if not roof.accepted]
    evidence = [
        Evidence(
            Text("of the datasheet:"),
            [
                Text("{roof} {part}", roof=r.label, part=Number(r.of_datasheet, "fraction"))
                for r in sorted(ceilings, key=lambda roof: roof.of_datasheet)
            ],
        )
    ]
    if doubtful:
        evidence.append(Evidence(Text("not confirmed:"), doubtful))
    return SENTENCES.finding(
        "roofs_to_trust",
        evidence,
        confirmed=len(confirmed),
        all=len(judged),
        lowest=lowest.label,
        part=Number(lowest.of_datasheet, "fraction", (lowest.ref,)),
    )


def _steady(measured: Measured) -> Finding | None:
    drops = []
    for steady in (roof for roof in measured.roofs if roof.kind == "steady"):
        kind = "burst" if steady.key == "tensor" else "fma"
        burst = measured.find(steady.key, kind, steady.dtype)
        if burst is not None:
            drops.append((steady.value / burst.value - 1, steady, burst))
    if not drops:
        return None
    drops.sort(key=lambda drop: drop[0])
    change, steady, burst = drops[0]
    evidence: list[Evidence | Text] = [
        Evidence(
            Text("steady against burst:"),
            [
                Text("{roof} {change}", roof=roof.label, change=Number(drop, "fraction"))
                for drop, roof, _ in drops
            ],
        )
    ]
    if change > -NEGLIGIBLE:
        return SENTENCES.finding(
            "steady_load/steady",
            evidence,
            loss=Number(max(-change, 0.0), "fraction"),
        )
    return SENTENCES.finding(
        "steady_load",
        (*evidence, *_throttled(steady)),
        loss=Number(-change, "fraction"),
        roof=steady.label,
        burst=burst.number,
        steady=steady.number,
        high=burst.clock.at_digits(3),
        low=steady.clock.at_digits(3),
        part=Number(-change, "fraction"),
    )


def _throttled(roof: MeasuredRoof) -> Iterator[Evidence]:
    limited, samples = known(roof.case.get("throttled_samples")), known(roof.case.get("n"))
    if limited is None or not samples:
        return
    yield Evidence(
        Text("samples of {roof} under a power or thermal limit", roof=roof.label),
        Number(limited / samples, "fraction"),
    )
    if reasons := text(roof.case.get("throttle_reasons")):
        yield Evidence(Text("reported by the driver:"), Verbatim(reasons))


def _mixing(measured: Measured) -> Finding | None:
    read, copy = measured.find("dram", "read"), measured.find("dram", "copy")
    if read is None or copy is None:
        return None
    loss = Number(1 - copy.value / read.value, "fraction", (read.ref, copy.ref)).by(
        Text("1 - {a} / {b}", a=copy.number.at_digits(4), b=read.number.at_digits(4))
    )
    similar = [measured.find("dram", kind) for kind in ("memcpy", "scale", "triad")]
    return SENTENCES.finding(
        "copy_bandwidth",
        tuple(
            Evidence(Text("{roof}:", roof=roof.name), roof.number.at_digits(DIGITS))
            for roof in (copy, *similar)
            if roof is not None
        ),
        loss=loss,
        copy=copy.number,
        read=read.number,
        part=loss,
    )


def _launch_shape(measured: Measured) -> Finding | None:
    """State what the launch shape decides: of DRAM reads, and where it decides the most."""
    # The candidates of the Tensor Cores differ in their size.
    searches = [search for search in measured.searches if search.roof.key != "tensor"]
    if not searches:
        return None
    worst = min(searches, key=lambda search: search.slowest_fraction)
    reads = (s for s in searches if (s.roof.key, s.roof.kind) == ("dram", "read"))
    chosen = next(reads, worst)
    loss = Number(1 - worst.slowest_fraction, "fraction", (worst.roof.ref,)).by(
        Text("1 - {a} / {b}", a=Number(worst.slowest_fraction * worst.roof.value, worst.roof.unit),
             b=worst.roof.number)
    )  # fmt: skip
    return SENTENCES.finding(
        "launch_shape",
        tuple(
            Evidence(Text("slowest for {roof}:", roof=search.roof.name), _shape(search.slowest))
            for search in ((chosen,) if worst is chosen else (chosen, worst))
        ),
        n=len(chosen.rates),
        roof=chosen.roof.name,
        slowest=Number(chosen.slowest_fraction, "fraction", (chosen.roof.ref,)),
        median=Number(chosen.median_fraction, "fraction"),
        worst=""
        if worst is chosen
        else Text("; {roof} loses up to {loss}", roof=worst.roof.name, loss=loss),
        shape=_shape(chosen.best),
        part=loss,
    )


def _shape(row: Row) -> Verbatim:
    return Verbatim(shape_text(row["params"]) or text(row["name"]))


def _inside_sm(measured: Measured) -> Finding | None:
    """State what pipes, L1 and shared memory reach of their peaks, and the L2."""
    pipes = [measured.find(pipe, "fma") for pipe in ARITHMETIC]
    memories = [measured.find(level, "read") for level in ("l1", "shared")]
    roofs = [r for r in (*pipes, *memories) if r is not None and not math.isnan(r.per_clock_sm)]
    cache = measured.find("l2", "read")
    if not roofs:
        return None
    rates = [_per_clock(roof) for roof in roofs]
    return SENTENCES.finding(
        "on_chip_peaks",
        (*_evidence(*roofs), *(_evidence(cache) if cache else ())),
        rates=rates,
    )


def _per_clock(roof: MeasuredRoof) -> Text:
    label, rate = roof.label, Number(roof.per_clock_sm, digits=DIGITS)
    if math.isnan(roof.of_counters):
        return Text("{roof} {rate}", roof=label, rate=rate)
    return Text(
        "{roof} {rate} of {peak} ({part})",
        roof=label,
        rate=rate,
        peak=Number(roof.per_clock_sm / roof.of_counters, digits=DIGITS),
        part=Number(roof.of_counters, "fraction"),
    )


def _zeros(measured: Measured) -> Finding | None:
    # A product has one size with a twin on zeros, a chain of multiply-adds one launch shape.
    pairs = data_pairs(measured.rows)
    if not pairs:
        return None
    normal, zeros = worst = max(pairs, key=slowdown)
    gain = Number(slowdown(worst) - 1, "fraction")
    return SENTENCES.finding(
        "zeros",
        (
            Evidence(
                Text("zeros against random data:"),
                [
                    Text(
                        "{case} {change}",
                        case=text(pair[0]["operation"]),
                        change=Number(slowdown(pair) - 1, "fraction"),
                    )
                    for pair in pairs
                ],
            ),
        ),
        gain=gain,
        case=_case_name(normal),
        zeros=_rate(zeros),
        high=Number(known(zeros["clock_hz"]), "Hz", digits=3),
        random=_rate(normal),
        low=Number(known(normal["clock_hz"]), "Hz", digits=3),
        part=gain,
    )


def _rate(row: Row) -> Number:
    flops = known(row["flop_per_s"])
    if flops is not None:
        return Number(flops, "FLOP/s", digits=3)
    return Number(known(row["bytes_per_s"]), "B/s", digits=3)


def _case_name(row: Row) -> str:
    params = row["params"]
    size = " x ".join(str(params[side]) for side in "mnk") if {*"mnk"} <= set(params) else ""
    return f"{text(row['operation'])} {size}".strip()


def _latency(measured: Measured) -> Finding | None:
    roofs = [r for r in measured.roofs if r.kind == "latency" and r.unit == "s" and r.case]
    if not roofs:
        return None
    roofs.sort(key=lambda roof: roof.value)
    dram, read = measured.find("dram", "latency"), measured.find("dram", "read")
    evidence: list[Evidence | Text] = list(_evidence(*roofs))
    by_address = (r for r in measured.rows if text(r["name"]).endswith("by-address"))
    spread = next((row for row in by_address if number(row["p5_s"]) > 0), None)
    if spread is not None:
        evidence.append(
            Text(
                "L2 latency by where a line lies: {low} to {high} (5th and 95th percentile)",
                low=Number(spread["p5_s"], "s", digits=3),
                high=Number(spread["p95_s"], "s", digits=3),
            )
        )
    return SENTENCES.finding(
        "latency",
        evidence,
        levels=[
            Text(
                "{cycles} cycles ({time}) from {level}",
                cycles=Number(number(roof.case["latency_cycles"])),
                time=roof.number,
                level=roof.label,
            )
            for roof in roofs
        ],
        bytes=Number(dram.value * read.value, "B", (dram.ref, read.ref)).by(
            Text("{a} x {b}", a=dram.number, b=read.number)
        )
        if dram is not None and read is not None and dram.unit == "s"
        else None,
    )


def _launches(measured: Measured) -> Finding | None:
    host, graph = measured.find("host", "launch"), measured.find("host", "launch-graph")
    if host is None:
        return None
    ways = [Text("{time} through the driver", time=host.number)]
    torch = next((r for r in measured.rows if text(r["name"]).endswith("launch/torch")), None)
    if torch is not None:
        ways.append(Text("{time} through PyTorch", time=Number(torch["median_s"], "s")))
    if graph is not None:
        ways.append(Text("{time} in a CUDA graph", time=graph.number))
    return SENTENCES.finding(
        "launch_cost",
        _evidence(host),
        ways=ways,
        time=host.number,
    )


def _host(measured: Measured) -> Finding | None:
    pinned = [r for w in ("h2d", "d2h") if (r := measured.find("host", f"{w}-pinned")) is not None]
    if not pinned:
        return None
    losses = [
        1 - pageable.value / roof.value
        for roof in pinned
        if (pageable := measured.find("host", f"{roof.kind[:3]}-pageable")) is not None
    ]
    pageable_loss: Value = ""
    if losses:
        loss = Number(max(losses), "fraction")
        pageable_loss = Text("; pageable memory loses up to {loss}", loss=loss)
    return SENTENCES.finding(
        "host_transfers",
        _evidence(*pinned),
        rates=[
            Text("{rate} host to device", rate=roof.number)
            if roof.kind == "h2d-pinned"
            else Text("{rate} device to host", rate=roof.number)
            for roof in pinned
        ],
        pageable=pageable_loss,
    )


def _evidence(*roofs: MeasuredRoof) -> tuple[Evidence, ...]:
    """Return the values with all of their digits; their rows have interval, clock and shape."""
    return tuple(
        Evidence(Text("{roof}:", roof=roof.name), roof.number.at_digits(DIGITS)) for roof in roofs
    )


def _confirmation(roof: MeasuredRoof) -> tuple[Evidence | Text, ...]:
    if roof.accepted:
        counted = Link(Verbatim(roof.reason), roof.probe.anchor)
        return (Evidence(Text("confirmed by counters:"), counted),)
    return (Text("not confirmed by counters"),)


def _of_datasheet(roof: MeasuredRoof) -> Value:
    if not math.isnan(roof.of_datasheet):
        return Text(" ({part} of the datasheet)", part=Number(roof.of_datasheet, "fraction"))
    if not math.isnan(roof.of_counters):
        return Text(" ({part} of the counters' peak)", part=Number(roof.of_counters, "fraction"))
    return ""


def _of_sheet(roof: MeasuredRoof) -> Value:
    if math.isnan(roof.of_datasheet):
        return ""
    return Text(" ({part})", part=Number(roof.of_datasheet, "fraction"))


RULES: tuple[Callable[[Measured], Finding | None], ...] = (
    _dram,
    _tensor,
    _ridges,
    _trust,
    _mixing,
    _launch_shape,
    lambda measured: l2_finding(measured.rows, measured.l2_bytes),
    _steady,
    _zeros,
    _launches,
    _inside_sm,
    _latency,
    _host,
)
