"""Instructions that a kernel could save: divergent warps, multiplications and additions apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.rule import NONE, Rule
from nsight_prof.reports.page.values import Text

DIVERGENCE = Rule(
    key="divergence",
    in_code=True,
    question="Do all threads of a warp work?",
    when=(facts.IS_MATRIX < 1)
    & (facts.THREADS_PER_INSTRUCTION < 24)
    & ((facts.ISSUE_ACTIVE >= 40) | (facts.EXECUTION_WAITS >= 30)),
    clause=lambda k: Text(
        "its instructions work for {threads} of the 32 threads of a warp on average "
        "(branches that threads take apart)",
        threads=k.number(facts.THREADS_PER_INSTRUCTION),
    ),
    symptom=Text("works with few threads of each warp"),
    remedy=Text("With whole warps"),
    action=Text(
        "Sort or group the work so that the threads of a warp take the same branch, or "
        "give a warp one item with all its threads."
    ),
    advice=Text("let items of one kind be worked on together"),
    estimate="As many instructions per thread, with 32 threads each: the time of full issue slots, "
    "or of the stalls for instructions, pipes and their queues, shrinks to threads / 32.",
    disproof=Text(
        "Items sorted by the branch they take, or branches removed (wrong results), take as long."
    ),
    source=Text("Nsight Compute rule ThreadDivergence: under 24 threads per instruction"),
    time=facts.WARP_TIME,
    remaining=facts.THREADS_LEFT,
    unloads=dict.fromkeys(("issue", "lsu", "alu", "xu"), facts.THREADS_LEFT),
    contradicted_by=((facts.ALL_MEMORY_WAITS > 50),),
)
NARROW_BLOCKS = replace(
    DIVERGENCE,
    key="narrow_blocks",
    question="Do blocks have the threads of a whole warp?",
    when=(facts.IS_OWN >= 1) & (facts.THREADS < 32),
    clause=lambda k: Text(
        "its blocks have {threads} of the 32 threads of a warp: the others take their turn and do "
        "nothing",
        threads=k.number(facts.THREADS),
    ),
    symptom=Text("starts blocks of less than a warp"),
    remedy=Text("With 32 threads or more in a block"),
    action=Text("Start blocks of 128 threads or more, each with an item of its own."),
    advice=Text("start its work in groups of 32 and more"),
    estimate="As many threads in whole warps: each of its resources and waits takes threads / 32 "
    "of the time, but DRAM and L2.",
    disproof=Text("The same work in blocks of 128 threads takes as long."),
    source=Text("CUDA C++ Best Practices Guide: the number of threads is a multiple of a warp"),
    confidence="high",
    time=None,
    remaining=facts.BLOCK_LEFT,
    unloads=dict.fromkeys(("issue", "lsu", "alu", "xu", "fp32", "fp64"), facts.BLOCK_LEFT),
    contradicted_by=(),
    unless=("small_grid",),
)
DIVERGENCE = replace(DIVERGENCE, unless=(NARROW_BLOCKS.key,))
DOUBLE_PRECISION = Rule(
    key="double_precision",
    question="Does a kernel compute in double precision?",
    when=(facts.IS_MATRIX < 1) & (facts.DOUBLE_PART >= 10) & (facts.DOUBLE_PIPE >= 10),
    clause=lambda k: Text(
        "{part} of its floating-point operations are in double precision (FP64)",
        part=k.number(facts.DOUBLE_PART),
    ),
    symptom=Text("computes in double precision"),
    remedy=Text("In single precision"),
    action=Text(
        "Compute in single precision: literals with f (0.5f), the functions for float (expf, "
        "erff), tensors as float32. A double literal or tensor makes all that meets it double "
        "(numpy makes float64 where nothing else is asked for)."
    ),
    advice=Text("let it compute with shorter numbers (single precision)"),
    estimate="Of the time in which the FP64 pipe works, the part is left that FP32 needs at its "
    "rate; the issue slots go down with it. Where instructions fill these, a third of those of "
    "double precision is left.",
    disproof=Text("The results need more than the 24 bits of FP32, or the kernel takes as long."),
    source=Text("prof: a tenth of the FLOPs, and of the time of the FP64 pipe"),
    time=facts.DOUBLE_TIME,
    remaining=facts.DOUBLE_LEFT,
    unloads={"fp64": NONE, "issue": facts.DOUBLE_LEFT, "alu": facts.DOUBLE_LEFT},
)
UNFUSED_FMA = Rule(
    key="unfused_fma",
    in_code=True,
    question="Are multiplications and additions fused?",
    when=(facts.FUSABLE >= 10) & (facts.FP_PIPE >= 40) & (facts.PAIRS >= 10).or_unknown(),
    clause=lambda k: Text(
        "it multiplies and adds in two instructions where one would do: {part} of its FP "
        "instructions could go",
        part=k.number(facts.FUSABLE),
    ),
    symptom=Text("does not fuse multiplications and additions"),
    remedy=Text("With fused multiply-adds"),
    action=Text("Compile without -fmad=false (or use fmaf), and write sums of products as such."),
    advice=Text("let the compiler merge multiplications with additions"),
    estimate="Of the time in which a saturated FP pipe works, else warps wait for instructions and "
    "pipes, the part of the instructions goes that fusing saves: one for each pair of an "
    "add and a mul.",
    disproof=Text(
        "The additions do not take the result of a multiplication, or the disassembly "
        "shows FFMA where both stand."
    ),
    source=Text("Nsight Compute rule FPInstructions: over 10 % of the instructions are not fused"),
    time=facts.FP_TIME,
    remaining=facts.UNFUSED_LEFT,
    unloads={"issue": facts.UNFUSED_LEFT, "fp32": NONE, "fp64": NONE},
    contradicted_by=((facts.ALL_MEMORY_WAITS > 50),),
)
EXACT_MATH = Rule(
    key="exact_math",
    in_code=True,
    question="Do divisions, remainders and square roots take most of a kernel's instructions?",
    when=(facts.IS_OWN >= 1)
    & (facts.EXACT_MATH >= 20)
    & ((facts.ISSUE_ACTIVE >= 40) | (facts.EXECUTION_WAITS >= 30)),
    clause=lambda k: Text(
        "{part} of its instructions work out exact divisions, remainders and square roots (/, %, "
        "sqrtf), of which cheaper ones need a few",
        part=k.number(facts.EXACT_MATH),
    ),
    symptom=Text("spends its instructions on divisions, remainders and square roots"),
    remedy=Text("With cheaper ones"),
    action=Text(
        "Take cheaper ones where their last bits do not matter: rsqrtf(x), __fdividef(a, b), a "
        "reciprocal computed once, -use_fast_math (-prec-div=false). For integers: constants as "
        "divisors (templates), powers of 2 (shift and mask), 32 bits in place of 64."
    ),
    advice=Text("let it divide and take roots with a little less precision, in fewer steps"),
    estimate="Of the time of full issue slots, else of the stalls for instructions and pipes, the "
    "part of the instructions goes that cheaper ones do not need: 8 of 10 each, of integers 16 of "
    "20 (32 bits) and 60 of 64 (64 bits).",
    disproof=Text(
        "With -use_fast_math, or shifts, it takes as long, or results need the last bits."
    ),
    source=Text("prof: SASS of divisions (FCHK, I2F.RP) and roots on Hopper; a fifth of all"),
    time=facts.WARP_TIME,
    remaining=facts.EXACT_LEFT,
    unloads=dict.fromkeys(("issue", "alu", "fp32", "xu"), facts.EXACT_LEFT),
    contradicted_by=((facts.ALL_MEMORY_WAITS > 50),),
)
IDLE_LANES = Rule(
    key="idle_lanes",
    in_code=True,
    question="Do full issue slots serve threads that are masked off, or steps of few threads?",
    when=(facts.IS_OWN >= 1)
    & (facts.THREADS_PER_INSTRUCTION >= 24)
    & (facts.THREADS_PER_INSTRUCTION < 28)
    & (facts.ISSUE_ACTIVE >= 60)
    & (facts.ARITHMETIC_USE < 20)
    & (facts.LEVEL_BUSY < 20),
    clause=lambda k: Text(
        "in many of its instructions threads are masked off or idle ({threads} of 32 active on "
        "average), and of what fills the issue slots little is work: no pipe for numbers is busy "
        "for more than {arithmetic}, no memory for more than {memory}",
        threads=k.number(facts.THREADS_PER_INSTRUCTION),
        arithmetic=k.number(facts.ARITHMETIC_USE),
        memory=k.number(facts.LEVEL_BUSY),
    ),
    symptom=Text("issues instructions for masked or idle threads"),
    remedy=Text("With work for all threads in every step"),
    action=Text(
        "Let all threads work in every step: a block as small as its data (the next power of 2) in "
        "place of masked lanes; more elements for each thread; a reduction with warp shuffles in "
        "place of a barrier (__syncthreads) for each level."
    ),
    advice=Text("do not start more parallel steps than there is data"),
    estimate="What is left is what its bytes and FLOPs need at 80 % of their roofs.",
    disproof=Text("A smaller block, or more elements for each thread, takes as long."),
    source=Text("prof: two thirds of the issue slots beside a fifth of any pipe and memory"),
    unloads=dict.fromkeys(("issue", "lsu", "alu", "xu"), NONE),
    attainable=0.8,
    attainable_source="as of `few_blocks`",
    bounds=("issue", "alu", "latency"),
)
EARLY_RETURNS = Rule(
    key="early_returns",
    in_code=True,
    question="Do nearly all threads return because there is nothing for them to do?",
    when=(facts.IS_OWN >= 1) & (facts.PASSING < 20),
    clause=lambda k: Text(
        "nearly all of its threads look, have nothing to do and exit: only {part} of the samples "
        "of its warps are beyond this early return",
        part=k.number(facts.PASSING),
    ),
    symptom=Text("starts threads that have nothing to do"),
    remedy=Text("With threads for what there is to do alone"),
    action=Text(
        "Keep a list of the items that have work (a frontier, a queue, compacted indices), written "
        "by the step before with an atomic counter, and start threads for these."
    ),
    advice=Text("start work only for the items that need it"),
    estimate="What is left is the time of the warps that go on, by their samples.",
    disproof=Text("With a list of the items that have work it takes as long."),
    source=Text("prof: a tenth of the warps go on, in a fifth of the time"),
    remaining=facts.PASSING,
    unloads=dict.fromkeys(
        ("dram", "l2", "l1", "lsu", "issue", "alu", "xu", "fp32", "fp64"), facts.PASSING
    ),
)
MASKED_WORK = Rule(
    key="masked_work",
    in_code=True,
    question="Do blocks compute what lies beyond the end of their data?",
    when=(facts.IS_OWN >= 1) & (facts.UNMASKED < 60) & (facts.TENSOR_ACTIVE >= 10),
    clause=lambda k: Text(
        "of what its masked loads and its stores could move, they move only {unmasked}: nearly all "
        "the rest of its blocks lies beyond the end of the data (padding up to the longest item), "
        "and multiplies zeros that nobody stores",
        unmasked=k.number(facts.UNMASKED),
    ),
    symptom=Text("works on padding that its masks leave out"),
    remedy=Text("With blocks for what there is alone"),
    action=Text(
        "Let blocks beyond the end of their item return at once, before they load (early exit), or "
        "start only blocks that have something to do: a grid over pieces of items of different "
        "lengths (cumulative lengths: varlen, ragged, grouped), not over the longest one."
    ),
    advice=Text("start work only for data that is there, not for the longest item each time"),
    estimate="What is left of all its work is the part of its accesses that is not masked.",
    disproof=Text("With blocks that return where their mask is empty it takes as long."),
    source=Text("prof: SASS; more than two fifths of the accesses masked, in loads and in stores"),
    remaining=facts.UNMASKED,
    unloads=dict.fromkeys(
        ("dram", "l2", "l1", "lsu", "issue", "alu", "xu", "fp32", "tensor"), facts.UNMASKED
    ),
)
SORTED_FOR_FEW = Rule(
    key="sorted_for_few",
    in_code=True,
    question="Does a kernel sort all numbers and store few?",
    when=(facts.IS_OWN >= 1) & (facts.SORTING >= 20) & (facts.STORED_PART < 25),
    clause=lambda k: Text(
        "{sorting} of its instructions sort (they compare numbers and exchange them), and what it "
        "stores has {stored} of the bytes that it loads",
        sorting=k.number(facts.SORTING),
        stored=k.number(facts.STORED_PART),
    ),
    symptom=Text("sorts all and stores few"),
    remedy=Text("Without the sort"),
    action=Text(
        "Search for what is used instead of sorting all: the largest k by k maxima (tl.max, and "
        "again without it), tl.topk or a radix select; a median by selection; ranks by counting. A "
        "sort takes log2(n)^2 / 2 passes over all."
    ),
    advice=Text("look for the few largest numbers instead of sorting all of them"),
    estimate="What is left is what its bytes and FLOPs need at 80 % of their roofs.",
    disproof=Text(
        "With maxima in place of the sort it takes as long, or all of the order is used."
    ),
    source=Text("prof: a fifth of the instructions, a quarter of the bytes"),
    unloads=dict.fromkeys(("issue", "lsu", "alu", "xu"), NONE),
    attainable=0.8,
    attainable_source="as of `few_blocks`",
    bounds=("issue", "alu", "latency", "l1"),
)
WORK_OF_CODE = ("issue", "lsu", "alu", "xu", "fp16", "fp32", "l1", "l2")
"""What instructions and their accesses on the chip keep busy; DRAM too where a row says so."""


def of_code(key: str, row: Mapping[str, Any]) -> Rule:
    """Return a rule about what the code of a kernel tells, of a row of code.yaml."""
    fact, remaining = facts.OF_CODE[row["fact"]], facts.OF_CODE.get(row.get("left", ""))
    of_memory = "time" in row
    unloaded = (*WORK_OF_CODE, *row.get("also", ()))
    words: dict[str, Any] = {name: message(row[name]) for name in WORDS}
    return Rule(
        key=key,
        in_code=True,
        question=row["question"],
        estimate=row["estimate"],
        when=(facts.IS_OWN >= 1) & (fact >= row["at"]) & (facts.TENSOR_ACTIVE < 5).or_unknown(),
        clause=lambda k: message(row["clause"], part=k.number(fact)),
        time=facts.SECTOR_TIME if of_memory else None,
        remaining=remaining,
        unloads={} if of_memory else dict.fromkeys(unloaded, remaining or NONE),
        attainable=1.0 if remaining else 0.8,
        attainable_source="" if remaining else "as of `few_blocks`",
        remedy=message(row["without"]),
        **words,
    )


WORDS = ("symptom", "action", "advice", "disproof", "source")
message: type[Text] = Text
OF_CODE = tuple(
    of_code(key, row)
    for key, row in packaged_yaml("nsight_prof.reports.findings.kernels", "code.yaml").items()
)
"""Rules about what loops of a kernel repeat, by its instructions."""
SLOW_FUNCTIONS = replace(
    EXACT_MATH,
    key="slow_functions",
    question="Do functions such as sin and pow take most of a kernel's instructions?",
    when=(facts.IS_OWN >= 1)
    & (facts.OF_CODE["functions"] >= 30)
    & (facts.TENSOR_ACTIVE < 5).or_unknown()
    & ((facts.ISSUE_ACTIVE >= 40) | (facts.EXECUTION_WAITS >= 30)),
    clause=lambda k: Text(
        "{part} of its instructions are in lines that call functions such as sinf and powf, each "
        "of them tens of instructions (and local memory for large angles)",
        part=k.number(facts.OF_CODE["functions"]),
    ),
    symptom=Text("spends its instructions on functions such as sin and pow"),
    remedy=Text("With a table, or cheaper functions"),
    action=Text(
        "Compute what repeats once: outside of the loop, or in a table that kernels load (angles, "
        "windows). Multiply in place of pow with a whole exponent (x * x), take sincosf, or where "
        "last bits do not matter __sinf, __powf, __logf (-use_fast_math)."
    ),
    advice=Text("let it compute costly functions once and keep the results"),
    estimate="Of the time of full issue slots, else of the stalls for instructions and pipes, nine "
    "tenths of the instructions in these lines go: 3 are left of 30 or more for each call.",
    disproof=Text("With __sinf or __powf, or a constant in their place, it takes as long."),
    source=Text("prof: text of the lines; three tenths of the instructions"),
    unless=(*(rule.key for rule in OF_CODE), DOUBLE_PRECISION.key),
    remaining=facts.OF_CODE["functions_left"],
    unloads=dict.fromkeys(
        ("issue", "alu", "fp32", "xu", "lsu", "l1"), facts.OF_CODE["functions_left"]
    ),
)
