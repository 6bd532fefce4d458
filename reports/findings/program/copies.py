"""Copies between host and GPU, and kernels that only move or convert data on it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import Row, count, number, records, text
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.torch.gemm_shapes import SIZES
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import HOST, LAUNCHES, QUEUED, gpu_count
from nsight_prof.reports.analysis.kinds import NO_LIBRARY
from nsight_prof.reports.analysis.lines import host_lines, host_rows, launching_rows
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.analysis.run_time import kernel_unions
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.findings.gain import of_gpu_time, of_host, of_wall_time
from nsight_prof.reports.findings.kernels.measure import blocks
from nsight_prof.reports.findings.model import Finding, concatenated
from nsight_prof.reports.findings.program.idle_rules import HOST_BOUND, RESULTS_ON_HOST
from nsight_prof.reports.findings.program.rule import (
    LISTED,
    Rule,
    Threshold,
    column,
    measured,
    message,
    of_row,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text, Verbatim

PINNED = 0.8
"""Part of the rate of pinned memory below which a copy is of other memory, or in small pieces."""
STARTUP = 0.5
"""Part of the copy time before the first kernel that repeats above which it is told apart."""
SMALL_BYTES = 64 * 1024
"""Bytes of a copy below which the driver stages pageable memory without waiting (CUDA Runtime API,
API synchronization behavior): the rate of the memory matters little."""
PROBE = Text("probe of the roofline recipe")
DATA = packaged_yaml("nsight_prof.reports.findings.program", "copies.yaml")
COPIES = of_row(
    Rule,
    DATA["rules"]["copies"],
    key="copies",
    requires="a trace with copies",
    thresholds={
        "share": Threshold(0.05, Text("prof: share of the GPU's busy time")),
        "passes": Threshold(
            0.5, Text("prof: time of one direction over the other where data passes through")
        ),
        "pageable": Threshold(0.5, Text("prof: part of the copy time; below it is not the cause")),
        "starts": Threshold(
            0.5,
            Text("prof: part of small copies in all launches from which on the GPU waits for them"),
        ),
    },
    gain="the copy time, at most the time in which the GPU works and no kernel runs; where copies "
    "are to overlap kernels, at most the time of these, which hide them. Of results that go to "
    "pinned memory, and of data that passes "
    "through the GPU: what is beyond the longest of kernels and copies in each direction. Of many "
    "small copies also the part of the idle time in which the GPU waits for the host to start "
    "them.",
)
MANAGED_MEMORY = of_row(
    Rule,
    DATA["rules"]["managed_memory"],
    key="managed_memory",
    requires="a trace with copies",
    thresholds={"share": Threshold(0.05, Text("prof: part of the time in which pages move"))},
    gain="what launches of a kernel take longer than its shortest one + the idle time that no CUDA "
    "call ends.",
)
CASTS_AND_COPIES = of_row(
    Rule,
    DATA["rules"]["casts_and_copies"],
    key="casts_and_copies",
    requires="a trace",
    thresholds={
        "share": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
        "most": Threshold(
            0.5, Text("prof: share from which on a kind of copies is more than a program needs")
        ),
        "named": Threshold(
            0.001, Text("prof: kinds of copies with less of the GPU time are not named")
        ),
    },
    gain="the time of those that no program needs (casts, conversions of layouts, clones), and of "
    "kinds that take `most` of the GPU time; at most that of all. Of kernels that DRAM bounds and "
    "that only read and write what a cast made wider, the part of the bytes that it added.",
)
FILLS = of_row(
    Rule,
    DATA["rules"]["fills"],
    key="fills",
    requires="a trace",
    thresholds={"share": Threshold(0.05, Text("prof: part of the GPU time worth a finding"))},
    gain="the time of these kernels and memsets, of which some may be needed.",
)
REMEDIES = {
    key: (message(row["action"]), message(row["advice"])) for key, row in DATA["remedies"].items()
}
"""What to do about copies, and the same for readers who do not know GPUs."""
PIN, OVERLAP, GATHER, NARROWER, CHANNELS_LAST = (
    REMEDIES[key] for key in ("pin", "overlap", "gather", "narrower", "channels_last")
)
"""Of pageable memory; that no kernel runs beside; many small ones; numbers that a cast makes
shorter after the copy; conversions of layouts."""
ALONE = 0.9
"""Part of the copy time in which no kernel runs, from which on copies overlap none."""
HIDEABLE = 0.2
"""Part of the copy time that kernels could hide, or copies in the other direction, at least."""
PINNED_ALREADY = Text(
    "Keep the data on the GPU, copy less of it (smaller types), or copy it on a stream of its own "
    "while kernels run: it is in pinned memory already."
)
"""What to do about copies of pinned memory."""
MADE_ON_HOST = "tensors_made_on_host"
UNIFIED, UNKNOWN = "unified memory", "unknown"
"""How nsys calls moves of managed memory, and the cause of idle time that no CUDA call ends."""


AVOIDED = Text("Behind kernels, or avoided, they would cost nothing: that saves at most")
IN_SHORT = Text(
    "A cast makes what has come shorter before anything else reads it. Converted before the copy "
    "(double precision to float32, float32 to 16 bits), fewer bytes cross: that saves about"
)
OF_BYTES = Text("the copy time x the part of the bytes that the cast leaves out + time of the cast")
NORM_SUMS = r"\bbatch_norm_(?:collect_statistics|backward)_kernel"
NORM_APPLIED = r"\bbatch_norm_transform_input_kernel"
NORM_PASSES = 2.0
"""Times of the second that the channels-last kernels take which stand for the first (PyTorch 2.11,
H200: 1.8 to 2.2)."""
CAST_ITEMS = 4
"""Elements for each thread of a cast of PyTorch (unrolled_elementwise_kernel, 2.11)."""
ALIKE = 0.02
"""Part by which bytes of a copy and elements of a cast may differ from a whole type."""
TIMES = 4
"""How often a kernel reads a tensor at most to be known by its bytes (backward of softmax: 3)."""


class Kind(NamedTuple):
    """Kernels that move data and whose names match `pattern`; `required`: where a program must.

    `remedy` is the key of what to do, where it is special.
    """

    pattern: str
    label: Text
    required: Text | None = None
    remedy: str = ""


COMPUTED = r"\bupsample |grid sampler|indexing backward"
"""Kernels that interpolate, or add: what they write stands nowhere yet, however little they do."""
KINDS = tuple(of_row(Kind, row) for row in DATA["kinds"])
LAYOUTS, CASTS = KINDS[0], KINDS[1].pattern
"""PyTorch's <type>_copy_kernel_cuda are its casts from and to FP32 (Copy.cu)."""
OF_SEQUENCES = LAYOUTS._replace(
    required=Text("which cuDNN makes round convolutions of sequences (Conv1d)"), remedy=""
)
"""Those that no layout spares: three dimensions have no channels-last in PyTorch."""
CONV1D = r"conv1d\(|/torch/nn/modules/conv\.py:[23]\d\d _conv_forward"
"""Text of a line, or innermost frame, of nn.Conv1d (Conv2d is further down, from line 395 on)."""
WITHIN = Kind(
    "", Text("copies of CUDA within the GPU's memory (clone, cudaMemcpy)"), remedy="in_place"
)


def copies(run: Run, frame: pd.DataFrame | None) -> list[Finding]:
    """Return a finding where copies between host and GPU take long; of several GPUs the mean.

    Copies of several streams run at once: together they hold up no more than the time in which the
    GPU works and no kernel runs.
    """
    gpus = gpu_count(run)
    rows = records(run.memory_operations.sort_values("total_ns", ascending=False))
    crossing = [
        row
        for row in rows
        if "host" in text(row["kind"]).lower() and not text(row["kind"]).startswith(UNIFIED)
    ]
    refs = column("memory_operations", "total_ns")
    time = Number(sum(number(row["total_ns"]) for row in crossing) / gpus, "ns", refs)
    busy_ns = (kernel_time(run) + sum(number(row["total_ns"]) for row in rows)) / gpus
    wall, idle = program_time(run)
    if wall.value:  # what runs at the same time keeps the GPU busy once
        busy_ns = min(busy_ns, number((wall - idle).value))
        time = Number(min(number(time.value), busy_ns), "ns", refs)
    busy = Number(busy_ns, "ns", (*column("kernels", "total_ns"), *refs))
    share, limit = time.share_of(busy), COPIES.thresholds["share"]
    if not crossing or number(share.value) < limit.value:
        return []
    once = _startup(crossing, time, gpus)
    if number((time - once).share_of(busy).value) < limit.value:
        return [_at_startup(once, share, wall)]
    speed = _speed(run, crossing[0])
    pageable = Number(
        sum(count(row["pageable_ns"]) or 0 for row in crossing) / gpus,
        "ns",
        column("memory_operations", "pageable_ns"),
    )
    each_bytes = number(crossing[0]["bytes"]) / number(crossing[0]["calls"])
    slow = number(pageable.value) >= COPIES.limit("pageable") * number(time.value)
    slow = (
        slow and not each_bytes < SMALL_BYTES
    )  # what starting a copy costs is no matter of memory
    late = _launching(run, crossing[0]) if each_bytes < SMALL_BYTES else Number(0.0, "ns")
    title = Text("Copies between host and GPU take {share} of the busy time", share=share)
    action, advice = _action(crossing, pageable, time), COPIES.advice
    if each_bytes < SMALL_BYTES and number(late.value) > 0:
        title = Text(
            "Many small copies between host and GPU: {n}", n=round(number(crossing[0]["calls"]))
        )
        action, advice = GATHER
    if slow:
        title = Text("Copies of pageable memory take {share} of the busy time", share=share)
        action, advice = PIN
    kernels_ns = 0.0 if frame is None else sum(kernel_unions(run)) / gpus
    working = Number(
        number((wall - idle).value) - kernels_ns,
        "ns",
        (*column("stages", "gpu_busy_ns"), *column("launches", "duration_ns")),
    )
    to_gpu, to_host = _by_direction(crossing)
    alone = _alone(frame, min(to_gpu, to_host), time, working, kernels_ns)
    if alone and not slow and not each_bytes < SMALL_BYTES:
        title = Text(
            "Copies between host and GPU overlap no kernel, and take {share} of the busy time",
            share=share,
        )
        action, advice = OVERLAP
    large = each_bytes >= SMALL_BYTES and not slow
    working_ns = number((wall - idle).value) if wall.value else math.inf
    saved_ns = _unhidden(crossing, number((time - once).value), kernels_ns, working_ns, large, gpus)
    saved_ns += number(late.value)
    wide = _wide(run, crossing[0], time)
    wide = None if slow and wide and wide[0][0] < SIZES["fp64"] else wide
    if wide and wide[1] < saved_ns:  # all of it is needed on the GPU, in a shorter type
        title = Text(
            "Numbers of {size} bytes are copied to the GPU, and cast to {shorter} bytes there",
            size=wide[0][0],
            shorter=wide[0][1],
        )
        (action, advice), saved_ns = NARROWER, wide[1]
    avoided = Number(saved_ns, "ns")
    if action is OVERLAP[0]:  # beside others: avoided, they save more, if they can be
        saved_ns = min(saved_ns, max(kernels_ns, min(to_gpu, to_host) / gpus))
    saved = Number(saved_ns, "ns")
    gain = saved.share_of(wall)
    if number(gain.value) < threshold("small_gain"):
        return []
    return [
        COPIES.finding(
            title=title,
            action=action,
            advice=advice,
            verdict=Text(
                "Copies between host and GPU take {share} of the GPU's busy time ({time}{each}), "
                "most of it {kind} ({calls}).{alone}{pageable}{once} {what} {gain} of the wall "
                "time ({saved}).{hidden}",
                share=share,
                time=time,
                each=Text(" on each of {n} GPUs", n=gpus) if gpus > 1 else "",
                kind=Verbatim(text(crossing[0]["kind"]).lower()),
                calls=Text("{n} time", "{n} times", n=round(number(crossing[0]["calls"]))),
                alone=alone,
                pageable=_small(each_bytes, late) or _pageable(slow, *speed),
                once=_once(once),
                what=IN_SHORT if action is NARROWER[0] else AVOIDED,
                gain=gain,
                saved=saved,
                hidden=_hidden(0.0 if late.value or wide else kernels_ns, avoided),
            ),
            evidence=(
                Evidence(
                    Text("copy time"),
                    time,
                    Text("{limit} of busy time", limit=limit.number),
                    limit.source,
                ),
                measured(Text("busy time: kernels and copies"), busy),
                measured(Text("copied per second"), speed[0]),
                measured(Text("copied per second of pinned memory"), speed[1], PROBE)
                if speed[1].value
                else None,
                measured(Text("time in which the GPU works and no kernel runs"), working)
                if wall.value and frame is not None
                else None,
                measured(
                    Text("could save"),
                    saved,
                    OF_BYTES
                    if action is NARROWER[0]
                    else Text("the copy time, at most the time without kernels"),
                ),
                wall_evidence(wall),
                measured(Text("of it copies of pageable memory"), pageable) if slow else None,
            ),
            confidence="medium",
            **of_wall_time(saved, wall, avoided),
        )
    ]


def _unhidden(
    crossing: list[Row],
    saved_ns: float,
    kernels_ns: float,
    working_ns: float,
    large: bool,
    gpus: int,
) -> float:
    """Return the ns of `saved_ns` of copies that are not, or cannot be, beside kernels.

    `large`: of pinned memory, in large pieces. Inputs may stay on the GPU; results that go to
    pinned memory can only hide, and what passes through can run at once, not be left out.
    """
    if math.isinf(working_ns):
        return saved_ns
    hides, (to_gpu, to_host) = math.inf, _by_direction(crossing)
    longer, shorter = max(to_gpu, to_host), min(to_gpu, to_host)
    if kernels_ns and large:
        is_result = text(crossing[0]["kind"]).lower() == "device to host"
        if is_result or shorter >= COPIES.limit("passes") * longer:
            hides = working_ns - max(kernels_ns, longer / gpus)
    return max(0.0, min(saved_ns, working_ns - kernels_ns, hides))


def _wide(run: Run, row: Row, time: Number) -> tuple[tuple[int, int], float] | None:
    """Return the bytes of a number that is copied to the GPU and of what a cast makes of it there,
    and the ns that a conversion before the copy saves; None where no cast follows each copy.
    """
    if not text(row["kind"]).lower().startswith("host"):
        return None
    calls, each_bytes = number(row["calls"]), number(row["bytes"]) / number(row["calls"])
    for kernel in records(run.kernels[run.kernels["calls"] == calls]):
        after = SIZES.get(text(kernel["dtype"]), 0)
        grid, block = (blocks(text(kernel[name])) for name in ("grid", "block"))
        before = each_bytes / (grid * block * CAST_ITEMS)
        is_cast = re.search(CASTS, text(kernel["short_name"])) is not None
        if is_cast and 0 < after < round(before) and abs(before / round(before) - 1) <= ALIKE:
            left_out = 1 - after / round(before)
            cast = number(kernel["total_ns"]) / gpu_count(run)
            return (round(before), after), left_out * number(time.value) + cast
    return None


def _action(crossing: list[Row], pageable: Number, time: Number) -> Text | None:
    """Return what to do about large copies; pinned memory is no advice where most are of it."""
    known = all(count(row["pageable_ns"]) is not None for row in crossing)
    pinned = known and number(pageable.value) < (1 - COPIES.limit("pageable")) * number(time.value)
    return PINNED_ALREADY if pinned else COPIES.action


def _alone(
    frame: pd.DataFrame | None, both_ns: float, time: Number, working: Number, kernels_ns: float
) -> Text | str:
    """Say that copies and kernels take turns, where some of them could run side by side.

    `both_ns` is the time of copies that could run beside those in the other direction.
    """
    hidden = max(min(kernels_ns, number(time.value)), both_ns)
    if frame is None or hidden < HIDEABLE * number(time.value):
        return ""
    if not number(working.value) >= ALONE * number(time.value):
        return ""
    if frame["queue"].nunique() > 1:
        return Text(" No kernel runs beside them, and copies in both directions take turns.")
    return Text(
        " No kernel runs beside them, nor a copy in the other direction beside one: all is on one "
        "stream."
    )


def with_work_on_results(run: Run, found: Sequence[Finding]) -> list[Finding]:
    """Return findings of which that about copies and that about the host's work on what is copied
    save both: they end together. The larger one is the cause.

    The host works on results that were copied, or makes at one line what it copies there.
    """
    work = RESULTS_ON_HOST.key if leaves(run) else HOST_BOUND.key
    if any(f.rule == MADE_ON_HOST for f in found):
        work = MADE_ON_HOST
    both = {f.rule: f for f in found if f.rule in (COPIES.key, work)}
    works = host_lines(host_rows(run, doing=("program",), idle=True), "idle_samples")
    copying = host_lines(host_rows(run, doing=("copying",)))
    elsewhere = works and copying and works[0].location != copying[0].location
    # What comes from elsewhere than where the host works most ends by itself.
    if len(both) < 2 or elsewhere or (work != RESULTS_ON_HOST.key and not (works and copying)):
        return list(found)
    is_cause = work == MADE_ON_HOST  # whose copies are but what follows
    smaller, larger = sorted(both.values(), key=lambda f: (is_cause and f.rule == work, f.gain_ns))
    joined = replace(
        larger,
        gain_ns=larger.gain_ns + smaller.gain_ns,
        gain_program=larger.gain_program + smaller.gain_program,
        verdict=Text(
            "{verdict} Copies and the host's work on what is copied end together, where it is done "
            "on the GPU: {both} in all.",
            verdict=larger.verdict,
            both=Number(larger.gain_ns + smaller.gain_ns, "ns"),
        ),
    )
    return [joined if finding is larger else finding for finding in found]


def managed_memory(run: Run) -> list[Finding]:
    """Return a finding where pages of managed memory move again and again.

    A kernel that touches a page that is on the host stands until it has come: what it takes longer
    than its shortest launch goes with that. While the host touches pages, the GPU is idle, and no
    CUDA call tells why.
    """
    rows = run.memory_operations[run.memory_operations["kind"].str.startswith(UNIFIED)]
    kernels, wall = run.kernels, program_time(run)[0]
    if rows.empty or not wall.value:
        return []
    late = (kernels["total_ns"] - kernels["calls"] * kernels["min_ns"]).fillna(0)
    touching = kernels[late > 0] if (late > 0).any() else kernels
    faults = Number(late.sum() / gpu_count(run), "ns", column("kernels", "total_ns"))
    gaps = run.idle_gaps[run.idle_gaps["cause"] == UNKNOWN]
    touched = Number(gaps["idle_ns"].sum(), "ns", column("idle_gaps", "idle_ns"))
    moved = Number(rows["total_ns"].sum(), "ns", column("memory_operations", "total_ns"))
    saved = Number(of_host(run, number(touched.value)) + number(faults.value), "ns")
    if number(moved.share_of(wall).value) < MANAGED_MEMORY.limit("share"):
        return []
    return [
        MANAGED_MEMORY.finding(
            title=Text(
                "Pages of managed memory move between host and GPU ({n} times)",
                n=round(number(rows["calls"].sum())),
            ),
            verdict=Text(
                "Pages of managed (unified) memory move between host and GPU {n} times ({bytes}): "
                "whoever touches one that is on the other side waits for it (a page fault, a "
                "migration). {kernels}, and the GPU is idle for {touched} while the host touches "
                "pages. Without that at most {gain} of the wall time is saved ({saved}).",
                n=round(number(rows["calls"].sum())),
                bytes=Number(rows["bytes"].sum(), "B", column("memory_operations", "bytes")),
                kernels=Text(
                    "Kernels take {faults} longer than their shortest launches do", faults=faults
                )
                if (kernels["calls"] > 1).any()
                else Text("What the pages cost kernels is not known (none runs twice)"),
                touched=touched,
                gain=saved.share_of(wall),
                saved=saved,
            ),
            kernel_ids=tuple(map(str, touching["kernel_id"].head(LISTED))),
            evidence=(
                Evidence(
                    Text("time of these moves"),
                    moved,
                    Text("{limit} of the time", limit=MANAGED_MEMORY.thresholds["share"].number),
                    MANAGED_MEMORY.thresholds["share"].source,
                ),
                measured(Text("kernels beyond their shortest launches"), faults),
                measured(Text("idle time that no CUDA call ends"), touched),
                measured(Text("could save"), saved, Text("the sum of both")),
                wall_evidence(wall),
            ),
            confidence="medium",
            **of_wall_time(saved, wall),
        )
    ]


def _by_direction(crossing: list[Row]) -> tuple[float, float]:
    """Return the ns of copies to the GPU and to the host, which may run at the same time."""
    totals = [0.0, 0.0]
    for row in crossing:
        totals[not text(row["kind"]).lower().startswith("host")] += number(row["total_ns"])
    return totals[0], totals[1]


def _startup(crossing: list[Row], time: Number, gpus: int) -> Number:
    """Return the time of copies that come once; 0 where it is less than half of all."""
    refs = column("memory_operations", "startup_ns")
    once = sum(count(row["startup_ns"]) or 0 for row in crossing) / gpus
    return Number(once if once >= STARTUP * number(time.value) else 0.0, "ns", refs)


def _once(once: Number) -> Text | str:
    if not once.value:
        return ""
    return Text(
        " {once} of this come before all kernels that repeat: start-up, which is not in the gain.",
        once=once,
    )


def _at_startup(once: Number, share: Number, wall: Number) -> Finding:
    """Return a finding without a gain about copies that come once, as of weights."""
    return COPIES.finding(
        title=Text("Copies at start-up take {share} of the busy time", share=share),
        verdict=Text(
            "Copies between host and GPU take {once} before all kernels that repeat: start-up, as "
            "where weights or inputs are loaded. That comes once: it costs a long run nothing, and "
            "only a run as short as this one much.",
            once=once,
        ),
        action=Text("Measure a longer run, or only its steps; then look at what repeats."),
        advice=Text("measure a longer run: what is loaded once costs it little"),
        disproof=Text("A run of twice as many steps copies twice as long."),
        evidence=(measured(Text("copies that come once"), once), wall_evidence(wall)),
        gain_of="wall time",
        confidence="medium",
    )


def _hidden(kernels_ns: float, saved: Number) -> Text | str:
    """Say that kernels hide copies only as long as they run."""
    if not 0 < kernels_ns < number(saved.value):
        return ""
    return Text(
        " Kernels run for only {kernels}: copies behind them save no more than that, and avoided "
        "ones at most {saved}.",
        saved=saved,
        kernels=Number(kernels_ns, "ns", column("launches", "duration_ns")),
    )


def _speed(run: Run, row: Row) -> tuple[Number, Number]:
    """Return the bytes per second of a kind of copy, and what pinned memory reaches on this GPU.

    The second is unknown where no roof of the link was measured.
    """
    refs = (*column("memory_operations", "bytes"), *column("memory_operations", "total_ns"))
    rate = Number(number(row["bytes"]) / number(row["total_ns"]) * 1e9, "B/s", refs)
    kind = "h2d-pinned" if text(row["kind"]).lower().startswith("host") else "d2h-pinned"
    roofs = [r for r in records(run.measured_roofs) if text(r["kind"]) == kind]
    roof = number(roofs[0]["value"]) if roofs else None
    return rate, Number(roof, "B/s", column("measured_roofs", "value"))


def _pageable(pageable: bool, rate: Number, roof: Number) -> Text | str:
    """Say that copies are slower than from pinned memory, or of pageable memory, where known."""
    if not roof.value or number(rate.value) >= PINNED * roof.value:
        return Text(" They are of pageable memory, at {rate}.", rate=rate) if pageable else ""
    return Text(
        " They move {rate}, where copies of pinned memory reach {roof} on this GPU: pinned memory "
        "alone would save {part} of their time.",
        rate=rate,
        roof=roof,
        part=Number(1 - number(rate.value) / roof.value, "fraction", (*rate.refs, *roof.refs)).by(
            Text("1 - {a} / {b}", a=rate.at_digits(4), b=roof.at_digits(4))
        ),
    )


def _small(each_bytes: float, late: Number) -> Text | str:
    """Say that copies are so small that each costs what starting it costs."""
    if not each_bytes < SMALL_BYTES:
        return ""
    refs = (*column("memory_operations", "bytes"), *column("memory_operations", "calls"))
    size = Number(each_bytes, "B", refs)
    small = Text(
        " They move {size} each: starting them is what takes the time, so fewer and larger ones "
        "are faster.",
        size=size,
    )
    if not late.value:
        return small
    waits = Text(" The GPU waits {late} for the host to start them, one by one.", late=late)
    return concatenated((small, waits))


def _launching(run: Run, row: Row) -> Number:
    """Return the idle time that waits for the calls of small copies: as many of all launches.

    0 where these are few: then other launches are what the GPU waits for.
    """
    gaps = run.idle_gaps[run.idle_gaps["cause"].isin((LAUNCHES, HOST, QUEUED))]
    calls = number(row["calls"])
    fraction = calls / (calls + number(run.kernels["calls"].sum()))
    idle = number(gaps["idle_ns"].sum()) * fraction if fraction >= COPIES.limit("starts") else 0.0
    return Number(idle, "ns", column("idle_gaps", "idle_ns"))


def fills(run: Run) -> list[Finding]:
    """Return a finding where kernels and memsets that fill memory with one value take long."""
    rows = run.kernels[run.kernels["category"] == "fill"]
    memsets = run.memory_operations[run.memory_operations["kind"] == "memset"]
    kernels_ns, memsets_ns = (number(of["total_ns"].sum()) for of in (rows, memsets))
    refs = (*column("kernels", "total_ns"), *column("memory_operations", "total_ns"))
    time = Number(kernels_ns + memsets_ns, "ns", refs)
    gpu_time = Number(kernel_time(run) + memsets_ns, "ns", refs)
    share, limit = time.share_of(gpu_time), FILLS.thresholds["share"]
    if not number(share.value) >= limit.value:
        return []
    calls = number(rows["calls"].sum()) + number(memsets["calls"].sum())
    return [
        FILLS.finding(
            title=Text(
                "Filling memory with zeros or a constant takes {share} of the GPU time", share=share
            ),
            verdict=Text(
                "Kernels and memsets that fill tensors with zeros or another constant "
                "(initialisation) take {share} of the GPU time ({time} in {calls}). What is "
                "overwritten before it is read need not be filled: that saves at most all of it.",
                share=share,
                time=time,
                calls=Text("{n} launch", "{n} launches", n=round(calls)),
            ),
            kernel_ids=tuple(text(key) for key in rows.head(LISTED)["kernel_id"]),
            evidence=(
                Evidence(
                    Text("time of fills"),
                    time,
                    Text("{limit} of the GPU time", limit=limit.number),
                    limit.source,
                ),
            ),
            confidence="low",
            **of_gpu_time(time, time, gpu_time),
        )
    ]


def casts_and_copies(run: Run) -> list[Finding]:
    """Return a finding for kernels of libraries that only move or convert data.

    What the program's own kernels move is its work.
    """
    rule, limit = CASTS_AND_COPIES, CASTS_AND_COPIES.thresholds["share"]
    moving = run.kernels["category"].eq("copy")
    moving &= ~run.kernels["short_name"].fillna("").str.contains(COMPUTED)
    rows = run.kernels[moving & ~run.kernels["library"].fillna("").isin(NO_LIBRARY)]
    refs = column("kernels", "total_ns")
    within = _within(run)
    time = Number(rows["total_ns"].sum(), "ns", refs)
    gpu_time = Number(kernel_time(run), "ns", refs)
    calls = number(rows["calls"].sum())
    if within.value:
        time, gpu_time = time + within, gpu_time + within
        calls += number(_of_device(run)["calls"].sum())
    share = time.share_of(gpu_time)
    if not number(share.value) >= limit.value:
        return []
    kinds = _kinds(rows) | ({WITHIN: within} if within.value else {})
    if LAYOUTS in kinds and _of_sequences(run):
        kinds = {OF_SEQUENCES if kind is LAYOUTS else kind: kinds[kind] for kind in kinds}
    largest = max(kinds, key=lambda kind: number(kinds[kind].value))
    action, advice = REMEDIES.get(largest.remedy, (rule.action, rule.advice))
    # Kinds of copies that no program needs, and others that are most of its work.
    minimum = rule.limit("most") * number(gpu_time.value)
    needless_kinds = {
        kind: value
        for kind, value in kinds.items()
        if kind.required is None or (kind is not OF_SEQUENCES and number(value.value) >= minimum)
    }
    avoidable = Number(sum(number(value.value) for value in needless_kinds.values()), "ns", refs)
    about = [row for row in records(rows) if kind_of(row) in needless_kinds] or records(rows)
    needless = 2 * number(avoidable.value) > number(time.value)
    about_ns, narrower = _widened(run)
    norms, by_rows = _norms(run) if largest is LAYOUTS else (Number(0.0, "ns"), Number(0.0, "ns"))
    saved, concerned = avoidable + narrower + by_rows, time + about_ns + norms
    return [
        rule.finding(
            title=Text(
                "Copies and casts take {share} of the time of kernels and copies inside the GPU",
                share=share,
            )
            if within.value
            else Text("Copies and casts inside the GPU take {share} of the GPU time", share=share),
            verdict=Text(
                "Kernels that only copy, cast or rearrange data take {share} of the GPU time "
                "({time} in {calls}): {kinds}. Leaving out those that no program needs saves "
                "{gain} of the GPU time, leaving out all of them at most {share}.{wider}{norms}",
                gain=avoidable.share_of(gpu_time),
                wider=Text(
                    " Kernels that only read and write what casts made wider take {time}, of which "
                    "the type before it saves {saved} of the GPU time.",
                    time=about_ns,
                    saved=narrower.share_of(gpu_time),
                )
                if narrower.value
                else "",
                norms=Text(
                    " Batch norm takes {time}: channels first, its sums have one block for each "
                    "channel. Channels last it has many, which saves {saved} of the GPU time.",
                    time=norms,
                    saved=by_rows.share_of(gpu_time),
                )
                if by_rows.value
                else "",
                share=share,
                time=time,
                calls=Text("{n} launch", "{n} launches", n=round(calls)),
                kinds=[
                    Text("{what} {share}", what=kind.label, share=value.share_of(gpu_time))
                    for kind, value in sorted(
                        kinds.items(), key=lambda item: -number(item[1].value)
                    )
                    if number(value.share_of(gpu_time).value) >= CASTS_AND_COPIES.limit("named")
                ],
            ),
            kernel_ids=tuple(text(row["kernel_id"]) for row in about[:LISTED]),
            evidence=(
                Evidence(
                    Text("time of copies and casts"),
                    time,
                    Text("{limit} of the GPU time", limit=limit.number),
                    limit.source,
                ),
                measured(
                    Text("kernels"), Number(len(rows), "count", column("kernels", "category"))
                ),
                *(
                    measured(
                        Text("of it {kind}", kind=kind.label)
                        if kind.required is None
                        else Text(
                            "of it {kind}, {required}", kind=kind.label, required=kind.required
                        ),
                        value,
                        Text("names of kernels"),
                    )
                    for kind, value in kinds.items()
                ),
            ),
            action=action,
            advice=advice,
            confidence="medium" if needless else "low",
            because=None if needless else Text("the program may need most of its copies"),
            **of_gpu_time(saved, concerned, gpu_time, time),
        )
    ]


def _norms(run: Run) -> tuple[Number, Number]:
    """Return the time of batch norm's kernels that sum up each channel in one block, and what is
    saved where it is shared out: then they take as long as some passes of the kernel that applies
    the norm to as many channels (grid.x of both).
    """
    names = run.kernels["name"].fillna("")
    rows = run.kernels.assign(
        channels=run.kernels["grid"].fillna("").str.partition("x")[0],
        each=run.kernels["total_ns"] / run.kernels["calls"],
    )
    one_pass = rows[names.str.contains(NORM_APPLIED)].groupby("channels")["each"].max()
    summed = rows[names.str.contains(NORM_SUMS)]
    each = summed["channels"].map(one_pass).astype(float)
    shared_out = NORM_PASSES * each * summed["calls"]
    saved = (summed["total_ns"] - shared_out).clip(lower=0).fillna(0).sum()
    refs = column("kernels", "total_ns")
    return Number(summed["total_ns"].sum(), "ns", refs), Number(saved, "ns", refs)


def _widened(run: Run) -> tuple[Number, Number]:
    """Return the time of kernels that DRAM bounds and that read and write only what casts made
    wider, by their bytes: once or some times what such a cast stores; and what the type before it
    saves. Copies are left out, whose own time is counted.
    """
    rows = [row for row in profiled(run) if text(row["library"]) not in NO_LIBRARY]
    casts = [(number(r["global_load_bytes"]), r) for r in rows if re.search(CASTS, _names(r))]
    wide = [(loaded, r) for loaded, r in casts if loaded < number(r["global_store_bytes"])]
    time, saved = 0.0, 0.0
    for row in (r for r in rows if text(r["bound_by"]) == "dram" and r["category"] != "copy"):
        for loaded, cast in wide:
            size = number(cast["global_store_bytes"])
            times = [number(row[f"global_{way}_bytes"]) / size for way in ("load", "store")]
            of_size = all(0.5 < t < TIMES + 0.5 and abs(t - round(t)) <= ALIKE for t in times)
            if of_size and number(row["calls"]) <= number(cast["calls"]):
                time += number(row["total_ns"])
                saved += number(row["total_ns"]) * (1 - loaded / size)
                break
    refs = (*column("kernels", "total_ns"), *column("counters", "global_store_bytes"))
    return Number(time, "ns", refs), Number(saved, "ns", refs)


def leaves(run: Run) -> bool:
    """Tell whether most of the time of copies between host and GPU is that of results."""
    rows = [row for row in records(run.memory_operations) if "host" in text(row["kind"]).lower()]
    to_gpu, to_host = _by_direction(rows)
    return to_host > to_gpu


def is_within(run: Run) -> bool:
    """Tell whether most of this time is that of CUDA's copies within the GPU's memory."""
    kernels = run.kernels.loc[run.kernels["category"] == "copy", "total_ns"].sum()
    return number(_within(run).value) > kernels


def _of_device(run: Run) -> pd.DataFrame:
    """Return copies from one place in the memory of a GPU to another."""
    return run.memory_operations[run.memory_operations["kind"] == "device to device"]


def _within(run: Run) -> Number:
    """Return the time of these copies; 0 where it is too small to be named."""
    rows = _of_device(run)
    total = number(rows["total_ns"].sum()) if len(rows) else 0.0
    is_large = total >= CASTS_AND_COPIES.limit("named") * kernel_time(run)
    return Number(total if is_large else 0.0, "ns", column("memory_operations", "total_ns"))


def kind_of(row: Row) -> Kind:
    """Return the kind of a kernel that moves data."""
    return next(kind for kind in KINDS if re.search(kind.pattern, _names(row)))


def _names(row: Row) -> str:
    return f"{text(row['short_name'])}\n{text(row['name'])}"


def _of_sequences(run: Run) -> bool:
    """Tell whether layouts are converted for convolutions of one dimension."""
    rows = launching_rows(run)
    layouts = [row["kernel_id"] for row in records(run.kernels) if kind_of(row) is LAYOUTS]
    lines = rows.loc[rows["kernel_id"].isin(layouts), ["file", "line"]].drop_duplicates()
    if lines.empty:
        return False
    at = pd.concat([run.timed_lines, run.host_lines]).merge(lines, on=["file", "line"])
    places = at["source"].fillna("") + "\n" + at["inner"].fillna("")
    return bool(places.str.contains(CONV1D).any())


def _kinds(rows: pd.DataFrame) -> dict[Kind, Number]:
    """Return the time of each kind that comes, in their order."""
    found = dict.fromkeys(KINDS, 0.0)
    for row in records(rows):
        found[kind_of(row)] += number(row["total_ns"])
    refs = column("kernels", "total_ns")
    return {kind: Number(value, "ns", refs) for kind, value in found.items() if value > 0}
