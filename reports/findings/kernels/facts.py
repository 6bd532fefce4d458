"""The facts that rules of kernels look at; reports.findings.kernels.measure computes them.

The rules of NVIDIA about stalls and issue slots look at the cycles in which an SM has a warp
(`ISSUE_ACTIVE`); what bounds a kernel is a share of all cycles (parsers/build/bound.py).
"""

from __future__ import annotations

from nsight_prof.parsers.cells import text
from nsight_prof.reports.findings.kernels.fact import Fact
from nsight_prof.reports.page.values import Text, Verbatim

NO_SMS = Text("the number of SMs is not known")
GRID_ON_SMS = ("kernels.grid", "gpus.sm_count")
LEVELS = ("dram_pct", "l2_pct", "l1_pct")
OCCUPANCIES = ("theoretical_occupancy_pct", "achieved_occupancy_pct")
SECTORS = (
    *("global_load_bytes", "global_load_efficiency_pct"),
    *("global_store_bytes", "global_store_efficiency_pct"),
)


def _column(name: str, label: Text, column: str, unit: str = "%") -> Fact:
    """Return the fact that is a column of table `counters` itself."""
    return Fact(name, label, unit=unit, of=(column,), is_column=True)


def _percent(name: str, label: Text, *of: str, also: tuple[str, ...] = ()) -> Fact:
    """Return a fact in per cent that is computed from columns."""
    return Fact(name, label, unit="%", of=of, also=also)


BLOCKS = Fact("blocks", Text("blocks"), unit="count", also=("kernels.grid",))
BLOCKS_MISSING = Fact(
    "blocks_missing", Text("SMs without a block"), unit="%", also=GRID_ON_SMS, missing=NO_SMS
)
BLOCKS_A_SM = Fact("blocks_a_sm", Text("blocks per SM"), also=GRID_ON_SMS, missing=NO_SMS)
WAVES = _column("waves", Text("waves"), "waves", unit="")
LIFETIME = Fact(
    "lifetime",
    Text("time from start to end of a block"),
    unit="ns",
    of=("waves", "duration_ns", *OCCUPANCIES),
)
TAIL_LOSS = _percent(
    "tail_loss",
    Text("idle SM slots in the last wave (tail effect)"),
    "waves",
    also=("kernels.grid", "gpus.sm_count", "issue_active_pct"),
)
THREADS = Fact("threads", Text("threads of a block"), unit="count", also=("kernels.block",))
BLOCK_LEFT = Fact("block_left")
THEORETICAL_OCCUPANCY = _column(
    "theoretical_occupancy", Text("theoretical occupancy"), "theoretical_occupancy_pct"
)
ACHIEVED_OCCUPANCY = _column(
    "achieved_occupancy", Text("achieved occupancy"), "achieved_occupancy_pct"
)
OCCUPANCY_GAP = Fact(
    "occupancy_gap", Text("theoretical minus achieved occupancy"), unit="points", of=OCCUPANCIES
)
OF_THEORETICAL = _percent("warps_held", Text("achieved over theoretical occupancy"), *OCCUPANCIES)
READY_WARPS = Fact(
    "ready_warps", Text("warps that are ready for each that issues"), also=("stalls.share",)
)
HIDDEN_TIME = _percent("hidden_time", Text("stalls that more warps hide"), "top_stall")
SM_BALANCE = _column("sm_balance", Text("active cycles, mean SM over busiest"), "sm_balance_pct")
UNEVEN_LOSS = _percent(
    "uneven_loss",
    Text("time that the mean SM waits for the busiest, or places for blocks are empty"),
    "sm_balance_pct",
    "sm_active_pct",
    also=("waves", *OCCUPANCIES),
)
BALANCE_ALONE = _percent(
    "balance_alone",
    Text("of it not explained by the last wave"),
    "sm_balance_pct",
    "sm_active_pct",
    also=("waves", "kernels.grid", "gpus.sm_count"),
)
LOAD_EFFICIENCY = _column(
    "load_efficiency",
    Text("useful bytes of the sectors that loads touch"),
    "global_load_efficiency_pct",
)
STORE_EFFICIENCY = _column(
    "store_efficiency",
    Text("useful bytes of the sectors that stores touch"),
    "global_store_efficiency_pct",
)
SECTOR_EFFICIENCY = _column(
    "sector_efficiency",
    Text("useful bytes of the sectors that loads and stores touch"),
    "global_sector_efficiency_pct",
)
NEEDLESS_LOADS = Fact(
    "needless_loads",
    Text("sectors of loads that contiguous ones would not need"),
    unit="%",
    also=("source_instructions.excessive_sectors",),
)
"""None where all threads of a warp ask for one number: it is alone in its sector."""
LOAD_LEFT = _percent("load_left", Text("sectors left with whole loads"), *SECTORS)
STORE_LEFT = _percent("store_left", Text("sectors left with whole stores"), *SECTORS)
SECTOR_TIME = _percent(
    "sector_time",
    Text("time of a saturated memory level, else the stalls for memory"),
    *LEVELS,
    also=("stalls.share",),
)
DRAM_TIME = _percent(
    "dram_time",
    Text("time of saturated DRAM, else the stalls for memory"),
    "dram_pct",
    also=("stalls.share",),
)
LEVEL_BUSY = _percent("level_busy", Text("busiest of DRAM, L2 and L1"), *LEVELS)
LEVEL_RULES = _percent(
    "level_rules",
    Text("use of L1, L2 or DRAM where it is what the kernel uses most"),
    *LEVELS,
    also=("tensor_pct",),
)
SHARED_CONFLICTS = _column(
    "shared_conflicts", Text("bank conflicts over shared memory wavefronts"), "shared_conflict_pct"
)
SHARED_EFFICIENCY = _column(
    "shared_efficiency", Text("shared memory wavefront use"), "shared_wavefront_efficiency_pct"
)
SHARED_TIME = _percent(
    "shared_time",
    Text("time of a saturated load/store pipe, else the stalls for shared memory"),
    "lsu_pct",
    also=("stalls.share",),
)
CONFLICTS_LEFT = _percent(
    "conflicts_left", Text("wavefronts left without conflicts"), "shared_conflict_pct"
)
LOCAL_SHARE = _percent(
    "local_share", Text("local memory in the traffic of L1"), "local_bytes", "l1_bytes"
)
LOCAL_TIME = _percent(
    "local_time",
    Text("saturated memory level, or stalls for loads of global and local memory"),
    "l1_pct",
    "top_stall",
    also=("dram_pct", "l2_pct"),
)
ATOMICS_A_WARP = Fact(
    "atomics_a_warp",
    Text("atomic instructions per warp"),
    of=("atomic_instructions",),
    also=("kernels.grid", "kernels.block"),
)
ATOMIC_CHAIN = _percent(
    "atomic_chain",
    Text("busiest atomic unit of L2, over the third that a single address can fill"),
    "atomic_pct",
)
ATOMIC_TIME = _percent(
    "atomic_time",
    Text("time of atomics on one address, or stalls for memory"),
    "atomic_pct",
    also=("stalls.share",),
)
ATOMIC_PART = _percent(
    "atomic_part",
    Text("atomics in the global accesses of threads"),
    "atomic_instructions",
    "global_load_bytes",
    "global_store_bytes",
)
ALL_MEMORY_WAITS = _percent("all_memory_waits", Text("all stalls for memory"), "top_stall")
THREADS_PER_INSTRUCTION = _column(
    "threads_per_instruction",
    Text("active threads per instruction"),
    "threads_per_instruction",
    unit="",
)
ISSUE_ACTIVE = _column(
    "issue_active", Text("issue slots busy, of the active cycles"), "issue_active_pct"
)
WARP_TIME = _percent(
    "warp_time",
    Text("time of full issue slots, else the stalls for instructions, pipes and their queues"),
    "issue_active_pct",
    also=("stalls.share",),
)
EXECUTION_WAITS = _percent(
    "execution_waits", Text("stalls for instructions and pipes"), "top_stall"
)
FUSABLE = _column("fusable", Text("FP instructions that fusing would save"), "fusable_pct")
PAIRS = Fact(
    "pairs",
    Text("FP instructions that add a product"),
    unit="%",
    also=("source_instructions.instructions",),
)
FP_PIPE = _percent("fp_pipe", Text("FP pipe busy"), "fusable_pct", also=("roofs.value",))
FP_TIME = _percent(
    "fp_time",
    Text(
        "time of a saturated FP pipe, else the stalls for instructions and pipes, at most its use"
    ),
    "fusable_pct",
    also=("roofs.value", "stalls.share"),
)
ARITHMETIC_USE = _percent(
    "arithmetic_use", Text("busiest pipe for numbers"), "flop_throughput", also=("roofs.value",)
)
LEVEL_PIPE = _percent(
    "level_pipe", Text("busiest of L1, L2 and the load/store pipe"), "l1_pct", "l2_pct", "lsu_pct"
)
LOADS_AGAIN = Fact(
    "loads_again",
    Text("bytes through L1 for each byte that DRAM delivers or the kernel stores"),
    of=("l1_bytes", "dram_bytes", "global_store_bytes"),
)
FLOPS_A_BYTE = Fact(
    "flops_a_byte", Text("FLOPs for each byte through L1"), of=("flops", "l1_bytes")
)
THROUGH_REGISTERS = _percent(
    "through_registers",
    Text("loads through registers in the traffic of L1"),
    "global_load_bytes",
    "l1_bytes",
)
LOAD_WAITS = _percent(
    "load_waits", Text("stalls for loads, and for other warps that wait for them"), "top_stall"
)
CONSTANT_WAITS = Fact(
    "constant_waits",
    Text("samples of warps at loads of constants by an index of the thread"),
    unit="%",
    also=("source_instructions.samples",),
)
PASSING = Fact(
    "passing",
    Text("samples of warps beyond a return at which nine of ten end"),
    unit="%",
    also=("source_instructions.samples",),
)
EXACT_MATH = Fact(
    "exact_math",
    Text("instructions of divisions, remainders and square roots beyond those of cheaper ones"),
    unit="%",
    also=("source_instructions.instructions",),
)
EXACT_LEFT = Fact("exact_left")
SORTING = Fact(
    "sorting",
    Text("instructions that compare and exchange, in a sort within a block"),
    unit="%",
    also=("source_instructions.instructions",),
)
STORED_PART = _percent(
    "stored_part", Text("bytes stored for those loaded"), "global_store_bytes", "global_load_bytes"
)
UNMASKED = Fact(
    "unmasked",
    Text("sectors that guarded loads, and stores, touch of those that whole warps would"),
    unit="%",
    also=("source_instructions.sectors",),
)
OF_CODE = {
    **{
        name: Fact(name, label, unit="%", also=("source_instructions.instructions",))
        for name, label in {
            "fixed": Text("sectors of global memory that loops touch at addresses that stay"),
            "halves": Text("instructions on a single half number"),
            "exchanged": Text("exchanges between threads in each pass of a loop"),
            "drawn": Text("instructions that draw random numbers"),
            "triangle": Text("instructions in a loop up to the index of the thread"),
            "heap": Text("instructions of the heap of the device"),
            "calls": Text("instructions that calls through pointers take"),
            "lookups": Text("instructions that look bytes up in shared memory"),
            "sides": Text("instructions in functions of whose results half are dropped"),
            "functions": Text("instructions of functions such as sinf and powf"),
            "tree": Text("instructions in levels of a tree, with a barrier at each"),
            "again": Text("sectors that another line has loaded from DRAM before"),
            "same": Text("sectors that other blocks load from DRAM as well"),
            "float": Text("instructions that compute with floats"),
        }.items()
    },
    **{
        f"{name}_left": Fact(f"{name}_left")
        for name in (
            "fixed",
            "halves",
            "drawn",
            "calls",
            "lookups",
            "sides",
            "same",
            "functions",
            "again",
        )
    },
}
"""What the code of kernels tells that are no library's, by name."""
IS_OWN = Fact("is_own")
IS_ATTENTION = Fact("is_attention")
UNMASKED_LEFT = Fact("unmasked_left")
HALF_LEFT = Fact("half_left")
REREAD = Fact(
    "reread",
    Text("DRAM bytes over the bytes that the work needs"),
    of=("dram_bytes",),
    missing=Text(
        "neither the program nor the torch profiler says how many bytes the work needs, and it "
        "reads less than all memory in use"
    ),
)
REREAD_LEFT = _percent("reread_left", Text("DRAM bytes left with each moved once"), "dram_bytes")
DRAM_USE = Fact("dram_use", Text("DRAM busy"), unit="%", of=("dram_pct",), is_column=True)
LOADED_A_THREAD = Fact(
    "loaded_a_thread",
    Text("bytes that a thread loads"),
    unit="B",
    of=("global_load_bytes",),
    also=("kernels.grid", "kernels.block"),
)
ELSEWHERE = _percent(
    "elsewhere",
    Text("bytes of L2 that it lacked and DRAM did not deliver"),
    "l2_bytes",
    "l2_hit_pct",
    "dram_read_bytes",
)
ELSEWHERE_RATE = Fact(
    "elsewhere_rate",
    Text("rate of these bytes"),
    unit="GB/s",
    of=("l2_bytes", "l2_hit_pct", "dram_read_bytes", "duration_ns"),
)
ELSEWHERE_LEFT = _percent(
    "elsewhere_left", Text("time that DRAM needs for all bytes"), "dram_pct", "dram_bytes"
)
WIDE_LEFT = _percent(
    "wide_left",
    Text("accesses left with 16 bytes each"),
    "global_load_bytes",
    also=("kernels.grid", "kernels.block"),
)
DOUBLE_PART = _percent(
    "double_part",
    Text("FP64 in the FLOPs outside of the Tensor Cores"),
    "flops_fp64",
    "flops_fp32",
    "flops_fp16",
)
DOUBLE_PIPE = _percent("double_pipe", Text("FP64 pipe busy"), "flops_fp64", also=("roofs.value",))
DOUBLE_TIME = _percent(
    "double_time", Text("time for double precision"), "flops_fp64", also=("roofs.value",)
)
DOUBLE_LEFT = Fact(
    "double_left", Text("left of it in single precision"), unit="%", also=("roofs.value",)
)
IS_MATRIX = Fact("is_matrix")
TENSOR_ACTIVE = _percent("tensor_active", Text("Tensor pipe active"), "tensor_pct")
TENSOR_NEEDED = _percent(
    "tensor_needed",
    Text("time that the Tensor Cores would need"),
    "flop_throughput",
    also=("sm_clock_hz", "roofs.value"),
)
MISALIGNED = Fact("misaligned")
TENSOR_REACHED = _percent(
    "tensor_reached",
    Text("Tensor Core roof reached"),
    "flop_throughput",
    also=("sm_clock_hz", "roofs.value"),
)
TOP_STALL = Fact(
    "top_stall",
    Text("stall of the top reason"),
    unit="%",
    of=("top_stall",),
    is_column=True,
    detail=lambda row: Text("stall {stall}", stall=Verbatim(text(row["top_stall"]))),
)
DRAM_USEFUL = Fact("dram_useful")
DRAM_WASTE = Fact("dram_waste")
"""Per cent of the bytes of DRAM that no thread asked for, where DRAM limits the kernel; else all:
L1 and L2 merge scattered accesses, and what they merge costs no time of DRAM."""
SECTORS_LEFT = Fact("sectors_left")
SPILLS_LEFT = Fact("spills_left")
SPILLS_LEFT_L2 = Fact("spills_left_l2")
THREADS_LEFT = Fact("threads_left")
UNFUSED_LEFT = Fact("unfused_left")
