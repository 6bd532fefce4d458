"""Kernels that no rule explains: what their roof means, and what is left to do there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nsight_prof.parsers.build.bound import BOUND_FROM
from nsight_prof.parsers.build.roofline import PIPES
from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.fact import Condition
from nsight_prof.reports.findings.kernels.rule import CONTIGUOUS, CROSSING
from nsight_prof.reports.page import Number, Text

FULL = 100 * BOUND_FROM
FULL_SOURCE = "Nsight Compute rule SOLBottleneck: a bottleneck from 80 % on"
"""Per cent of a roof from which on nothing speaks against it, whatever the warps wait for."""
DOUBT_SOURCE = Text(
    "prof: more than half of the stalls, with less than 80 % of the roof (Nsight Compute "
    "rule SOLBottleneck)"
)

RESOURCES = {
    "dram": Text("DRAM bandwidth"),
    "l2": Text("L2 bandwidth"),
    "l1": Text("L1 bandwidth"),
    "tensor": Text("Tensor Cores"),
    "fp32": Text("FP32 arithmetic"),
    "fp64": Text("FP64 arithmetic"),
    "fp16": Text("FP16 arithmetic"),
    "alu": Text("integer and logic arithmetic"),
    "xu": Text("special functions"),
    "issue": Text("instruction issue"),
    "latency": Text("latency"),
}
"""Names of the bounds, those of parsers/build/bound.py."""
SECOND = {**RESOURCES, "l2": Text("L2"), "l1": Text("L1")}
"""The same for what is used beside the bound: of a cache it is not known whether its bytes or one
of its units."""
UNITS = {
    "alu_pipe": Text("integer and logic pipe (ALU)"),
    "uniform_pipe": Text("uniform pipe"),
    "branch_unit": Text("branch unit"),
    "xu_pipe": Text("pipe of special functions (XU)"),
    "fma_pipe": Text("FMA pipe"),
    "fp16_pipe": Text("FP16 pipe"),
    "fp64_pipe": Text("FP64 pipe"),
    "tensor_pipe": Text("Tensor Core pipe"),
    "lsu_instructions": Text("queue of load/store instructions (LSU)"),
    "lsu_wavefronts": Text("load/store data pipe of L1 (wavefronts)"),
    "l1_banks": Text("data banks of L1"),
    "lsu_results": Text("return path of loads to registers"),
    "texture": Text("texture unit"),
    "mio_queue": Text("memory input/output queue (MIO)"),
    "tma": Text("tensor memory accelerator (TMA)"),
    "constants": Text("constant cache"),
    "l1_busiest": Text("busiest unit of L1"),
    "l1_link": Text("link from L1 to L2"),
    "l2_tags": Text("tag look-ups of L2"),
    "l2_slices": Text("slices of L2"),
    "l2_link": Text("ports of L2"),
    "l2_atomics": Text("atomic units of L2"),
    "l2_busiest": Text("busiest unit of L2"),
}
"""Names of the units of metrics.yaml."""


@dataclass(frozen=True)
class Roof:
    """A bound of kernels that no rule explains.

    Attributes:
        key: stands as `cause` in metrics.json and in docs/rules.md.
        limit: a clause about the kernel; takes `reached`, the part of the roof that it reaches.
        limited: how the GPU time of such kernels is spent.
        action: what to do; `advice` the same for readers who do not know GPUs.
        disproof: what one would see if it were wrong.
        contradicted_by: conditions under which the evidence contradicts it.
        fusible: action and advice for kernels that compilers fuse with their neighbours.
    """

    key: str
    limit: Callable[..., Text]
    limited: Text
    action: Text
    advice: Text
    disproof: Text
    contradicted_by: tuple[Condition, ...] = ()
    fusible: tuple[Text, Text] | None = None


_MOVES = (facts.EXECUTION_WAITS > 50,)
_ISSUES = (facts.ALL_MEMORY_WAITS > 50,)


def _arithmetic(key: str, limit: Callable[..., Text], limited: Text) -> Roof:
    """Return the bound of a pipe for floating point."""
    return Roof(
        key,
        limit,
        limited,
        action=Text(
            "Fill the pipe: fused multiply-adds, fewer other instructions beside them. Fewer "
            "operations save more than that."
        ),
        advice=Text("let it spend less on anything but arithmetic"),
        disproof=Text("The kernel keeps its time with half of its arithmetic left out."),
        contradicted_by=_ISSUES,
    )


ROOFS = {
    "dram": Roof(
        key="dram_saturated",
        limit=partial(
            Text, "it is limited by the bandwidth of the GPU's memory, of which it uses {reached}"
        ),
        limited=Text("limited by DRAM bandwidth"),
        action=Text(
            "Bring it closer to the roof: other tiles or variants (autotuning, a newer library), "
            "more loads in flight. Fewer bytes gain more: smaller types (fp8, int8), a larger "
            "batch per read of the weights, fusion with the neighbours."
        ),
        advice=Text(
            "try variants of it that use more of the memory's speed (autotuning, a newer library)"
        ),
        disproof=Text(
            "A plain copy of as many bytes is faster on this GPU, or the kernel keeps its "
            "time with half the data."
        ),
        contradicted_by=_MOVES,
        fusible=CROSSING,
    ),
    "l2": Roof(
        key="l2_saturated",
        limit=partial(
            Text, "it is limited by the bandwidth of the L2 cache, of which it uses {reached}"
        ),
        limited=Text("limited by L2 bandwidth"),
        action=Text(
            "Re-use data in shared memory or registers: larger tiles, fewer passes over "
            "the same data."
        ),
        advice=Text("let it use data again while it is on the chip"),
        disproof=Text(
            "The kernel keeps its time where its data is re-used in shared memory, at half "
            "the L2 traffic."
        ),
        contradicted_by=_MOVES,
        fusible=CONTIGUOUS,
    ),
    "l1": Roof(
        key="l1_saturated",
        limit=partial(
            Text, "it is limited by the bandwidth of the L1 cache, of which it uses {reached}"
        ),
        limited=Text("limited by L1 bandwidth"),
        action=Text("Re-use data in registers, use wider accesses, and avoid bank conflicts."),
        advice=Text("let it use data again while it is in registers"),
        disproof=Text("The kernel keeps its time with wider loads, or half as many of them."),
        fusible=CONTIGUOUS,
    ),
    "tensor": Roof(
        key="tensor_saturated",
        limit=partial(
            Text, "it is limited by the Tensor Cores, of whose rate it reaches {reached}"
        ),
        limited=Text("limited by the Tensor Cores"),
        action=Text("Try other tiles and cluster shapes (autotuning, a newer cuBLAS)."),
        advice=Text("try other variants of it (autotuning, a newer library)"),
        disproof=Text("A larger product of the same type reaches more FLOP/s on this GPU."),
    ),
    "fp32": _arithmetic(
        "fp32_saturated",
        partial(Text, "it is limited by FP32 arithmetic, of whose rate it reaches {reached}"),
        Text("limited by FP32 arithmetic"),
    ),
    "fp64": _arithmetic(
        "fp64_saturated",
        partial(Text, "it is limited by FP64 arithmetic, of whose rate it reaches {reached}"),
        Text("limited by FP64 arithmetic"),
    ),
    "fp16": _arithmetic(
        "fp16_saturated",
        partial(Text, "it is limited by FP16 arithmetic, of whose rate it reaches {reached}"),
        Text("limited by FP16 arithmetic"),
    ),
    "alu": Roof(
        key="alu_saturated",
        limit=partial(
            Text,
            "it is limited by integer and logic arithmetic, whose pipe is busy in {reached} of all "
            "cycles",
        ),
        limited=Text("limited by integer and logic arithmetic"),
        action=Text(
            "Do less index arithmetic, comparing and converting: smaller index types, loops "
            "unrolled with constant bounds, packed types."
        ),
        advice=Text("do fewer steps of counting and comparing for each value"),
        disproof=Text("The kernel keeps its time with fewer integer instructions."),
        contradicted_by=_ISSUES,
    ),
    "xu": Roof(
        key="xu_saturated",
        limit=partial(
            Text,
            "it is limited by special functions (exponentials, roots, conversions), whose pipe is "
            "busy in {reached} of all cycles",
        ),
        limited=Text("limited by special functions"),
        action=Text(
            "Use fewer exponentials, roots, divisions and conversions: polynomials on the FMA "
            "pipe, packed half types, values computed once."
        ),
        advice=Text("compute fewer exponentials and roots"),
        disproof=Text("The kernel keeps its time with its special functions left out."),
        contradicted_by=_ISSUES,
    ),
    "issue": Roof(
        key="issue_saturated",
        limit=partial(
            Text,
            "it is limited by the issue of instructions, which fills {reached} of all "
            "cycles, more than any roof of memory or arithmetic",
        ),
        limited=Text("limited by instruction issue"),
        action=Text(
            "Do the same work in fewer instructions: wider loads, packed types, less index "
            "arithmetic."
        ),
        advice=Text("let each instruction do more work"),
        disproof=Text("The kernel keeps its time with fewer instructions, as with wider loads."),
        contradicted_by=_ISSUES,
        fusible=(
            Text(
                "Fuse it with the kernels before and after it (torch.compile), or make its "
                "inputs contiguous: the vectorised kernel needs far fewer instructions."
            ),
            Text("fuse it with the steps around it (torch.compile does so)"),
        ),
    ),
    "latency": Roof(
        key="unknown",
        limit=partial(Text, "it saturates nothing (at most {reached} of any roof)"),
        limited=Text("spent waiting with nothing saturated"),
        action=Text(
            "Count what it waits for: the metric sets occupancy and stalls of prof, or ncu's "
            "sections Occupancy and WarpStateStats."
        ),
        advice=Text("measure it in more detail"),
        disproof=Text("These counters name a cause."),
    ),
}
"""Bound -> what is told of a kernel that no rule explains."""


def unit_of(row: Row) -> Text | None:
    """Return the unit whose busy cycles are the utilization of a kernel; None where none is."""
    return UNITS.get(text(row.get("bound_unit")))


def resource_of(row: Row) -> Text:
    """Return what is used most by a kernel: the busy unit, else the resource."""
    return unit_of(row) or RESOURCES[text(row["bound_by"])]


WAITS_FOR = {
    "math_pipe_throttle": (*PIPES, "alu", "xu"),
    "not_selected": ("issue",),
    "long_scoreboard": ("dram", "l2"),
}
"""Stall -> bounds that it is the wait for: beside them it is no second thing."""


def is_mixed_bound(row: Row) -> bool:
    """Tell whether no resource limits a kernel alone: it is used to 60 to 80 %."""
    return text(row["bound_by"]) != "latency" and number(row["roof_share"]) < BOUND_FROM


def limit_clause(row: Row, reached: Number, stall: Text | None) -> Text:
    """Return a clause about the kernel of what limits it: a resource, two things, or nothing.

    `reached` is its utilization; `stall` is what its warps wait for, None where it is not known.
    """
    bound = text(row["bound_by"])
    if bound == "latency" or not is_mixed_bound(row):
        unit = None if bound == "latency" else unit_of(row)
        if unit is None:
            return ROOFS[bound].limit(reached=reached)
        return Text(
            "it is limited by one unit, {unit}, which is busy in {reached} of all cycles",
            unit=unit,
            reached=reached,
        )
    if second := SECOND.get(text(row.get("second_by"))):
        return Text(
            "it is limited by two things at once, {first} ({reached} used) and {second} "
            "({beside}): both must go down",
            first=resource_of(row),
            reached=reached,
            second=second,
            beside=Number(number(row["second_share"]), "fraction"),
        )
    if stall is None:
        return Text("{part}, and it waits besides", part=in_part(row, reached))
    if bound in WAITS_FOR.get(text(row.get("top_stall")), ()):
        return Text("{part}, for which its warps wait most of all", part=in_part(row, reached))
    return Text(
        "{part}, and it waits besides, most of all {wait}: both must go down",
        part=in_part(row, reached),
        wait=stall,
    )


def in_part(row: Row, reached: Number) -> Text:
    """Return what a kernel of a mixed bound uses most, as a clause."""
    first = resource_of(row)
    return Text("it is limited in part by {first} ({reached} used)", first=first, reached=reached)


NEAR_LIMIT = Text(
    "it runs near the limit of the hardware; only less work or data helps (smaller number formats)"
)
NEAR = (
    Text(
        "A better kernel hardly helps; only less work does: fewer operations, a smaller "
        "type, a skipped or cached result."
    ),
    NEAR_LIMIT,
)
NEAR_DRAM = (
    Text(
        "A better kernel hardly helps; only less data does: smaller types, fusion, a "
        "larger batch per read of the weights."
    ),
    NEAR_LIMIT,
)
"""Action and advice for a kernel so near its roof that no better kernel helps."""
PRODUCTS = ("gemm", "gemv", "conv", "attention", "rnn", "moe")
"""Kinds of kernels that read weights, or keys and values, for many items at a time."""
NEAR_DRAM_OTHERS = (
    Text(
        "A better kernel hardly helps; only less data does: smaller types, fusion with the kernels "
        "before and after it, fewer passes over the data."
    ),
    NEAR_LIMIT,
)
DRAM_OTHERS = (
    Text(
        "Bring it closer to the roof: more loads in flight (several values per thread, accesses of "
        "16 bytes). Fewer bytes gain more: smaller types, fusion with the kernels before and after "
        "it, fewer passes over the data."
    ),
    Text("let it request more data at a time, or fuse it with the steps around it"),
)
"""The same for kernels that are no products, and what to do where more than DRAM limits them."""
