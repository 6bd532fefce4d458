"""All rules about kernels, in the order in which causes of equal gain are told."""

from __future__ import annotations

from nsight_prof.reports.findings.kernels import instructions, matrix, memory, occupancy, waits

RULES = (
    matrix.TENSOR_IDLE,
    matrix.MISALIGNED,
    matrix.ATTENTION_MASK,
    matrix.UNPIPELINED,
    occupancy.SMALL_GRID,
    memory.HOST_MEMORY,
    memory.SCATTERED,
    memory.UNCOALESCED_LOADS,
    memory.UNCOALESCED_STORES,
    memory.UNCOALESCED,
    memory.NARROW_ACCESSES,
    memory.REPEATED_LOADS,
    memory.BANK_CONFLICTS,
    memory.CONSTANT_LOADS,
    memory.ATOMICS,
    instructions.EARLY_RETURNS,
    instructions.MASKED_WORK,
    instructions.SORTED_FOR_FEW,
    *instructions.OF_CODE,
    instructions.DOUBLE_PRECISION,
    instructions.NARROW_BLOCKS,
    instructions.DIVERGENCE,
    instructions.EXACT_MATH,
    instructions.SLOW_FUNCTIONS,
    memory.LOCAL_SPILLS,
    instructions.IDLE_LANES,
    instructions.UNFUSED_FMA,
    memory.L2_THRASHING,
    occupancy.TAIL,
    occupancy.IMBALANCE,
    occupancy.FEW_BLOCKS,
    occupancy.ACHIEVED_OCCUPANCY,
    occupancy.SHORT_BLOCKS,
    occupancy.SHARED_LIMITED,
    occupancy.REGISTER_LIMITED,
    occupancy.BLOCK_LIMITED,
    occupancy.WARPS_LIMITED,
    occupancy.BARRIER_LIMITED,
    waits.LATENCY,
)
BY_KEY = {rule.key: rule for rule in RULES}
