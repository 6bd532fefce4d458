"""Too little work at a time: grids too small for the GPU, unbalanced SMs, and low occupancy."""

from __future__ import annotations

import math
from dataclasses import replace

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.rule import (
    CROSSING,
    FEW_WARPS,
    NONE,
    OCCUPANCY,
    Kernel,
    Rule,
)
from nsight_prof.reports.page.values import Text

ON_CHIP = ("latency", "issue", "fp32", "fp64", "fp16", "alu", "xu", "tensor", "l1")
"""Bounds that more busy SMs relax."""
ALL_WARPS = 0.8
ALL_WARPS_SOURCE = (
    "Nsight Compute rule SOLBottleneck counts a resource as full from 80 % on; kernels with all "
    "their warps reached 54 to 94 % of the roof in recorded runs of an H200"
)
"""More warps hide waits, but the latency of a memory or a pipe grows as it fills."""
LIMITERS = {
    "registers": Text("registers"),
    "shared memory": Text("shared memory"),
    "blocks": Text("blocks"),
    "warps": Text("warps"),
    "barriers": Text("barriers"),
}
"""What limits the blocks per SM, as column `occupancy_limiter` names it."""
_ROWS = Text(
    "Split each row over several blocks, which a second pass joins (partial maxima and sums), or "
    "batch more rows."
)
_VOCABULARY = Text(
    "Split the vocabulary over several blocks, each with its own best value, and let a second pass "
    "choose among them; or sample for more requests at once."
)
_TILES = Text(
    "Take smaller tiles, or split the inner dimension over several blocks, whose sums a second "
    "pass adds (split-K, stream-K): another tile or algorithm of the library. A larger batch fills "
    "them too, but is other work."
)
MORE_BLOCKS = {
    **dict.fromkeys(("softmax", "reduction"), _ROWS),
    "norm": Text(
        "Fuse it with the kernels before and after it, or batch more rows: a norm of few rows "
        "takes little longer than starting it."
    ),
    **dict.fromkeys(("sampling", "sort"), _VOCABULARY),
}
"""What to try where a kernel of a category has too few blocks."""


def limiters(row: Row) -> list[str]:
    """Return what limits the blocks on an SM, without what only looks as though it did.

    The driver keeps 1 KiB of shared memory per block, and there are as many barriers as blocks:
    both tie with the number of blocks where they are not used at all.
    """
    found = [limiter for limiter in text(row["occupancy_limiter"]).split(", ") if limiter]
    if "blocks" not in found:
        return found
    unused = {"barriers"} | ({"shared memory"} if number(row["shared_bytes"]) == 0 else set())
    return [limiter for limiter in found if limiter not in unused]


def _blocks(kernel: Kernel) -> Text:
    """Return the number of blocks, where the grid tells it."""
    blocks = kernel.facts["blocks"]
    if math.isnan(blocks):
        return Text("blocks")
    return Text("{n} block", "{n} blocks", n=round(blocks))


SMALL_GRID = Rule(
    key="small_grid",
    question="Does every SM get a block?",
    when=(facts.BLOCKS_MISSING >= 20),
    clause=lambda k: Text(
        "it starts {blocks} on {sms} SMs, so {missing} of them have nothing to do",
        blocks=_blocks(k),
        sms=round(k.context.sms),
        missing=k.number(facts.BLOCKS_MISSING),
    ),
    symptom=Text("starts too few blocks for the GPU"),
    remedy=Text("With a block for every SM"),
    action=Text(
        "Divide its work over more blocks (smaller tiles, a split reduction), or fuse it with its "
        "neighbours. A larger batch fills them too, but is other work."
    ),
    advice=Text(
        "divide the same work over more of the GPU's processors, since some of them get none"
    ),
    estimate="With work for all SMs the time shrinks by the part of them that has none: (SMs - "
    "blocks) / SMs. It is a bound: blocks may not divide so, and of a short kernel what the "
    "shortest launch of the trace takes stays.",
    disproof=Text(
        "Other kernels run on the idle SMs at the same time, or a batch of twice the size "
        "takes twice as long."
    ),
    source=Text("Nsight Compute rule LaunchConfiguration: fewer blocks than SMs; prof: by a fifth"),
    confidence="high",
    time=facts.BLOCKS_MISSING,
    bounds=ON_CHIP,
    evidence=(facts.BLOCKS,),
    batches=True,
    actions=MORE_BLOCKS,
)
TAIL = Rule(
    key="tail",
    question="Does the last wave of blocks fill the GPU?",
    when=(facts.WAVES > 1)
    & (facts.TAIL_LOSS >= 10)
    & (
        ((facts.BLOCKS_A_SM > 2) & (facts.SM_BALANCE <= 90).or_unknown())
        | ((facts.BLOCKS_A_SM > 1) & (facts.SM_BALANCE <= 90))
    ),
    clause=lambda k: Text(
        "its last wave of blocks is only partly filled, which costs up to {loss} of its "
        "time ({waves} waves)",
        loss=k.number(facts.TAIL_LOSS),
        waves=k.number(facts.WAVES).at_digits(3),
    ),
    symptom=Text("loses time in its last wave"),
    remedy=Text("With whole waves"),
    action=Text(
        "Choose a tile or block size whose grid fills whole waves, or make the kernel persistent."
    ),
    advice=Text("choose sizes that divide the work evenly"),
    estimate="Blocks take whole waves: 1 - waves / (waves rounded up). Where the SMs are busy, "
    "rounds of the SMs count instead of waves.",
    disproof=Text(
        "Blocks differ much in length, or the mean SM is active as long as the busiest one "
        "(SM balance near 100 %)."
    ),
    source=Text(
        "Nsight Compute rule LaunchConfiguration: a partly filled last wave; prof: by a "
        "tenth of all places"
    ),
    time=facts.TAIL_LOSS,
    bounds=ON_CHIP,
    evidence=(facts.WAVES,),
)
IMBALANCE = Rule(
    key="imbalance",
    in_code=True,
    question="Do all SMs work for the same time?",
    when=(facts.BALANCE_ALONE >= 10) & (facts.BLOCKS_MISSING < 20),
    clause=lambda k: Text(
        "the mean SM works for {balance} of the time of the busiest one and then waits for it",
        balance=k.number(facts.SM_BALANCE),
    ),
    symptom=Text("divides its work unevenly"),
    remedy=Text("With evenly divided work"),
    action=Text(
        "Divide the work into equal or smaller portions, start the long ones first, or let "
        "blocks fetch work from a queue (persistent kernel)."
    ),
    advice=Text("divide the work more evenly"),
    estimate="The mean SM is as long active as the busiest one, and of blocks that all start at "
    "once none leaves its place empty before the last has ended: achieved / theoretical occupancy. "
    "What an only partly filled last wave explains is left to `tail`.",
    disproof=Text(
        "The busiest SM does as much work as the others (instructions per SM are equal) and "
        "waits for something else."
    ),
    source=Text("Nsight Compute rule WorkloadImbalance: 5 % or more; prof: a tenth of the time"),
    time=facts.UNEVEN_LOSS,
    bounds=ON_CHIP,
    # Atomics on one address serve some SMs before others, whose equal work then ends later.
    unless=("small_grid", "atomics"),
    evidence=(facts.SM_BALANCE,),
)
FEW_BLOCKS = Rule(
    key="few_blocks",
    in_code=True,
    question="Are there as many blocks as fit on the SMs at a time (a full wave)?",
    # A block of a warp or two leaves schedulers of its SM without any, too.
    when=(facts.WAVES < 0.8)
    & (facts.OCCUPANCY_GAP > 10)
    & ((facts.BLOCKS_MISSING < 20).or_unknown() | (facts.THREADS < 128)),
    clause=lambda k: Text(
        "its {blocks} are only {waves} of those that fit on the GPU at a time",
        blocks=_blocks(k),
        waves=k.number(facts.WAVES, unit="fraction"),
    ),
    symptom=Text("starts few blocks for the GPU"),
    remedy=Text("With a full wave of blocks"),
    action=Text(
        "Divide its work over more blocks (smaller blocks, a split reduction) or fuse it with its "
        "neighbours. A loop that goes through a sequence step by step can work on pieces of it at "
        "once, whose ends are combined (a parallel scan: tl.associative_scan, cub::BlockScan)."
    ),
    advice=SMALL_GRID.advice,
    estimate="Of the stalls that more warps hide, achieved / theoretical occupancy is left: warps "
    "for all places that the launch allows. They take it to 80 % of a roof.",
    disproof=Text(
        "A batch of twice the size takes twice as long: then it is not the number of warps "
        "that limits it."
    ),
    source=Text(
        "Nsight Compute rule AchievedOccupancy: over 10 points below the theoretical one; "
        "prof: under 80 % of a wave"
    ),
    rank=FEW_WARPS,
    time=facts.HIDDEN_TIME,
    remaining=facts.OF_THEORETICAL,
    attainable=ALL_WARPS,
    attainable_source=ALL_WARPS_SOURCE,
    bounds=("latency",),
    evidence=(facts.WAVES, facts.ACHIEVED_OCCUPANCY),
    batches=True,
    actions=MORE_BLOCKS | {"gemm": _TILES},
)
ACHIEVED_OCCUPANCY = Rule(
    key="achieved_occupancy",
    question="Are as many warps there as the launch allows?",
    when=(facts.OCCUPANCY_GAP > 10),
    clause=lambda k: Text(
        "its SMs hold {achieved} of the warps they could hold, where its launch allows "
        "{theoretical}",
        achieved=k.number(facts.ACHIEVED_OCCUPANCY),
        theoretical=k.number(facts.THEORETICAL_OCCUPANCY),
    ),
    symptom=Text("holds fewer warps than it could"),
    remedy=Text("With all the warps that its launch allows"),
    action=Text(
        "Balance the work of the blocks, and start more of them at once. Where thousands of blocks "
        "end soon after they begin, give each more work: several rows or tiles for a program, a "
        "grid-stride loop."
    ),
    advice=Text("divide the work more evenly"),
    in_code=True,
    fusible=CROSSING,
    estimate="Of the stalls that more warps hide, achieved / theoretical occupancy is left. More "
    "warps take it to 80 % of a roof. A bound alone: nothing tells how many of them can come.",
    disproof=Text(
        "The kernel is as slow where more warps are there, as in a launch with more or "
        "longer blocks."
    ),
    source=Text("Nsight Compute rule AchievedOccupancy: over 10 points below the theoretical one"),
    confidence="low",
    rank=OCCUPANCY,
    time=facts.HIDDEN_TIME,
    remaining=facts.OF_THEORETICAL,
    attainable=ALL_WARPS,
    attainable_source=ALL_WARPS_SOURCE,
    bounds=("latency",),
    unless=("few_blocks", "small_grid", "imbalance"),
    promote=(facts.ACHIEVED_OCCUPANCY < 50),
    evidence=(facts.ACHIEVED_OCCUPANCY, facts.THEORETICAL_OCCUPANCY),
)
SHORT_BLOCKS = Rule(
    key="short_blocks",
    in_code=True,
    question="Do blocks end as soon as they have begun?",
    when=(facts.IS_OWN >= 1)
    & (facts.IS_MATRIX < 1)
    & (facts.WAVES >= 20)
    & (facts.LIFETIME < 1000)
    & (facts.LOADED_A_THREAD < 16).or_unknown()
    & (facts.OCCUPANCY_GAP > 10),
    clause=lambda k: Text(
        "its {blocks} live for {lifetime} each: starting and ending them takes much of the time, "
        "and each thread has too little work ({loaded} to load)",
        blocks=_blocks(k),
        lifetime=k.number(facts.LIFETIME),
        loaded=k.number(facts.LOADED_A_THREAD),
    ),
    symptom=Text("starts blocks that end at once"),
    remedy=Text("With more work for each block and thread"),
    action=Text(
        "Give each block more work: several rows or tiles, a grid-stride loop. Give each thread "
        "several neighbouring elements, so that it loads 16 bytes at once: fewer threads for a row "
        "(in Triton a smaller num_warps where a row has fewer elements than threads)."
    ),
    advice=Text("start the work in fewer, larger portions"),
    estimate="What is left is what its bytes and FLOPs need at 80 % of their roofs.",
    disproof=Text("With several rows or tiles for each block it takes as long."),
    source=Text(
        "prof: under 1 us, where a whole kernel of one short block takes 1 to 2 us (H200); Nsight "
        "Compute rule AchievedOccupancy: over 10 points below the theoretical one"
    ),
    confidence="low",
    unloads=dict.fromkeys(("issue", "lsu", "alu", "xu"), NONE),
    attainable=0.8,
    attainable_source="as of `few_blocks`",
    bounds=("latency",),
    unless=("early_returns", "sorted_for_few"),
    evidence=(facts.WAVES, facts.LOADED_A_THREAD),
)
# What keeps the Tensor Cores busy holds few warps by design, each with much in flight.
_ROOM_MISSING = (
    (facts.IS_MATRIX < 1)
    & (facts.TENSOR_ACTIVE < 20).or_unknown()
    & (facts.THEORETICAL_OCCUPANCY < 80)
    & (facts.WAVES >= 0.8).or_unknown()
    # Where waves are unknown, the launch may hold no more blocks than those that are there.
    & ((facts.WAVES >= 0.8) | (facts.OF_THEORETICAL >= 80).or_unknown())
    # Where nobody counted what warps wait for, room for half of them and more is no cause.
    & ((facts.TOP_STALL >= 0) | (facts.THEORETICAL_OCCUPANCY <= 50))
    & (facts.ISSUE_ACTIVE < 80).or_unknown()
)
SHARED_LIMITED = Rule(
    key="shared_limited",
    in_code=True,
    question="Does shared memory leave room for warps?",
    # Registers and shared memory are of use: what frees them costs more than more warps hide where
    # others are ready whenever a warp issues. Blocks of another size cost nothing.
    when=_ROOM_MISSING & (facts.READY_WARPS < 2).or_unknown(),
    clause=lambda k: Text(
        "{limiters} per block allow only {theoretical} of the warps an SM can hold",
        limiters=[LIMITERS[name] for name in limiters(k.row)],
        theoretical=k.number(facts.THEORETICAL_OCCUPANCY),
    ),
    symptom=Text("waits, and few warps fit"),
    remedy=Text("With all warps of an SM"),
    action=Text(
        "Use less shared memory per block (smaller tiles or fewer stages), so that more "
        "warps hide the latency."
    ),
    advice=Text("let it use less of the GPU's on-chip storage, so that more of it runs at once"),
    estimate="Of the stalls that more warps hide (not those of full queues and pipes, or of warps "
    "that issue), the theoretical occupancy is left: they shrink as warps grow, and take "
    "it to 80 % of a roof.",
    disproof=Text(
        "With room for more warps it takes as long: then the warps have enough work in flight by "
        "themselves."
    ),
    source=Text("Nsight Compute rule TheoreticalOccupancy: below 80 %"),
    confidence="low",
    rank=OCCUPANCY,
    time=facts.HIDDEN_TIME,
    remaining=facts.THEORETICAL_OCCUPANCY,
    attainable=ALL_WARPS,
    attainable_source=ALL_WARPS_SOURCE,
    bounds=("latency",),
    promote=(facts.THEORETICAL_OCCUPANCY <= 50),
    limiter="shared memory",
)
REGISTER_LIMITED = replace(
    SHARED_LIMITED,
    key="register_limited",
    question="Do registers leave room for warps?",
    limiter="registers",
    unless=("local_spills",),
    action=Text(
        "Use fewer registers per block (launch bounds, less state per thread), so that "
        "more warps hide the latency."
    ),
)
BLOCK_LIMITED = replace(
    SHARED_LIMITED,
    key="block_limited",
    when=_ROOM_MISSING,
    question="Do small blocks leave places for warps empty?",
    limiter="blocks",
    clause=lambda k: Text(
        "an SM holds only so many blocks, and small ones fill {theoretical} of the warps "
        "that it can hold",
        theoretical=k.number(facts.THEORETICAL_OCCUPANCY),
    ),
    advice=Text("let it start its work in larger portions, so that more of it runs at once"),
    action=Text(
        "Use blocks of 128 threads or more: an SM runs a limited number of blocks, however small."
    ),
    disproof=Text("The same work in blocks of four times the threads takes as long."),
)
WARPS_LIMITED = replace(
    SHARED_LIMITED,
    key="warps_limited",
    when=_ROOM_MISSING,
    question="Does the block size divide the warps of an SM?",
    limiter="warps",
    clause=lambda k: Text(
        "blocks of its size leave room: only {theoretical} of the warps an SM can hold fit",
        theoretical=k.number(facts.THEORETICAL_OCCUPANCY),
    ),
    advice=Text("let it start its work in portions that fill the processors"),
    action=Text(
        "Choose a block size that divides the warps of an SM (64 on most chips): 128, 256 "
        "or 512 threads."
    ),
)
BARRIER_LIMITED = replace(
    SHARED_LIMITED,
    key="barrier_limited",
    question="Do barriers leave room for warps?",
    limiter="barriers",
    action=Text("Use fewer named barriers per block, so that more blocks fit an SM."),
)
