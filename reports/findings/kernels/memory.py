"""Traffic that a kernel could save: uncoalesced accesses, bank conflicts, spills, re-reads."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.fact import Fact
from nsight_prof.reports.findings.kernels.rule import NONE, Kernel, Rule
from nsight_prof.reports.page.values import Number, Text

SECTOR_BYTES, ON_CHIP = 32, ("lsu", "l1", "l2")
CHAINED = 60.0
"""Per cent of what one address can take from which on atomics queue there."""
FLOATS = 40.0
"""Per cent of instructions from which on floats are the work: a product by hand loads for each."""
LITTLE = 5.0
"""Per cent of the traffic of L1 below which loads of single threads decide nothing, beside tiles
that TMA or asynchronous copies fetch and that the efficiency of loads says nothing of."""


def _bytes(kernel: Kernel, efficiency: Fact) -> Number:
    """Return how many bytes of a sector are used."""
    return kernel.number(efficiency, SECTOR_BYTES / 100, "").by(
        Text("{n} x {part}", n=SECTOR_BYTES, part=kernel.number(efficiency).at_digits(4))
    )


UNCOALESCED_LOADS = Rule(
    key="uncoalesced_loads",
    in_code=True,
    by_inputs=True,
    question="Do the threads of a warp load neighbouring addresses?",
    when=(facts.LOAD_EFFICIENCY < 80)
    & (facts.NEEDLESS_LOADS >= 10).or_unknown()
    & (facts.DRAM_WASTE >= 10).or_unknown()
    & (facts.THROUGH_REGISTERS >= LITTLE).or_unknown()
    & (facts.SECTOR_TIME >= 20)
    & ((facts.ALL_MEMORY_WAITS > 30) | (facts.LEVEL_RULES >= 20)),
    clause=lambda k: Text(
        "its global loads are uncoalesced: they use {bytes} of the 32 bytes of each sector "
        "on average ({efficiency})",
        bytes=_bytes(k, facts.LOAD_EFFICIENCY),
        efficiency=k.number(facts.LOAD_EFFICIENCY),
    ),
    symptom=Text("reads memory in scattered pieces"),
    remedy=Text("With neighbouring loads"),
    action=Text(
        "Let neighbouring threads access neighbouring addresses: change the layout or the order of "
        "the loop, or stage a tile through shared memory."
    ),
    advice=Text("let it read neighbouring data together; now most of what it moves is thrown away"),
    estimate="Of the time of a saturated memory level, else of the stalls for memory, only the "
    "useful sectors of loads are left. DRAM moves no more than the threads ask for.",
    disproof=Text(
        "The same kernel with all threads at neighbouring addresses (wrong results, same amount) "
        "is no faster."
    ),
    source=Text("prof; Nsight Compute rule UncoalescedGlobal names everything below 100 %"),
    confidence="high",
    time=facts.SECTOR_TIME,
    remaining=facts.LOAD_LEFT,
    unloads={**dict.fromkeys(ON_CHIP, facts.LOAD_LEFT), "dram": facts.DRAM_USEFUL},
    contradicted_by=((facts.EXECUTION_WAITS > 50),),
)
UNCOALESCED_STORES = replace(
    UNCOALESCED_LOADS,
    key="uncoalesced_stores",
    question="Do the threads of a warp store to neighbouring addresses?",
    when=(facts.STORE_EFFICIENCY < 80)
    & (facts.DRAM_WASTE >= 10).or_unknown()
    & (facts.SECTOR_TIME >= 20)
    & ((facts.ALL_MEMORY_WAITS > 30) | (facts.LEVEL_RULES >= 20)),
    clause=lambda k: Text(
        "its global stores are uncoalesced: they fill {bytes} of the 32 bytes of each "
        "sector on average ({efficiency})",
        bytes=_bytes(k, facts.STORE_EFFICIENCY),
        efficiency=k.number(facts.STORE_EFFICIENCY),
    ),
    symptom=Text("writes memory in scattered pieces"),
    remedy=Text("With neighbouring stores"),
    action=Text(
        "Let neighbouring threads store to neighbouring addresses: an array for each field "
        "instead of records, or a tile in shared memory that is written row by row."
    ),
    advice=Text(
        "let it write neighbouring data together; now most of what it moves is thrown away"
    ),
    estimate="Of the time of a saturated memory level, else of the stalls for memory, only the "
    "useful sectors of stores are left. DRAM moves no more than the threads send.",
    remaining=facts.STORE_LEFT,
    unloads={**dict.fromkeys(ON_CHIP, facts.STORE_LEFT), "dram": facts.DRAM_USEFUL},
)
SCATTERED = replace(
    UNCOALESCED_LOADS,
    key="uncoalesced_accesses",
    question="Are both loads and stores scattered?",
    when=UNCOALESCED_LOADS.when & UNCOALESCED_STORES.when,
    clause=lambda k: Text(
        "its global loads and stores are uncoalesced: of the 32 bytes of each sector they use "
        "{loads} and {stores} on average",
        loads=_bytes(k, facts.LOAD_EFFICIENCY),
        stores=_bytes(k, facts.STORE_EFFICIENCY),
    ),
    symptom=Text("reads and writes memory in scattered pieces"),
    remedy=Text("With neighbouring accesses"),
    advice=Text(
        "let it read and write neighbouring data together; now most of what it moves is thrown away"
    ),
    estimate="Of the time of a saturated memory level, else of the stalls for memory, only the "
    "useful sectors are left. DRAM moves no more than the threads ask for.",
    remaining=facts.SECTORS_LEFT,
    unloads={**dict.fromkeys(ON_CHIP, facts.SECTORS_LEFT), "dram": facts.DRAM_USEFUL},
)
UNCOALESCED_LOADS = replace(UNCOALESCED_LOADS, unless=(SCATTERED.key,))
UNCOALESCED_STORES = replace(UNCOALESCED_STORES, unless=(SCATTERED.key,))
HOST_MEMORY = Rule(
    key="host_memory",
    in_code=True,
    by_inputs=True,
    question="Does a kernel read memory of the host?",
    when=(facts.ELSEWHERE >= 15)
    & (facts.ELSEWHERE_RATE >= 2)
    & (facts.ELSEWHERE_RATE <= 70)
    & (facts.LEVEL_BUSY < 20)
    & (facts.ALL_MEMORY_WAITS > 50),
    clause=lambda k: Text(
        "{part} of the bytes of L2 came neither from L2 nor from DRAM, at {rate}: from memory of "
        "the host over PCIe (mapped, zero-copy), or of another GPU",
        part=k.number(facts.ELSEWHERE),
        rate=k.number(facts.ELSEWHERE_RATE, 1e9, "B/s"),
    ),
    symptom=Text("reads memory of the host over PCIe"),
    remedy=Text("With the data in the GPU's own memory"),
    action=Text(
        "Copy what it reads again and again to the GPU once (cudaMemcpyAsync from pinned memory), "
        "before the loop; memory of the host that is mapped (cudaHostAllocMapped, zero-copy) pays "
        "only for what is read once."
    ),
    advice=Text("keep what it reads in the GPU's own memory instead of the computer's"),
    estimate="Of its time is left what DRAM needs for all bytes.",
    disproof=Text("With a copy of the data in the GPU's memory the kernel takes as long."),
    source=Text("prof: what neither L2 nor DRAM delivered, at no more than PCIe moves"),
    remaining=facts.ELSEWHERE_LEFT,
    bounds=("latency",),
)
UNCOALESCED = replace(
    SCATTERED,
    key="uncoalesced",
    question="Are loads or stores scattered, where the capture does not hold them apart?",
    when=facts.LOAD_EFFICIENCY.unknown
    & facts.STORE_EFFICIENCY.unknown
    & facts.LOADED_A_THREAD.unknown
    & (facts.SECTOR_EFFICIENCY < 80)
    & (facts.SECTOR_TIME >= 20)
    & ((facts.ALL_MEMORY_WAITS > 30) | (facts.LEVEL_RULES >= 20)),
    clause=lambda k: Text(
        "its global loads or stores are uncoalesced: they use {bytes} of the 32 bytes of "
        "each sector on average ({efficiency})",
        bytes=_bytes(k, facts.SECTOR_EFFICIENCY),
        efficiency=k.number(facts.SECTOR_EFFICIENCY),
    ),
    symptom=Text("accesses memory in scattered pieces"),
    estimate="Of the time of a saturated memory level, else of the stalls for memory, only the "
    "useful sectors are left. DRAM moves as much as now.",
    unloads=dict.fromkeys(ON_CHIP, facts.SECTORS_LEFT),
)
NARROW_ACCESSES = Rule(
    key="narrow_accesses",
    in_code=True,
    question="Do threads move enough with each access?",
    when=(facts.LOADED_A_THREAD <= 2)
    & (facts.LOADED_A_THREAD > 0)
    & (facts.LOAD_EFFICIENCY >= 80)
    & (facts.ALL_MEMORY_WAITS > 30)
    & (facts.DRAM_USE < 60),
    clause=lambda k: Text(
        "each of its threads loads no more than {bytes} bytes, so that an access of a warp moves a "
        "sector or two where it could move 16",
        bytes=k.number(facts.LOADED_A_THREAD, unit=""),
    ),
    symptom=Text("moves too little with each access"),
    remedy=Text("With vectorised accesses of 16 bytes"),
    action=Text(
        "Let each thread load and store 16 bytes at a time (uint4, float4, vectorised loads) and "
        "work on all the numbers in them."
    ),
    advice=Text("let it move more data with each access"),
    estimate="Nothing of the wait for memory is left, but what DRAM and L2 need for the bytes; of "
    "the accesses those that 16 bytes each leave.",
    disproof=Text("The same kernel with 16 bytes per thread takes as long."),
    source=Text("prof; CUDA C++ Best Practices Guide: vectorised accesses use bandwidth better"),
    unloads={
        "lsu": facts.WIDE_LEFT,
        "l1": facts.WIDE_LEFT,
        "issue": facts.WIDE_LEFT,
        "alu": facts.WIDE_LEFT,
    },
    bounds=("latency", "l1", "issue", "alu", "l2"),
)
BANK_CONFLICTS = Rule(
    key="bank_conflicts",
    in_code=True,
    question="Do the threads of a warp meet in a bank of shared memory?",
    when=(facts.SHARED_TIME >= 20)
    & (
        ((facts.SHARED_CONFLICTS >= 10) & (facts.SHARED_EFFICIENCY < 90).or_unknown())
        | (facts.SHARED_CONFLICTS.unknown & (facts.SHARED_EFFICIENCY < 90))
    ),
    clause=lambda k: Text(
        "its accesses to shared memory meet in the same banks: {conflicts} of their passes "
        "are repeats",
        conflicts=Number(
            100 - k.facts["conflicts_left"], "%", k.number(facts.SHARED_CONFLICTS).refs
        ),
    ),
    symptom=Text("waits for shared memory"),
    remedy=Text("Without bank conflicts"),
    action=Text(
        "Pad or swizzle the shared memory layout, so that the threads of a warp reach 32 "
        "different banks. In Triton, whose compiler lays it out, store operands of tl.dot along "
        "the inner dimension of the product (numbers of 32 or 8 bits need that)."
    ),
    advice=Text("arrange its on-chip data so that all of it can be read at once"),
    estimate="Of the time in which a saturated load/store pipe works, else warps wait for shared "
    "memory, the part of the conflicts goes.",
    disproof=Text(
        "A pitch of one word more (padding) leaves conflicts and time as they are: then "
        "few threads at work make the wavefronts narrow."
    ),
    source=Text("Nsight Compute rule SharedMemoryConflicts: 10 % or more of the wavefronts"),
    confidence="high",
    time=facts.SHARED_TIME,
    remaining=facts.CONFLICTS_LEFT,
    unloads={"lsu": facts.CONFLICTS_LEFT, "l1": facts.CONFLICTS_LEFT},
    bounds=("l1", "l2", "latency", "issue", "alu", "tensor", "fp16", "fp32", "fp64", "xu"),
)
CONSTANT_LOADS = Rule(
    key="constant_loads",
    in_code=True,
    question="Do the threads of a warp read different entries of constant memory?",
    when=(facts.CONSTANT_WAITS >= 30) & (facts.LEVEL_BUSY < 60),
    clause=lambda k: Text(
        "its warps stand at loads of constant memory by an index of the thread for {part} of their "
        "time: that memory serves one address at a time, so that different ones of a warp come one "
        "after another",
        part=k.number(facts.CONSTANT_WAITS),
    ),
    symptom=Text("reads different entries of constant memory"),
    remedy=Text("With the table in shared or global memory"),
    action=Text(
        "Put a table that threads index differently into shared memory, or read it from global "
        "memory (const __restrict__, __ldg), which serves 32 addresses at once; constant memory is "
        "for what all threads of a warp read alike."
    ),
    advice=Text("keep its table in a memory that all threads can read at the same time"),
    estimate="The waits at these loads go.",
    disproof=Text(
        "With the same index in all threads of a warp (wrong results) it takes as long, or with "
        "the table in shared memory."
    ),
    source=Text("CUDA C++ Programming Guide: requests to constant memory are split by address"),
    time=facts.CONSTANT_WAITS,
    bounds=("latency", "issue", "l1"),
)
LOCAL_SPILLS = Rule(
    key="local_spills",
    in_code=True,
    question="Do registers spill to local memory?",
    when=(facts.LOCAL_SHARE >= 10) & (facts.LOCAL_TIME >= 20),
    clause=lambda k: Text(
        "local memory (spilled registers, local arrays) is {part} of its traffic in L1",
        part=k.number(facts.LOCAL_SHARE),
    ),
    unless=("slow_functions",),
    symptom=Text("moves spilled registers"),
    remedy=Text("Without local memory"),
    action=Text(
        "Give threads more registers (launch bounds, -maxrregcount), keep less state per "
        "thread, or unroll loops so that indices of local arrays are constants. In Triton take "
        "smaller tiles (BLOCK), or more warps for each (num_warps)."
    ),
    advice=Text(
        "let each thread keep less data at a time, so that it need not be stored and fetched again"
    ),
    estimate="Of the time of a saturated memory level, or of the stalls for loads, the part of "
    "local memory in the traffic of L1 goes.",
    disproof=Text(
        "The compiler reports no spills and no stack frame (-Xptxas -v), or the kernel is "
        "as slow with all the registers it asks for."
    ),
    source=Text("prof: a tenth of the traffic of L1"),
    time=facts.LOCAL_TIME,
    remaining=facts.SPILLS_LEFT,
    unloads={
        "lsu": facts.SPILLS_LEFT,
        "l1": facts.SPILLS_LEFT,
        "l2": facts.SPILLS_LEFT_L2,
        "dram": facts.DRAM_USEFUL,
        "issue": facts.SPILLS_LEFT,
    },
)
ATOMICS = Rule(
    key="atomics",
    in_code=True,
    question="Do atomic operations queue for the same addresses?",
    when=(facts.ATOMICS_A_WARP >= 0.5)
    & ((facts.IS_OWN >= 1) | (facts.IS_ATTENTION < 1))  # gradients of a library's attention add up
    & (
        ((facts.ATOMIC_CHAIN >= CHAINED) & (facts.LEVEL_BUSY < 60))
        | ((facts.ALL_MEMORY_WAITS >= 50) & (facts.LEVEL_BUSY < 40) & (facts.ATOMIC_PART >= 10))
    ),
    clause=lambda k: Text(
        "it does {atomics} atomic operations per warp, which wait for each other at the "
        "same addresses",
        atomics=k.number(facts.ATOMICS_A_WARP),
    ),
    symptom=Text("waits for atomic operations"),
    remedy=Text("With few atomics"),
    action=Text(
        "Add within a warp (shuffles) and a block (shared memory) first, and do one atomic "
        "operation per block, or none with a second pass."
    ),
    advice=Text("let it add up on the chip first, and update shared totals rarely"),
    estimate="The time of the atomics goes: three cycles each on one address where these fill most "
    "of it, else the stalls for memory.",
    disproof=Text(
        "The same kernel with its atomics spread over many addresses (wrong results, same "
        "amount) is no faster."
    ),
    source=Text(
        "prof; the atomic unit is part of the breakdown of L2 in Nsight Compute's SpeedOfLight"
    ),
    time=facts.ATOMIC_TIME,
    unloads={"lsu": NONE},
)
L2_THRASHING = Rule(
    key="l2_thrashing",
    question="Does data come from DRAM more often than the work needs?",
    when=(facts.REREAD >= 1.3) & (facts.DRAM_USE >= 20),
    clause=lambda k: Text(
        "it moves at least {times} times the bytes that its work needs through DRAM: data leaves "
        "the L2 cache before it is used again",
        times=k.number(facts.REREAD),
    ),
    symptom=Text("reads the same data from memory again and again"),
    remedy=Text("With each byte moved once"),
    action=Text(
        "Change the order of the work so that what is used again fits in L2: tiles or "
        "chunks first, passes over them inside (block swizzling, a grouped order of the tiles of "
        "a GEMM)."
    ),
    advice=Text("work through the data in portions that fit the cache"),
    estimate="Each byte crosses DRAM once: so much of the time of saturated DRAM, else of the "
    "stalls for memory, is left. L2, the load/store pipe and the others need what they "
    "need now.",
    disproof=Text(
        "The bytes that the program says it needs are wrong, or the same work in chunks of "
        "less than the L2 moves as many bytes."
    ),
    source=Text("prof: three tenths more than the work needs"),
    confidence="high",
    time=facts.DRAM_TIME,
    remaining=facts.REREAD_LEFT,
    unloads={"dram": facts.REREAD_LEFT},
)
REPEATED_LOADS = Rule(
    key="repeated_loads",
    in_code=True,
    question="Do threads fetch the same data again and again, instead of sharing it on the chip?",
    when=(facts.IS_OWN >= 1)
    & (facts.LEVEL_PIPE >= 60)
    & (facts.LOADS_AGAIN >= 32)
    & ((facts.FLOPS_A_BYTE >= 0.2) | (facts.TENSOR_ACTIVE >= 5))
    & (facts.ARITHMETIC_USE < 25)
    & (facts.OF_CODE["float"] < FLOATS)
    & (facts.SHARED_CONFLICTS < 10).or_unknown(),
    clause=lambda k: Text(
        "it moves {times} bytes through L1 for each that it needs from memory or stores: data is "
        "loaded again for each use instead of being re-used in a tile",
        times=k.number(facts.LOADS_AGAIN),
    ),
    symptom=Text("loads the same data again and again"),
    remedy=Text("With tiles that re-use what is loaded"),
    action=Text(
        "Re-use data on the chip: larger tiles in shared memory (64 x 64 or more for a block) and "
        "several results for each thread in registers; for a product of matrices take cuBLAS, or "
        "larger tiles of tl.dot."
    ),
    advice=Text("let it use data again while it is on the chip"),
    estimate="What is left is what its FLOPs and DRAM need at half of their roofs; the traffic of "
    "L1 and L2 and the instructions for it go.",
    disproof=Text("With tiles twice as large on each side it takes as long."),
    source=Text("prof: a tile of 32 x 32 loads each number 32 times less than one thread alone"),
    unloads=dict.fromkeys(("lsu", "l1", "l2", "issue", "alu"), NONE),
    attainable=0.5,
    attainable_source="products with tiles by hand reached 36 to 78 % of the roof of their pipe in "
    "recorded runs of an H200",
    bounds=("l1", "l2", "latency", "issue"),
)
