"""The arithmetic of the catalogue: tool metrics in base units to the columns of `counters`.

Every function is pure and works on pandas Series, row by row. Unknown (NaN) in, unknown out. The
catalogue (metrics.yaml) names these functions; `FORMULAS` is the list of what it may name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from functools import reduce

import numpy as np
import pandas as pd

Formula = Callable[..., pd.Series]

SECTOR_BYTES = 32.0
WAVEFRONT_BYTES = 128.0
WARP = 32.0
WIDEST_ACCESS = 16.0
# An idle Tensor pipe is this busy with constants at most: 0.017 % in a STREAM kernel (A100, ncu
# 2023.3). Elementwise kernels of torch reach 5 % (H200), so that more needs the operation counters.
IDLE_TENSOR_PCT = 0.1
# Constants keep the Tensor pipe busy for up to 5 % (elementwise kernels of torch); chains of FP16
# multiply-adds for 67 to 95 % (H200, ncu 2025.3.1).
CONSTANTS_TENSOR_PCT = 20.0
# Traffic below this share of a level's is not what a kernel is about: a ratio of it says nothing.
NEGLIGIBLE = 0.01


def same(value: pd.Series) -> pd.Series:
    """The tool's own value, unchanged."""
    return value


def add(*values: pd.Series) -> pd.Series:
    """Sum; unknown when one part is unknown."""
    return reduce(lambda total, value: total + value, values)


def add_positive(*values: pd.Series) -> pd.Series:
    """Sum of the parts that were collected; unknown when it is 0, as more may be missing."""
    total = add(*values)
    return total.where(total > 0)


def times_100(fraction: pd.Series) -> pd.Series:
    """Per cent of a fraction."""
    return fraction * 100.0


def positive(value: pd.Series) -> pd.Series:
    """A value that no kernel has at 0; where the tool prints 0, it is rounded and unknown."""
    return value.where(value > 0)


def ipc_to_issue_pct(per_cycle: pd.Series) -> pd.Series:
    """Per cent of the issue slots: instructions per cycle over the 4 schedulers of an SM.

    Every SM since Volta has 4, and each issues at most one instruction a cycle (CUDA C++
    Programming Guide, compute capabilities 7.x to 12.x).
    """
    return per_cycle / 4.0 * 100.0


def sectors_to_bytes(*sectors: pd.Series) -> pd.Series:
    """Bytes of L1 or L2 sectors, 32 B each (CUDA C++ Best Practices Guide, 10.2.1)."""
    return add(*sectors) * SECTOR_BYTES


def bytes_of_all_threads(thread_bytes: pd.Series, loads: pd.Series, stores: pd.Series) -> pd.Series:
    """Bytes of the 32 threads of each warp access, from those of one thread and the instructions.

    `sm__sass_data_bytes_mem_local` counts the bytes of one thread an access: 1168730112 beside
    1168730112 sectors of 32 B in L1, in a kernel that spills 4 B at a time. It also counted 67 MB
    in a cuBLAS kernel without a local access (H200, ncu 2025.3.1). No instructions are therefore no
    bytes, and more than 16 B per instruction (the widest access of a thread) are unknown. Threads
    that are off count too.
    """
    instructions = loads + stores
    plausible = thread_bytes.where(
        (thread_bytes > 0) & (thread_bytes <= WIDEST_ACCESS * instructions)
    )
    return (plausible * WARP).where(instructions != 0, 0.0).where(instructions.notna())


def bytes_beside_global(
    thread_bytes: pd.Series,
    loads: pd.Series,
    stores: pd.Series,
    all_bytes: pd.Series,
    global_loads: pd.Series,
    global_stores: pd.Series,
) -> pd.Series:
    """Bytes of local memory as `bytes_of_all_threads`, else what L1 moved beside global sectors.

    Where a thread indexes an array with data, the first counter holds more than a thread can move:
    70 B an instruction in a kernel with counts of 32 symbols (H200, ncu 2025.3.1). No instruction
    moves more than a sector for each thread.
    """
    rest = all_bytes - SECTOR_BYTES * (global_loads + global_stores)
    possible = (rest > 0) & (rest <= SECTOR_BYTES * WARP * (loads + stores))
    return bytes_of_all_threads(thread_bytes, loads, stores).fillna(rest.where(possible))


def none_at_all(count: pd.Series) -> pd.Series:
    """0 where nothing was counted; unknown elsewhere, where it does not tell how much there was."""
    return count.where(count == 0)


def rate_to_amount(rate: pd.Series, duration_ns: pd.Series) -> pd.Series:
    """Amount moved: a rate over the duration in ns."""
    return rate * duration_ns / 1e9


def cycles_to_ns(cycles: pd.Series, clock_hz: pd.Series) -> pd.Series:
    """Duration in ns of elapsed cycles at a mean clock (as the NERSC roofline scripts do)."""
    return ratio(cycles, clock_hz) * 1e9


def ratio(numerator: pd.Series, denominator: pd.Series) -> pd.Series:
    """Quotient; unknown where the denominator is 0."""
    return numerator / denominator.where(denominator != 0)


def intensity(flops: pd.Series, moved_bytes: pd.Series) -> pd.Series:
    """Arithmetic intensity in FLOP/B (Williams, Waterman, Patterson 2009).

    Unknown for a kernel that does no floating-point work or moves nothing at that level.
    """
    return ratio(flops.where(flops > 0), moved_bytes)


def per_second(amount: pd.Series, duration_ns: pd.Series) -> pd.Series:
    """Rate: amount over a duration in ns."""
    return ratio(amount, duration_ns) * 1e9


def pct_of_peak(
    amount: pd.Series, duration_ns: pd.Series, per_cycle: pd.Series, clock_hz: pd.Series
) -> pd.Series:
    """Per cent of a roof at the clock of the run.

    The roof is `peak_sustained x cycles per second`, as in the roofline sections of Nsight Compute
    (sections/SpeedOfLight_HierarchicalSingleRooflineChart.section, 2024.1.1).
    """
    return ratio(per_second(amount, duration_ns), per_cycle * clock_hz) * 100.0


def pct_of_sector_peak(
    amount: pd.Series, duration_ns: pd.Series, sectors: pd.Series, clock_hz: pd.Series
) -> pd.Series:
    """Per cent of a roof that the tool gives in 32 B sectors per cycle."""
    return pct_of_peak(amount, duration_ns, sectors * SECTOR_BYTES, clock_hz)


def pct_of_wavefront_peak(
    amount: pd.Series, duration_ns: pd.Series, wavefronts: pd.Series, clock_hz: pd.Series
) -> pd.Series:
    """Per cent of a roof that the tool gives in 128 B wavefronts a cycle."""
    return pct_of_peak(amount, duration_ns, wavefronts * WAVEFRONT_BYTES, clock_hz)


def pct_of_fma_peak(
    flops: pd.Series, duration_ns: pd.Series, fma: pd.Series, clock_hz: pd.Series
) -> pd.Series:
    """Per cent of an arithmetic roof that the tool gives in FMA instructions per cycle (2 FLOP)."""
    return pct_of_peak(flops, duration_ns, fma * 2.0, clock_hz)


def pct_of_packed_fma_peak(
    flops: pd.Series, duration_ns: pd.Series, fma: pd.Series, clock_hz: pd.Series
) -> pd.Series:
    """Per cent of the FP16 roof: packed FMA instructions per cycle, 4 FLOP each."""
    return pct_of_peak(flops, duration_ns, fma * 4.0, clock_hz)


def fused_flops(fadd: pd.Series, fmul: pd.Series, ffma: pd.Series) -> pd.Series:
    """FLOPs of one precision: add + mul + 2 fma, thread level, predicated on.

    Source: NERSC roofline methodology (Yang, Kurth, Williams, arXiv:2009.02449) and the FP32/FP64
    roofline sections of Nsight Compute.
    """
    return fadd + fmul + 2.0 * ffma


def packed_flops(hadd: pd.Series, hmul: pd.Series, hfma: pd.Series) -> pd.Series:
    """FLOPs of 16-bit arithmetic: 2 add + 2 mul + 4 fma.

    One thread instruction of HADD2/HMUL2/HFMA2 works on a pair of halves, as the FP16 roofline
    section of Nsight Compute 2024.1.1 counts it. Code on single halves uses the same instructions
    with one half idle and is counted twice.
    """
    return 2.0 * hadd + 2.0 * hmul + 4.0 * hfma


def packed_flops_without_constants(
    hadd: pd.Series,
    hmul: pd.Series,
    hfma: pd.Series,
    tensor_instructions: pd.Series,
    active_pct: pd.Series | None = None,
) -> pd.Series:
    """FLOPs of 16-bit arithmetic on GH100, without the constants that HFMA2.MMA loads.

    There the compiler uses HFMA2.MMA, which runs on the Tensor pipe, to load constants, and HFMA2,
    which does not, to calculate: in all elementwise kernels of a decoder block hfma was exactly
    32 x the warp instructions of the Tensor pipe, and 2.70e9 real HFMA2 added none to it
    (H200, ncu 2025.3.1, CUDA 13.0). Kernels with matrix work keep their hfma, and so do those that
    keep the Tensor pipe busy: half of the HFMA2 of a chain of multiply-adds are HFMA2.MMA.
    """
    loads = _constants(tensor_instructions, hfma)
    if active_pct is not None:
        loads &= ~(active_pct > CONSTANTS_TENSOR_PCT)
    constants = (32.0 * tensor_instructions).where(loads, 0.0)
    return packed_flops(hadd, hmul, (hfma - constants).clip(lower=0.0))


def _constants(tensor_instructions: pd.Series, hfma: pd.Series) -> pd.Series:
    # All of the Tensor pipe's instructions can be HFMA2.MMA: half of their threads or more count as
    # hfma (fewer than all, where lanes are inactive). GEMM and attention kernels have no hfma.
    return hfma >= 16.0 * tensor_instructions


def fused_flops_of_rates(
    fadd: pd.Series, fmul: pd.Series, ffma: pd.Series, clock_hz: pd.Series, duration_ns: pd.Series
) -> pd.Series:
    """FLOPs of one precision from instructions per cycle, as `--set full` reports hold them."""
    return fused_flops(fadd, fmul, ffma) * clock_hz * duration_ns / 1e9


def counted_tensor_flops(
    operations: pd.Series, instructions: pd.Series, hfma: pd.Series | None = None
) -> pd.Series:
    """Tensor FLOPs: the operations of the collected dtypes, where they are all there are.

    Where none was counted, the kernel did none if the Tensor pipe executed no instruction, or no
    other than HFMA2.MMA (see `packed_flops_without_constants`). Otherwise it works in a dtype that
    was not collected: unknown.
    """
    none = instructions == 0
    if hfma is not None:
        none |= _constants(instructions, hfma)
    return operations.where((operations > 0) | ((operations == 0) & none))


def idle_tensor(active_pct: pd.Series) -> pd.Series:
    """0 where the Tensor pipe was next to idle, in reports without operation counters."""
    return (active_pct * 0.0).where(active_pct < IDLE_TENSOR_PCT)


def volta_tensor_flops(instructions: pd.Series) -> pd.Series:
    """Tensor FLOPs as instructions x 512: exact for Volta's HMMA.884 alone (NERSC, 2019)."""
    return instructions * 512.0


def dominant_pipe(
    flops: pd.Series,
    tensor: pd.Series,
    fp32: pd.Series | None = None,
    fp64: pd.Series | None = None,
    fp16: pd.Series | None = None,
) -> pd.Series:
    """Pipe that did most of the FLOPs; unknown where their sum is unknown or 0."""
    pipes = {"tensor": tensor, "fp32": fp32, "fp64": fp64, "fp16": fp16}
    table = pd.DataFrame({name: pipe for name, pipe in pipes.items() if pipe is not None})
    known = table[flops > 0].fillna(0.0)
    return known.idxmax(axis=1).reindex(table.index).astype(object)


def busiest(*pipes: pd.Series) -> pd.Series:
    """Largest of several utilisations."""
    return pd.concat(pipes, axis=1).max(axis=1, skipna=False)


def share_pct(numerator: pd.Series, denominator: pd.Series) -> pd.Series:
    """Per cent that a part has of a whole."""
    return ratio(numerator, denominator) * 100.0


def percent_of(pct: pd.Series, base_pct: pd.Series) -> pd.Series:
    """Per cent of a whole: a per cent of its part `base_pct`, as active of all cycles."""
    return pct * base_pct / 100.0


def quotient(numerator: pd.Series, denominator: pd.Series) -> pd.Series:
    """One amount for each of another; unknown where there is none of the other."""
    return ratio(numerator, denominator)


def fusable_share(
    fadd: pd.Series,
    fmul: pd.Series,
    ffma: pd.Series,
    dadd: pd.Series,
    dmul: pd.Series,
    dfma: pd.Series,
) -> pd.Series:
    """Per cent of the FP32 and FP64 instructions that would go if each add took a mul into an FMA.

    At most min(add, mul) pairs can fuse; the rule FPInstructions of Nsight Compute takes half of
    all that are not fused, which is the same where there are as many of both.
    """
    pairs = pd.Series(np.minimum(fadd, fmul) + np.minimum(dadd, dmul), index=fadd.index)
    return share_pct(pairs, add(fadd, fmul, ffma, dadd, dmul, dfma))


def where_it_matters(value: pd.Series, amount: pd.Series, total: pd.Series) -> pd.Series:
    """The value where its traffic is at least 1 % of the level's; unknown elsewhere."""
    return value.where(amount >= NEGLIGIBLE * total)


def sector_efficiency(
    used_bytes: pd.Series, sectors: pd.Series, level_bytes: pd.Series
) -> pd.Series:
    """Per cent of the bytes of all sectors touched by threads' global accesses that they asked for.

    Unknown where these accesses are less than 1 % of the traffic to L2 (kernels that use TMA).
    """
    moved = sectors * SECTOR_BYTES
    return where_it_matters(share_pct(used_bytes, moved), moved, level_bytes)


def wavefront_efficiency(used_bytes: pd.Series, wavefronts: pd.Series) -> pd.Series:
    """Per cent of the bytes that shared memory wavefronts could carry that were asked for."""
    return share_pct(used_bytes, wavefronts * WAVEFRONT_BYTES)


def theoretical_occupancy(
    block_size: pd.Series, max_warps: pd.Series, *limits: pd.Series
) -> pd.Series:
    """Per cent of the warps an SM can hold: least limit of resident blocks x warps a block.

    Source: CUDA Occupancy Calculator. `max_warps` is a property of the device; the limits are
    `launch__occupancy_limit_*`.
    """
    resident = pd.concat(limits, axis=1).min(axis=1, skipna=False)
    return ratio(resident * np.ceil(block_size / 32.0), max_warps) * 100.0


def waves(blocks: pd.Series, sms: pd.Series, *limits: pd.Series) -> pd.Series:
    """Blocks over those that the GPU holds at once: SMs x the least limit of resident blocks."""
    resident = pd.concat(limits, axis=1).min(axis=1, skipna=False)
    return ratio(blocks, sms * resident)


def limiter(
    registers: pd.Series,
    shared_memory: pd.Series,
    blocks: pd.Series,
    warps: pd.Series,
    barriers: pd.Series | None = None,
) -> pd.Series:
    """What allows the fewest resident blocks: the argmin of `launch__occupancy_limit_*`.

    Source: Occupancy rule of Nsight Compute (TheoreticalOccupancy.py). `warps` wins a tie, as all
    warp slots are then in use; other ties name every limit, comma separated.
    """
    limits = {"registers": registers, "shared memory": shared_memory, "blocks": blocks}
    limits["warps"] = warps
    if barriers is not None:
        limits["barriers"] = barriers
    table = pd.DataFrame(limits)
    lowest = table.eq(table.min(axis=1, skipna=False), axis=0)
    return pd.Series([_limits(row) for row in lowest.to_dict("records")], table.index, dtype=object)


def _limits(lowest: Mapping[Hashable, bool]) -> str | None:
    names = [str(name) for name, is_lowest in lowest.items() if is_lowest]
    return "warps" if "warps" in names else ", ".join(names) or None


def tile_padding(m: int, n: int, tile_m: int, tile_n: int) -> tuple[float, float]:
    """Work of a tiled GEMM over its useful work, in both orientations of the tile.

    Tiles at the edge compute outside of the matrix, and the FLOP counters see it: the counter of an
    8192^3 GEMM with 320x128 tiles shows 1.0156 x 2MNK (H200, ncu 2025.3.1). cuBLAS is
    column-major, so that a row-major caller's m and n may be swapped: the second value is for that.
    """
    return (
        _padded(m, tile_m) * _padded(n, tile_n) / (m * n),
        _padded(m, tile_n) * _padded(n, tile_m) / (m * n),
    )


def _padded(size: int, tile: int) -> int:
    return math.ceil(size / tile) * tile


FORMULAS: dict[str, Formula] = {
    formula.__name__: formula
    for formula in (
        same,
        add,
        add_positive,
        times_100,
        positive,
        ipc_to_issue_pct,
        sectors_to_bytes,
        bytes_of_all_threads,
        bytes_beside_global,
        none_at_all,
        rate_to_amount,
        cycles_to_ns,
        intensity,
        per_second,
        pct_of_peak,
        pct_of_sector_peak,
        pct_of_wavefront_peak,
        pct_of_fma_peak,
        pct_of_packed_fma_peak,
        fused_flops,
        fused_flops_of_rates,
        packed_flops,
        packed_flops_without_constants,
        counted_tensor_flops,
        idle_tensor,
        volta_tensor_flops,
        dominant_pipe,
        busiest,
        share_pct,
        percent_of,
        quotient,
        fusable_share,
        where_it_matters,
        sector_efficiency,
        wavefront_efficiency,
        theoretical_occupancy,
        waves,
        limiter,
    )
}
