"""Kernels of which a better one is usual: old ones, fallbacks, attention that is not fused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.build.bound import BOUND_FROM
from nsight_prof.parsers.build.roofline import Ceilings, ceilings
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import launching_rows
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.analysis.timeline import longest_kernels, timeline
from nsight_prof.reports.findings.gain import of_gpu_time
from nsight_prof.reports.findings.kernels.matrix import ATTENTION_MASK
from nsight_prof.reports.findings.kernels.measure import TRANSFORM, slow_name
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    LISTED,
    NSYS,
    Rule,
    Threshold,
    column,
    counters,
    measured,
    names_of,
    of_row,
    rows_of,
)
from nsight_prof.reports.page import Evidence, Number, Ref, Text

SLOW_BACKEND = Rule(
    key="slow_backend",
    question="Did a library or framework fall back to slow kernels?",
    requires="kernel names; a trace with single launches for attention",
    thresholds={
        "share": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
        "between": Threshold(
            6,
            Text(
                "prof: elementwise kernels at most between the products and the softmax of an "
                "attention that is not fused"
            ),
            "count",
        ),
        "apart": Threshold(
            100_000, Text("prof: parts of one attention are launched one right after another"), "ns"
        ),
    },
)


@dataclass(frozen=True)
class Bounds:
    """What a better kernel saves of the time, 0 to 1: at least and at most; NaN is unknown.

    `rough` is a value that no counters of this run back.
    """

    low: float
    high: float
    rough: bool = False


@dataclass(frozen=True)
class Backend:
    """Kernels of which a better one is usual.

    Attributes:
        label: what they are, behind "of the GPU time goes to".
        reason: why they are slow; `source` is who says so.
        pattern: is searched in the full name; empty for what is no matter of names.
        categories: of the kernels; `dtype`: their type, where it decides. `requires` matches a
            kernel that must be there, too.
        capability: lowest compute capability of the GPU on which they are behind, and the first
            on which they are not; `unknown_gpu`: they are behind where that is not known, too.
        cause: the rule that the finding is of.
        saves: part of its time that the better one is known to save, at least and at most;
            `of_bytes`: of the time that bytes of DRAM explain, of kernels that were counted.
        roof_parts: parts of the Tensor Core roof that better ones reach, by compute capability.
        rough: part saved where no counters are known, by compute capability.
        by_name: their names alone tell, whatever counters say of them.
        reads, writes: names of the kernels that begin and end work which DRAM bounds.
    """

    label: Text
    reason: Text
    action: Text
    advice: Text
    disproof: Text
    source: Text
    pattern: str = ""
    categories: tuple[str, ...] = ()
    dtype: str = ""
    requires: str = ""
    capability: tuple[float, float] = (0.0, math.inf)
    unknown_gpu: bool = False
    cause: str = SLOW_BACKEND.key
    saves: tuple[float, float] | None = None
    of_bytes: bool = False
    roof_parts: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    rough: Mapping[float, float] = field(default_factory=dict)
    by_name: bool = False
    reads: str = ""
    writes: str = ""

    def is_behind(self, capability: float) -> bool:
        """Return whether a GPU of this compute capability has better kernels."""
        if math.isnan(capability):
            return self.unknown_gpu
        return self.capability[0] <= capability < self.capability[1]

    def of(self, kernels: Sequence[Row]) -> list[Row]:
        """Return the kernels that are its own."""
        regex, requires = re.compile(self.pattern), re.compile(self.requires)
        if self.requires and not any(requires.search(text(row["name"])) for row in kernels):
            return []
        return [
            row
            for row in kernels
            if row["category"] in self.categories
            and self.dtype in ("", row["dtype"])
            and regex.search(text(row["name"]))
        ]


BACKENDS = {
    key: of_row(Backend, row)
    for key, row in rows_of("nsight_prof.reports.findings.program", "backends.yaml").items()
}
"""Back ends by key; a kernel is of the first that fits."""
MATH_ATTENTION, SIMT = BACKENDS["math_attention"], BACKENDS["simt_gemm"]
HALF = ("fp16", "bf16")
PRODUCT = ("gemm", "gemv")
BETWEEN = ("elementwise", "copy", "fill", "random", "reduction")
"""Kernels that may stand between the parts of an attention that is not fused: scale, mask,
dropout, casts, and the sums that a library's product leaves."""
TENSOR_TYPES = {"fp32": "tf32", "": "tf32"}
NAMED = 3
"""Kernels that a sentence names."""
TIMES = column("kernels", "total_ns")


def backend_findings(run: Run, frame: pd.DataFrame | None) -> list[Finding]:
    """Return a finding for each kind of slow kernel that takes enough time.

    A kernel whose own counters tell what is wrong with it is left to that finding, unless others
    of its kind have none.
    """
    found: list[Finding] = []
    kernels, capability = records(run.kernels), _capability(run)
    with_counters = {text(row["kernel_id"]): row for row in profiled(run)}
    explained = {name for name, row in with_counters.items() if _explained(row)}
    for key, backend in BACKENDS.items():
        if not backend.pattern:
            continue
        matching = backend.of(kernels)
        rows = [r for r in matching if backend.by_name or text(r["kernel_id"]) not in explained]
        if rows and key == "simt_gemm":  # counters of some tell what is wrong with all of them
            rows = matching
        if rows and backend.is_behind(capability):
            found.append(_finding(key, _Use(run, backend, rows, with_counters, capability)))
        taken = {id(row) for row in matching}
        kernels = [row for row in kernels if id(row) not in taken]
    if frame is not None:
        found += _math_attention(run, frame)
    return [f for f in found if f.share >= SLOW_BACKEND.limit("share")]


PASCAL, FOR_PASCAL = 6.1, r"^(?:kepler|maxwell|pascal)_|gemm_\d+x\d+x\d+_[NT]{2}_vec$"
"""The last GPUs without Tensor Cores, and names that cuBLAS gives their matrix products."""


def telling(run: Run, finding: Finding) -> tuple[str, ...]:
    """Return the kernels of a finding, or those alone that tell of it: where they are launched is
    what to mend, not where the others take their time.
    """
    backend, frame = BACKENDS.get(finding.key), timeline(run)
    if backend is not None and finding.key == "double_tensors" and frame is not None:
        ids = [text(row["kernel_id"]) for row in backend.of(records(run.kernels))]
        first = frame[frame["kernel_id"].isin(ids)].nsmallest(1, "start_ns")
        return tuple(map(str, first["kernel_id"]))  # it makes all others double
    if finding.rule == ATTENTION_MASK.key:  # the forward kernel is given it, whichever pays for it
        return tuple(run.kernels.loc[run.kernels["category"] == "attention", "kernel_id"])
    if backend is None or not backend.requires:
        return finding.kernel_ids
    names = run.kernels["name"].fillna("")
    return tuple(run.kernels.loc[names.str.contains(backend.requires), "kernel_id"])


def _capability(run: Run) -> float:
    """Return the highest compute capability of the GPUs; NaN where unknown.

    A summary of kernels does not name its GPU: products by kernels for Maxwell and Pascal tell it.
    """
    try:
        return max(float(str(c)) for c in run.gpus["compute_capability"].dropna())
    except ValueError:
        products = run.kernels[run.kernels["category"] == "gemm"]
        of_pascal = products["name"].str.contains(FOR_PASCAL).fillna(False).astype(bool)
        time = products["total_ns"]
        return PASCAL if time[of_pascal].sum() > time.sum() / 2 else math.nan


def _explained(row: Row) -> bool:
    """Tell whether a rule of kernels says what is wrong: no Tensor Cores, operands not aligned."""
    is_slow = number(row["tensor_pct"]) < 1 or slow_name(row)
    return is_slow and not TRANSFORM.search(text(row["name"]))


@dataclass(frozen=True)
class _Use:
    """The kernels of a back end in a run; `with_counters` are all kernels that have some."""

    run: Run
    backend: Backend
    rows: Sequence[Row]
    with_counters: Mapping[str, Row]
    capability: float

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(text(row["kernel_id"]) for row in self.rows[:LISTED])

    @property
    def time(self) -> Number:
        return Number(sum(number(row["total_ns"]) for row in self.rows), "ns", TIMES)

    def counters_of(self, row: Row) -> Row | None:
        return self.with_counters.get(text(row["kernel_id"]))

    def bounds(self) -> list[Bounds]:
        """Return what is saved of the time of each kernel."""
        if self.backend.reads:
            floor = self.dram_floor[1]
            gain = math.nan
            if floor.value:
                gain = max(0.0, 1 - floor.value / number(self.time.value))
            return [Bounds(gain, gain)] * len(self.rows)
        if self.backend.of_bytes and self.backend.saves is not None:
            by_bytes, (low, high) = self.part_of_bytes, self.backend.saves
            return [Bounds(by_bytes * low, by_bytes * high)] * len(self.rows)
        return [self._bounds(self.counters_of(row)) for row in self.rows]

    @property
    def part_of_bytes(self) -> float:
        """Part of the time that bytes of DRAM explain, as of the kernels that were counted: all of
        it from 80 % of the roof on; 1 where none was.
        """
        busy = [
            (number(row["total_ns"]), min(1.0, number(found["dram_pct"]) / 100 / BOUND_FROM))
            for row in self.rows
            if (found := self.counters_of(row)) and number(found["dram_pct"]) > 0
        ]
        total = sum(time for time, _ in busy)
        return sum(time * reached for time, reached in busy) / total if busy else 1.0

    def _bounds(self, row: Row | None) -> Bounds:
        backend, roofs = self.backend, ceilings(self.run.roofs)
        if backend.saves is not None:
            return Bounds(*backend.saves)
        fractions = backend.roof_parts.get(self.capability)
        if backend.roof_parts and (row is None or fractions is None):
            return Bounds(math.nan, math.nan)
        if row is None:
            rough = backend.rough.get(self.capability, math.nan)
            return Bounds(rough, rough, rough=not math.isnan(rough))
        floor, duration = number(row["dram_pct"]) / 100, number(row["duration_ns"])
        if fractions is None:
            gain = max(0.0, 1 - max(tensor_time(row, roofs) / duration, floor))
            return Bounds(gain, gain)
        at_roof = tensor_time(row, roofs, row["sm_clock_hz"])
        low, high = (max(0.0, 1 - max(at_roof / p / duration, floor)) for p in fractions)
        return Bounds(low, high)

    @property
    def dram_floor(self) -> tuple[Number, Number]:
        """Bytes that go into the first and out of the last kernels, and their time at the roof.

        Together the kernels do the work of one that moves no more. Not known where one of them was
        not counted.
        """
        total = 0.0
        for pattern, name in (
            (self.backend.reads, "global_load_bytes"),
            (self.backend.writes, "global_store_bytes"),
        ):
            ends = [row for row in self.rows if re.search(pattern, text(row["name"]))]
            total += (
                math.nan
                if not ends
                else sum(
                    number((self.counters_of(row) or {}).get(name)) * number(row["calls"])
                    for row in ends
                )
            )
        refs = counters(self.run, self.ids, ("global_load_bytes", "global_store_bytes"))
        roof = ceilings(self.run.roofs).memory.get("dram")
        time = None if roof is None else total / roof.value * 1e9
        return Number(total, "B", refs), Number(time, "ns", (*refs, *column("roofs", "value")))


def tensor_time(row: Row, roofs: Ceilings, clock_hz: float = math.nan) -> float:
    """Return the ns that the Tensor Cores would take for a kernel's FLOPs; NaN where unknown.

    At `clock_hz` where it is given, else at the clock of the roof.
    """
    dtype = text(row["tensor_dtype"]) or text(row["dtype"])
    roof = roofs.pipe("tensor", TENSOR_TYPES.get(dtype, dtype))
    if roof is None:
        return math.nan
    return number(row["flops"]) / roof.at_clock(number(clock_hz)) * 1e9


def _finding(key: str, use: _Use) -> Finding:
    backend, gpu_time = use.backend, Number(kernel_time(use.run), "ns")
    bounds = use.bounds()
    low, high = (_saved(use.rows, [getattr(b, end) for b in bounds]) for end in ("low", "high"))
    rough = all(b.rough for b in bounds)
    share = use.time.share_of(gpu_time)
    names = [(text(row["kernel_id"]), text(row["short_name"])) for row in use.rows]
    return SLOW_BACKEND.finding(
        rule=backend.cause,
        key=key,
        title=Text("{share} of the GPU time goes to {what}", share=share, what=backend.label),
        verdict=Text(
            "{share} of the GPU time ({time}) goes to {what}: {kernels}. {reason} {gain}",
            share=share,
            time=use.time,
            what=backend.label,
            kernels=names_of(names, NAMED),
            reason=backend.reason,
            gain=_gain(low.share_of(gpu_time), high.share_of(gpu_time)),
        ),
        kernel_ids=use.ids,
        evidence=(
            Evidence(
                Text("time in these kernels"),
                use.time,
                Text("{limit} of the GPU time", limit=SLOW_BACKEND.thresholds["share"].number),
                backend.source,
            ),
            *_floor_evidence(use),
            *_reach_evidence(use),
            *_gain_evidence(use, low, high, rough=rough),
        ),
        action=backend.action,
        advice=backend.advice,
        disproof=backend.disproof,
        confidence="low" if high.value is None or rough or backend.reads else "medium",
        **of_gpu_time(high, use.time, gpu_time),
    )


def _saved(rows: Sequence[Row], gains: Sequence[float]) -> Number:
    """Return the time that gains (parts of the time of `rows`) save; unknown ones left out."""
    known = [
        number(row["total_ns"]) * gain
        for row, gain in zip(rows, gains, strict=True)
        if not math.isnan(gain)
    ]
    cells = tuple(Ref("kernels", text(row["kernel_id"]), "total_ns") for row in rows)
    return Number(sum(known) if known else None, "ns", cells)


def _gain(low: Number, high: Number) -> Text:
    """Say what better kernels save, of the GPU time."""
    if high.value is None:
        return Text("How much a better one gains is not known without counters.")
    if number(low.value) < high.value:
        return Text("Better ones could save {low} to {high} of the GPU time.", low=low, high=high)
    return Text("Better ones could save at most {gain} of the GPU time.", gain=high)


def _floor_evidence(use: _Use) -> Iterator[Evidence]:
    if not use.backend.reads or not use.dram_floor[1].value:
        return
    moved, floor = use.dram_floor
    yield measured(
        Text("bytes in and out of all"),
        moved,
        Text("ncu: what those that begin load, and those that end store"),
    )
    yield Evidence(
        Text("these at the roof of DRAM"),
        floor,
        Text("the gain ends there"),
        Text("prof: roofline model"),
    )


def _reach_evidence(use: _Use) -> Iterator[Evidence]:
    """Yield the FLOPs of one launch and their times at what better kernels reach of the roof."""
    fractions, row = use.backend.roof_parts.get(use.capability), use.counters_of(use.rows[0])
    if fractions is None or row is None:
        return
    ncu = Text("ncu")
    duration = Number(row["duration_ns"], "ns", counters(use.run, use.ids, ("duration_ns",)))
    flops = Number(row["flops"], "FLOP", counters(use.run, use.ids, ("flops",)))
    refs = (*counters(use.run, use.ids, ("flops", "sm_clock_hz")), *column("roofs", "value"))
    at_roof = tensor_time(row, ceilings(use.run.roofs), row["sm_clock_hz"])
    yield measured(Text("duration of one launch"), duration, ncu)
    yield measured(Text("FLOPs of one launch"), flops, ncu)
    for fraction in fractions:
        yield Evidence(
            Text("these at {part} of the Tensor Core roof", part=Number(fraction, "fraction")),
            Number(at_roof / fraction, "ns", refs),
            Text("what better kernels reach"),
            Text("FLOPs / (part x roof at the clock of the kernel)"),
        )


def _gain_evidence(use: _Use, low: Number, high: Number, *, rough: bool) -> Iterator[Evidence]:
    """Yield what the gain is computed from; nothing where it is not known."""
    backend, save, at_least = use.backend, Text("could save"), Text("could save at least")
    if high.value is None:
        return
    if backend.reads:
        yield measured(save, high, Text("the time less that at the roof"))
    elif backend.roof_parts:
        source = Text("their time x (1 - time at that part of the roof / duration)")
        refs = (*counters(use.run, use.ids, ("flops", "duration_ns")), *TIMES)
        yield measured(at_least, Number(low.value, "ns", refs), source)
        yield measured(save, Number(high.value, "ns", refs), source)
    elif backend.saves is not None:
        for label, saved, factor in zip((at_least, save), (low, high), backend.saves, strict=True):
            source = Text("the time x {part}", part=Number(factor))
            if backend.of_bytes:
                explained = Number(use.part_of_bytes, "fraction")
                source = Text(
                    "the time x {part} x {explained}, the part that bytes of DRAM explain",
                    part=Number(factor),
                    explained=explained,
                )
            yield measured(label, Number(saved.value, "ns", TIMES), source)
    elif rough:
        rough_part = Number(backend.rough[use.capability])
        source = Text("the time x {part}, a rough value: no counters", part=rough_part)
        yield measured(save, high, source)
    else:
        refs = (*counters(use.run, use.ids, ("flops", "dram_pct")), *column("roofs", "value"))
        source = Text("the time x (1 - the nearer of the Tensor Core and the DRAM roof)")
        yield measured(save, Number(high.value, "ns", refs), source)


def _math_attention(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where products, a softmax and products follow on each other."""
    between = SLOW_BACKEND.thresholds["between"]
    spans = attention_spans(frame, int(between.value), SLOW_BACKEND.limit("apart"))
    if not spans or not _multiplies_weights(run, frame):
        return []
    launches = frame.iloc[np.concatenate([np.arange(a, b) for a, b in spans])]
    refs = column("launches", "duration_ns")
    durations, products = launches["duration_ns"], launches["category"].isin(PRODUCT)
    time, passing = (Number(ns.sum(), "ns", refs) for ns in (durations, durations[~products]))
    gpu_time, floor = Number(kernel_time(run), "ns"), _product_floor(run, launches)
    # Without counters of the products, what stands between them goes, and the scores they move.
    scores = _scores(run, launches[launches["category"] == "softmax"])
    saved = passing + Number(min(number(scores.value), number((time - passing).value)), "ns")
    if floor.value is not None:
        saved = Number(max(0.0, number((time - floor).value)), "ns")
    share, gain = time.share_of(gpu_time), saved.share_of(gpu_time)
    backend = MATH_ATTENTION
    return [
        SLOW_BACKEND.finding(
            key="math_attention",
            title=Text("Attention is not fused and takes {share} of the GPU time", share=share),
            verdict=Text(
                "Attention runs as separate kernels {times}, which takes {share} of the GPU time "
                "({time}); {passing} of this is softmax, masks and casts between the products. "
                "{reason} A fused kernel could save about {gain} of the GPU time ({saved}).",
                times=Text("{n} time", "{n} times", n=len(spans)),
                share=share,
                time=time,
                passing=passing.share_of(time),
                reason=backend.reason,
                gain=gain,
                saved=saved,
            ),
            kernel_ids=longest_kernels(launches, LISTED),
            evidence=(
                Evidence(
                    Text("softmax between two products"),
                    Number(len(spans), "count", column("launches", "start_ns")),
                    Text("at most {n} kernels between them", n=int(between.value)),
                    between.source,
                ),
                Evidence(Text("time of these kernels"), time, source=NSYS),
                measured(Text("of it not in products"), passing, backend.source),
                measured(Text("the scores that products write or read"), scores, Text("ncu")),
                None
                if floor.value is None
                else measured(Text("products at the roof of the Tensor Cores"), floor, Text("ncu")),
            ),
            action=backend.action,
            advice=backend.advice,
            disproof=backend.disproof,
            confidence="medium" if floor.value is None else "high",
            **of_gpu_time(saved, time, gpu_time),
        )
    ]


def _multiplies_weights(run: Run, frame: pd.DataFrame) -> bool:
    """Tell whether a function that takes a softmax goes on with a product, as attention does, and
    not as one that returns classes; where its lines are not known, the order of kernels tells it.
    """
    rows = launching_rows(run)
    if rows.empty or "depth" not in rows:
        return True
    categories = frame.drop_duplicates("kernel_id").set_index("kernel_id")["category"]
    rows = rows[rows["depth"].eq(0)].assign(category=rows["kernel_id"].map(categories))
    function = [rows["file"], rows["function"]]
    first = rows["line"].where(rows["category"].eq("softmax")).groupby(function).transform("min")
    products = rows["category"].isin(PRODUCT) & (rows["line"] >= first)
    return bool(first.isna().all() or products.any())


def _scores(run: Run, softmax: pd.DataFrame) -> Number:
    """Return the time of DRAM at its roof for the scores that products before and after these
    launches write and read: as many bytes as the launches store, where they were counted.
    """
    roof = ceilings(run.roofs).memory.get("dram")
    stored = {
        text(row["kernel_id"]): min(number(row["global_store_bytes"]), number(row["dram_bytes"]))
        for row in profiled(run)
    }
    total = softmax["kernel_id"].astype(object).map(stored).astype(float).fillna(0.0).sum()
    refs = (*column("counters", "global_store_bytes"), *column("roofs", "value"))
    return Number(2 * total / roof.value * 1e9 if roof else 0.0, "ns", refs)


def _product_floor(run: Run, launches: pd.DataFrame) -> Number:
    """Return the time that the Tensor Cores need for products; None where not all are known.

    Those that were not counted are known as far as they ran without Tensor Cores on what was
    widened from 16 bits, as PyTorch's math back end does, which others leave narrow.
    """
    roofs, kernels = ceilings(run.roofs), records(run.kernels)
    rows = {text(row["kernel_id"]): row for row in profiled(run)}
    products = launches[launches["category"].isin(PRODUCT)]
    casts = launches.loc[launches["category"] == "copy", "kernel_id"]
    is_widened = run.kernels.loc[run.kernels["kernel_id"].isin(casts), "dtype"].isin(HALF).any()
    remains = 1 - SIMT.rough.get(_capability(run), math.nan) if is_widened else math.nan
    wide = {text(row["kernel_id"]): remains for row in SIMT.of(kernels)}
    durations = products.groupby(products["kernel_id"].astype(object))["duration_ns"]
    times = [
        tensor_time(rows[key], roofs) * len(of_kernel)
        if key in rows
        else number(wide.get(key)) * of_kernel.sum()
        for key, of_kernel in durations
    ]
    refs = (*counters(run, list(map(str, durations.groups)), ("flops",)), *column("roofs", "value"))
    return Number(sum(times) if times else None, "ns", refs)


def attention_spans(frame: pd.DataFrame, between: int, apart_ns: float) -> list[tuple[int, int]]:
    """Return first and last (exclusive) positions of product, softmax, product in `frame`.

    `frame` is that of `timeline`; at most `between` other kernels that only touch elements stand
    between the softmax and each product, and all are of one stream and stage, without a pause of
    more than `apart_ns`.
    """
    softmax = np.flatnonzero(frame["category"] == "softmax").tolist()
    if not softmax:
        return []
    category = frame["category"].to_numpy(object)
    pause = frame["start_ns"].to_numpy()[1:] - frame["end_ns"].to_numpy()[:-1]
    stage = pd.factorize(frame["stage"])[0]
    cut = (pause > apart_ns) | (stage[1:] != stage[:-1])
    cut |= np.diff(frame["queue"].to_numpy()) != 0
    segment = np.concatenate([[0], np.cumsum(cut)])
    found: list[tuple[int, int]] = []
    for at in softmax:
        first = _product(category, segment, at, -1, between)
        last = _product(category, segment, at, 1, between)
        if first is not None and last is not None and (not found or first >= found[-1][1]):
            found.append((first, last + 1))
    return found


def _product(category: Any, segment: Any, at: int, step: int, between: int) -> int | None:
    """Return the position of the next product before or after `at`; None where another is."""
    for position in range(at + step, at + step * (between + 2), step):
        if not 0 <= position < len(category) or segment[position] != segment[at]:
            return None
        if category[position] in PRODUCT:
            return position
        if category[position] not in BETWEEN:
            return None
    return None
