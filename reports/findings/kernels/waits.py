"""What the warps of a kernel wait for, and what hides each kind of wait."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.rule import CONTIGUOUS, STALL, Rule
from nsight_prof.reports.page.values import Text, Verbatim

STALLS = {
    "long_scoreboard": Text("for data from L2 or memory"),
    "short_scoreboard": Text("for shared memory or special functions"),
    "barrier": Text("for other warps at a block barrier"),
    "gmma": Text("for the Tensor Cores to finish a matrix step"),
    "wait": Text("on fixed instruction latencies"),
    "math_pipe_throttle": Text("for a busy arithmetic pipe"),
    "mio_throttle": Text("for the queue to shared memory"),
    "lg_throttle": Text("for the queue to global memory"),
    "tex_throttle": Text("for the texture queue"),
    "no_instruction": Text("for instructions to be fetched"),
    "not_selected": Text("for their turn: other warps are ready too"),
    "branch_resolving": Text("for branches to resolve"),
    "dispatch_stall": Text("for the dispatcher"),
    "drain": Text("for stores to finish at the end"),
    "imc_miss": Text("for constants"),
    "membar": Text("at memory barriers"),
    "sleeping": Text("because they were told to sleep"),
    "selected": Text("for nothing: they issue"),
    "misc": Text("for reasons that the counters do not name"),
}
"""Stall reason -> what the warps wait for."""
REMEDIES: dict[str, tuple[Text, Text, Text]] = {
    **dict.fromkeys(
        ("barrier", "membar"),
        (
            Text(
                "Give the warps of a block equal work between two barriers, use smaller "
                "blocks, or synchronise less often (warp shuffles, more work between "
                "barriers)."
            ),
            Text("let its parts wait for each other less often"),
            Text("With its barriers left out (wrong results may do for a test) it takes as long."),
        ),
    ),
    "wait": (
        Text(
            "Give each thread independent work (unroll, several values per thread) so that "
            "fixed latencies overlap, or start more warps per SM."
        ),
        Text("let each thread work on several values at a time"),
        Text("Several values per thread (unrolling), or more warps, leave the time as it is."),
    ),
    "short_scoreboard": (
        Text(
            "Do other work between an access to shared memory, or a special function, and "
            "the use of its result (unroll), and avoid bank conflicts."
        ),
        Text("let each thread work on several values at a time"),
        Text("With values kept in registers, or the special functions left out, it takes as long."),
    ),
    "mio_throttle": (
        Text(
            "Use fewer and wider accesses to shared memory (float4), or keep values in registers."
        ),
        Text("let it move more data with each access on the chip"),
        Text("Half as many accesses to shared memory (wrong results) leave the time as it is."),
    ),
    "lg_throttle": (
        Text(
            "Use fewer and wider loads and stores (float4 instead of four floats), and "
            "keep arrays out of local memory."
        ),
        Text("let it move more data with each access"),
        Text("Half as many loads and stores, each twice as wide, leave the time as it is."),
    ),
    "math_pipe_throttle": (
        Text(
            "Spread the arithmetic over other pipes or types, or do less of it: the pipe "
            "that it uses is full."
        ),
        Text("do fewer operations, or use other number formats"),
        Text("The kernel keeps its time with half of its arithmetic left out."),
    ),
    "gmma": (
        Text(
            "Keep more matrix steps in flight: deeper pipeline, larger tiles, two consumer "
            "warp groups."
        ),
        Text("try other variants of it (autotuning, a newer library)"),
        Text("A deeper pipeline or larger tiles leave the time as it is."),
    ),
    **dict.fromkeys(
        ("branch_resolving", "no_instruction"),
        (
            Text(
                "Use fewer and larger branches and loops (unroll), and less code in the inner loop."
            ),
            Text("simplify its inner loop"),
            Text("With its inner loop unrolled, or its branches left out, it takes as long."),
        ),
    ),
    "drain": (
        Text("Store in wide, neighbouring pieces, and not all at the end."),
        Text("let it write its results in larger portions"),
        Text("With half of its stores left out (wrong results) it takes as long."),
    ),
    "sleeping": (
        Text("Wait less by polling: it was told to sleep."),
        Text("let its parts wait for each other less often"),
        Text("Without the sleep in its loop it takes as long."),
    ),
}
"""Stall reason -> what to do, the same for readers who do not know GPUs, and what would disprove
it; the words of the rule are those for loads."""


def _meaning(row: Row) -> Text:
    """Return what the warps of a kernel wait for most: one that uses no shared memory for none."""
    reason = text(row["top_stall"])
    if reason == "short_scoreboard" and number(row["shared_memory_bytes"]) == 0:
        return Text("for special functions (square roots, exponentials, conversions)")
    return stall_meaning(reason)


def stall_meaning(reason: str) -> Text:
    """Return what warps of a stall reason wait for, in plain words."""
    return STALLS.get(reason) or Text("({reason})", reason=Verbatim(reason.replace("_", " ")))


LATENCY = Rule(
    key="latency",
    in_code=True,
    question="What do the warps wait for?",
    when=(facts.TOP_STALL > 30) & (facts.ISSUE_ACTIVE < 80).or_unknown(),
    clause=lambda k: Text("its warps wait mostly {meaning}", meaning=_meaning(k.row)),
    symptom=Text("waits, saturates nothing"),
    remedy=Text("Without that wait"),
    action=Text(
        "Have more loads in flight for each warp (prefetch, unroll, asynchronous copies) "
        "or more warps per SM."
    ),
    advice=Text("request data earlier, so that the GPU does not wait for it"),
    estimate="The warps no longer wait for this reason. A bound alone where that is for memory, or "
    "for a pipe that computes the numbers of the task.",
    disproof=Text(
        "More loads in flight per thread (unrolling) or more warps leave the time as it is: "
        "then a chain of dependent steps sets the pace."
    ),
    source=Text(
        "Nsight Compute rule CPIStall: one reason over 30 % of the cycles between two "
        "issues; none from 80 % of issue slots on"
    ),
    rank=STALL,
    time=facts.TOP_STALL,
    bounds=("latency",),
    fusible=CONTIGUOUS,
)
