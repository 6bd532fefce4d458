"""Makes the facts that the rules of kernels look at, from the counters of one kernel.

Facts are numbers; shares are in per cent, as the counters are. What is not known is NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nsight_prof.parsers.build.bound import LATENCY_BELOW, shares
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.declared import Need
from nsight_prof.reports.analysis.profiled import OF_CODE, sm_count
from nsight_prof.reports.findings.kernels.fact import Context
from nsight_prof.reports.findings.kernels.matrix import ELEMENTS, WRITTEN, unaligned

MATRIX = ("gemm", "conv", "attention")
"""Categories whose work is matrix multiplication, which belongs on the Tensor Cores."""
ARITHMETIC = ("tensor", "fp32", "fp64", "fp16", "issue")
"""Bounds under which a launch takes the same number of cycles at any clock."""
SLOWER = 0.05
"""Relative difference of two times of one kernel and shape that one clock does not explain."""
NO_PRODUCT = re.compile(r"combine|reduce|merge|prepare|metadata", re.IGNORECASE)
"""Kernels beside a product that only add its parts up or plan it: split-K, split KV."""
TRANSFORM = re.compile(
    r"fft2d_|pointwise_mult_and_sum_complex|flip_filter|winograd\w*(?:Data|Filter|Output|Delta)"
)
"""Kernels of a convolution by Fourier or Winograd transforms: parts of a product, no products."""
DEPTHWISE = re.compile(r"depthwise", re.IGNORECASE)
"""Convolutions of single channels: no sum over channels, which would be a product of matrices."""
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "drain", "mio_throttle")
"""Stall reasons of warps that wait for loads, for stores, or for the queues to either."""
LOCAL_STALLS = ("long_scoreboard", "lg_throttle")
"""Stall reasons of warps that wait for loads of global and local memory, or for their queue."""
SHARED_STALLS = ("short_scoreboard", "mio_throttle")
EXECUTION_STALLS = (
    *("wait", "branch_resolving", "math_pipe_throttle", "no_instruction", "dispatch_stall"),
    *("not_selected", "selected", "short_scoreboard"),
)
"""Stall reasons of warps that have instructions to issue, one after another."""
READY_STALLS = (
    *("selected", "not_selected", "dispatch_stall", "math_pipe_throttle"),
    *("mio_throttle", "lg_throttle", "tex_throttle"),
)
"""Stall reasons of warps that issue, or find a queue or a pipe full: more warps hide none of it."""
QUEUE_STALLS = ("mio_throttle", "tex_throttle")
"""Stall reasons of warps that find the queue to special functions and shared memory full."""
FENCES = ("membar",)
"""Stall reasons of warps that wait until others see what they wrote, as after each atomic operation
with an order (acquire, release), which those of Triton have where nothing else is asked for."""
BARRIERS = ("barrier",)
"""Stall reasons of warps that wait for other warps, whatever these wait for."""
LEVELS = ("dram", "l2", "l1")
THROUGHPUT_BOUND = 60.0
"""From this per cent of the issue slots on, a block that is alone on its SM runs faster."""
TENSOR_TYPES = {"fp32": "tf32", "": "tf32"}
"""The Tensor Core type that takes the place of a type without one."""
CHAIN = 3.0
"""Cycles between two atomic operations on one address: the unit of its L2 slice is busy in 33.3 %
of them when all threads add to one float (H200, ncu 2025.3.1)."""
WIDEST = 16.0
"""Bytes of the widest access of a thread."""
PURE, WORKING, REUSED = 5.0, 0.2, 20.0
"""Of a matrix product on the FP32 pipe: per cent of its FP instructions that are no multiply-adds
at most, part of the roof, and FLOPs for each byte that threads load or store (tiles of 32 x 32 of
16-bit numbers have 16, of 64 x 64 32)."""
WARP_BYTES = 128
"""Bytes of an access by the 32 threads of a warp, 4 bytes each."""
FLOAT_LEFT = 100 / 3
"""Per cent of the instructions of functions of double (exp, log, pow, division) that those of float
take, where they fill the issue slots: 16 and 47 in two programs that were repaired (H200)."""
CALLED = 90.0
"""Per cent of the instructions of a function (sincosf: 30, powf: more) that one of few (__sinf,
__powf, or a table) does not need."""
HALF = 50.0
"""Per cent of the pairs of tokens that a causal mask leaves."""
ALIGNED = re.compile(r"align(\d+)")
"""Elements to which the operands of a kernel of CUTLASS are aligned, in its name."""


def blocks(grid: str) -> float:
    """Return the number of blocks of a grid "XxYxZ"; NaN where it is no grid."""
    try:
        return float(math.prod(int(size) for size in grid.split("x")))
    except ValueError:
        return math.nan


def filled(run: Run) -> dict[str, float]:
    """Return the part of the SMs that the blocks of a kernel fill, by kernel_id, where known."""
    sms = sm_count(run)
    fill = {text(r["kernel_id"]): blocks(text(r["grid"])) / sms for r in records(run.kernels)}
    return {key: min(1.0, filled) for key, filled in fill.items() if filled > 0}


def measure(row: Row, context: Context) -> dict[str, float]:
    """Return all facts of a kernel: a row of `profiled`, columns of `kernels` and `counters`."""
    use = resource_use(row, context)
    return {
        **_launch(row, context.sms),
        **_access(row),
        **_shared(row),
        **_waits(row),
        **_levels(row),
        **_atomics(row),
        **_elsewhere(row),
        **_again(row, use),
        **_instructions(row, use),
        **_doubles(row, context, use),
        **_matrix(row, context, use),
        **_required(row, context.need(row)),
        "none": 0.0,
    }


def resource_use(row: Row, context: Context) -> dict[str, float]:
    """Return the share (0 to 1) of its roof that each resource reached; NaN where unknown."""
    return shares(row | {"name_dtype": text(row.get("dtype"))}, context.roofs)


def _launch(row: Row, sms: float) -> dict[str, float]:
    grid, waves = blocks(text(row["grid"])), number(row["waves"])
    achieved = number(row["achieved_occupancy_pct"])
    limit = number(row["theoretical_occupancy_pct"])
    balance, active = number(row["sm_balance_pct"]), number(row["sm_active_pct"])
    # Of the time of the kernel: the busiest SM is active for active / balance of it.
    loss = (1 - balance / 100) * active / balance * 100 if balance > 0 else math.nan
    tail = _tail_loss(row, grid / sms, waves)
    reached = achieved / limit if limit > 0 else math.nan
    return {
        "blocks": grid,
        "threads": blocks(text(row["block"])),
        "block_left": 100 * blocks(text(row["block"])) / 32,
        "blocks_missing": max(100 * (sms - grid) / sms, 0.0),
        "blocks_a_sm": grid / sms,
        "waves": waves,
        "tail_loss": tail,
        "lifetime": number(row["duration_ns"]) * reached / waves if waves > 0 else math.nan,
        "theoretical_occupancy": limit,
        "achieved_occupancy": achieved,
        "occupancy_gap": limit - achieved,
        "warps_held": 100 * reached,
        "sm_balance": balance,
        "uneven_loss": 100 - (100 - loss) * _slots_occupied(waves, achieved, limit),
        # A last wave that is partly filled leaves some SMs without work, too.
        "balance_alone": loss - (tail if waves > 1 else 0.0),
    }


def _slots_occupied(waves: float, achieved: float, limit: float) -> float:
    """Return the part of their slots that blocks of unequal length occupy until the last has ended.

    Only of blocks that all start at once: those of later waves take the slots that others left. Of
    less than a wave, the slots are those that have a block.
    """
    at_once = waves <= 1 and achieved < limit * waves
    return achieved / (limit * waves) if at_once else 1.0


def _tail_loss(row: Row, blocks_a_sm: float, waves: float) -> float:
    """Return the per cent of the time that blocks of equal length lose in the last wave.

    Whole waves of all places, where a block waits for itself; whole rounds of the SMs, where the
    SM is busy: fewer blocks then take less time. The rule of Nsight Compute gives the whole last
    wave, 1 / (1 + full waves), however full it is.
    """
    busy = number(row["issue_active_pct"]) >= THROUGHPUT_BOUND
    rounds = blocks_a_sm if busy else waves
    return 100 * (1 - rounds / math.ceil(rounds)) if rounds > 0 else math.nan


def _access(row: Row) -> dict[str, float]:
    loads = number(row["global_load_efficiency_pct"])
    stores = number(row["global_store_efficiency_pct"])
    moved = _sectors(row, "load", loads), _sectors(row, "store", stores)
    threads = blocks(text(row["grid"])) * blocks(text(row["block"]))
    loaded = number(row["global_load_bytes"]) / threads if threads > 0 else math.nan
    all_moved = sum(level_bytes for level_bytes in moved if not math.isnan(level_bytes)) or math.nan
    asked = _asked(row)
    load_left = 100 - moved[0] / all_moved * (100 - loads)
    if number(row["dram_read_bytes"]) > moved[0]:
        # Each scattered sector costs a burst of two: what warps wait for goes with bytes of DRAM.
        load_left = min(load_left, _at_most_all(asked, number(row["dram_bytes"])))
    return {
        "load_efficiency": loads,
        "store_efficiency": stores,
        "sector_efficiency": number(row["global_sector_efficiency_pct"]),
        "load_left": load_left,
        "store_left": 100 - moved[1] / all_moved * (100 - stores),
        "sectors_left": number(row["global_sector_efficiency_pct"]),
        "needless_loads": 100 * number(row.get("needless_share")),
        "loaded_a_thread": loaded,
        "wide_left": _percent(loaded, WIDEST),
        "dram_useful": _at_most_all(asked, number(row["dram_bytes"])),
        "dram_waste": 100 - _percent(asked, number(row["dram_bytes"]))
        if row["bound_by"] == "dram"
        else 100.0,
    }


def _sectors(row: Row, kind: str, efficiency: float) -> float:
    return 100 * number(row[f"global_{kind}_bytes"]) / efficiency if efficiency > 0 else math.nan


def _asked(row: Row) -> float:
    """Return the bytes that threads loaded and stored: no more than these need to cross DRAM."""
    return number(row["global_load_bytes"]) + number(row["global_store_bytes"])


def _percent(numerator: float, denominator: float) -> float:
    """Return `numerator` over `denominator` in per cent, 100 at most; NaN where unknown."""
    return (
        min(100.0, 100 * numerator / denominator)
        if numerator >= 0 and denominator > 0
        else math.nan
    )


def _at_most_all(numerator: float, denominator: float) -> float:
    """Return `numerator` over `denominator` in per cent, 100 at most; 100 where it is not known."""
    found = _percent(numerator, denominator)
    return 100.0 if math.isnan(found) else found


def _shared(row: Row) -> dict[str, float]:
    conflicts = number(row["shared_conflict_pct"])
    width = number(row["shared_wavefront_efficiency_pct"])
    pipe = number(row["lsu_pct"])
    if math.isnan(pipe):
        pipe = number(row["l1_pct"])
    return {
        "shared_conflicts": conflicts,
        "shared_efficiency": width,
        "shared_time": _saturated_or(pipe, _stall_time(row, SHARED_STALLS)),
        "lsu_use": pipe,
        "conflicts_left": width if math.isnan(conflicts) else max(0.0, 100 - conflicts),
    }


def _waits(row: Row) -> dict[str, float]:
    issued, waits = number(row["issue_active_pct"]), _stalled(row, EXECUTION_STALLS)
    stalls: dict[str, float] = row.get("stalls") or {}
    ready = stalls.get("selected", 0.0) + stalls.get("not_selected", 0.0)
    return {
        "execution_waits": waits,
        "ready_warps": ready / stalls["selected"] if stalls.get("selected") else math.nan,
        "warp_time": _time_of_unit(issued, _stall_time(row, (*EXECUTION_STALLS, *QUEUE_STALLS))),
        "load_waits": _stalled(row, (*LOCAL_STALLS, *BARRIERS)),
        "hidden_time": 100 - _stalled(row, READY_STALLS) if row.get("stalls") else 100.0,
        "passing": 100 * _known(number(row.get("passing_share")), 1.0),
        "exact_math": 100 * _known(number(row.get("exact_share")), 0.0),
        "exact_left": 100 * (1 - _known(number(row.get("exact_share")), 0.0)),
        "sorting": 100 * _known(number(row.get("sorting_share")), 0.0),
        "stored_part": _percent(
            number(row["global_store_bytes"]), number(row["global_load_bytes"])
        ),
        "unmasked": 100 * _known(number(row.get("unmasked_share")), 1.0),
        **{
            name: 100 * _known(number(row.get(f"{name}_share")), 0.0)
            for name in (*OF_CODE, "float")
        },
        "functions_left": 100 - CALLED * _known(number(row.get("functions_share")), 0.0),
        "pairs": 100 * number(row.get("pairs_share")),
        **{
            f"{name}_left": 100 * (1 - _known(number(row.get(f"{name}_share")), 0.0))
            for name in ("fixed", "calls", "lookups", "same", "again")
        },
        "sides_left": 100 - 50 * _known(number(row.get("sides_share")), 0.0),
        "halves_left": 100 - 50 * _known(number(row.get("halves_share")), 0.0),
        "drawn_left": 100 - 75 * _known(number(row.get("drawn_share")), 0.0),
        "constant_waits": 100 * _known(number(row.get("constants_share")), 0.0),
        "top_stall": 100 * number(row["stall_share"]) if text(row["top_stall"]) else math.nan,
        "issue_active": issued,
    }


def _top_wait(row: Row, reasons: tuple[str, ...]) -> float:
    """Return the share of the top stall in per cent where it is one of `reasons`, else 0."""
    if not text(row["top_stall"]):
        return math.nan
    return 100 * number(row["stall_share"]) if text(row["top_stall"]) in reasons else 0.0


def _stalled(row: Row, reasons: tuple[str, ...]) -> float:
    """Return the share of several stall reasons in per cent; NaN where none were counted."""
    found: dict[str, float] = row.get("stalls") or {}
    if not found:
        return _top_wait(row, reasons)
    return 100 * sum(found.get(reason, 0.0) for reason in reasons)


def _stall_time(row: Row, reasons: tuple[str, ...]) -> float:
    """Return the per cent of the time that waiting for `reasons` explains; NaN where unknown.

    Warps at a barrier wait for others of their block, so that their time is shared out among what
    those wait for.
    """
    found: dict[str, float] = row.get("stalls") or {}
    if not found:
        return _top_wait(row, reasons) or math.nan  # nothing is known of the other reasons
    others = 1 - sum(found.get(reason, 0.0) for reason in BARRIERS)
    waits = _stalled(row, reasons)
    return min(100.0, waits / others) if others > 0 else waits


def _maximum(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return max(known, default=math.nan)


def _time_of_unit(busy: float, waits: float) -> float:
    """Return the per cent of its time that a kernel can owe to a unit.

    All of it where the unit is saturated and sets the pace; else the time in which warps wait for
    it. Where stalls were not counted, no more than it works.
    """
    return 100.0 if busy >= 100 * LATENCY_BELOW else _known(waits, busy)


def _saturated_or(busy: float, waits: float) -> float:
    """Return the use of a saturated unit in per cent; else what warps wait for it, if known."""
    return busy if busy >= 100 * LATENCY_BELOW else _known(waits, busy)


def _known(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


def _levels(row: Row) -> dict[str, float]:
    use = {level: number(row[f"{level}_pct"]) for level in LEVELS}
    busiest = _maximum(use.values())
    tensor = number(row["tensor_pct"])
    # A level that is used less than the Tensor Cores is not what the kernel is about.
    rules = 0.0 if tensor > busiest else busiest
    local, l1 = number(row["local_bytes"]), number(row["l1_bytes"])
    asked, waits = _asked(row), _stall_time(row, MEMORY_STALLS)
    saturated = busiest if busiest >= 100 * LATENCY_BELOW else math.nan
    l2_useful = _at_most_all(asked, number(row["l2_bytes"]))
    return {
        "level_busy": busiest,
        "level_rules": _maximum([rules, use["dram"]]),
        "dram_use": use["dram"],
        "sector_time": _time_of_unit(busiest, waits),
        "dram_time": _time_of_unit(use["dram"], waits),
        "local_share": _percent(local, l1),
        "spills_left": 100 - _percent(local, l1),
        "spills_left_l2": l2_useful,
        "local_time": _maximum([saturated, _stall_time(row, LOCAL_STALLS)]),
    }


def _again(row: Row, use: dict[str, float]) -> dict[str, float]:
    """Return how often a kernel fetches its data, and how little it computes with it."""
    fetched = number(row["l1_bytes"])
    distinct = _maximum([number(row["dram_bytes"]), number(row["global_store_bytes"])])
    levels = (100 * use["l1"], number(row["l2_pct"]), number(row["lsu_pct"]))
    pipes = (use[pipe] for pipe in ("tensor", "fp32", "fp64", "fp16"))
    return {
        "level_pipe": _maximum(levels),
        "arithmetic_use": 100 * _maximum(pipes),
        "loads_again": fetched / distinct if distinct > 0 else math.nan,
        "flops_a_byte": number(row["flops"]) / fetched if fetched > 0 else math.nan,
        "through_registers": _percent(number(row["global_load_bytes"]), fetched),
    }


def _elsewhere(row: Row) -> dict[str, float]:
    """Return what L2 lacked beyond what DRAM delivered: bytes of the host or of another GPU."""
    moved, taken = number(row["l2_bytes"]), number(row["duration_ns"])
    from_dram, both = number(row["dram_read_bytes"]), number(row["dram_bytes"])
    missing = moved * (1 - number(row["l2_hit_pct"]) / 100) - from_dram
    grown = 1 + missing / both if both > 0 else math.nan
    return {
        "elsewhere": 100 * missing / moved if moved > 0 else math.nan,
        "elsewhere_rate": missing / taken if taken > 0 else math.nan,
        "elsewhere_left": number(row["dram_pct"]) * grown,
    }


def _atomics(row: Row) -> dict[str, float]:
    threads = blocks(text(row["block"]))
    warps = blocks(text(row["grid"])) * math.ceil(threads / 32) if threads > 0 else math.nan
    unit, waits = number(row["atomic_pct"]), _stalled(row, MEMORY_STALLS)
    chain = min(100.0, CHAIN * unit) if unit >= 0 else math.nan
    queued = WARP_BYTES * number(row["atomic_instructions"])
    return {
        "atomics_a_warp": number(row["atomic_instructions"]) / warps,
        "atomic_unit": unit,
        "atomic_chain": chain,
        "atomic_time": _saturated_or(chain, _stall_time(row, (*MEMORY_STALLS, *FENCES))),
        "atomic_part": _percent(queued, queued + _asked(row)),
        "all_memory_waits": waits,
    }


def _instructions(row: Row, use: dict[str, float]) -> dict[str, float]:
    threads, fusable = number(row["threads_per_instruction"]), number(row["fusable_pct"])
    reached = _maximum([use["fp32"], use["fp64"]])
    # A roof counts two FLOPs an instruction: of those that can fuse, each does one.
    pipe = _percent(reached, 1 - fusable / 100)
    return {
        "threads_per_instruction": threads,
        "threads_left": 100 * threads / 32,
        "fusable": fusable,
        "unfused_left": 100 - min(fusable, _known(100 * number(row.get("pairs_share")), fusable)),
        "fp_pipe": pipe,
        "fp_time": min(pipe, _saturated_or(pipe, _stall_time(row, EXECUTION_STALLS))),
    }


def _doubles(row: Row, context: Context, use: dict[str, float]) -> dict[str, float]:
    single, double = (context.roofs.pipe(pipe, pipe) for pipe in ("fp32", "fp64"))
    others = sum(number(row[f"flops_{pipe}"]) for pipe in ("fp32", "fp16"))
    count, fusable = number(row["flops_fp64"]), number(row["fusable_pct"])
    clock = number(row["sm_clock_hz"])
    rate = 50.0  # of the chips of data centres; others have less
    if single and double:
        rate = 100 * double.at_clock(clock) / single.at_clock(clock)
    double_part = _percent(count, count + others)
    # As of `fp_pipe`: an instruction that is no multiply-add does one FLOP.
    pipe = _percent(use["fp64"], 1 - (0.0 if math.isnan(fusable) else fusable / 100))
    # Not the pipe but instructions set the time of its functions, of which float ones have fewer.
    by_issue = use["issue"] >= LATENCY_BELOW and double_part >= pipe
    return {
        "double_part": double_part,
        "double_pipe": pipe,
        "double_time": double_part if by_issue else pipe,
        "double_left": min(rate, FLOAT_LEFT) if by_issue else rate,
    }


def _is_product(row: Row, use: dict[str, float]) -> bool:
    """Tell whether a kernel of no known kind does what a matrix product does.

    Multiply-adds and nearly nothing else, on the FP32 pipe, with many of them for each byte that
    threads load, which needs tiles in shared memory.
    """
    intensity = number(row["flops_fp32"]) / _asked(row) if _asked(row) > 0 else math.nan
    return (
        row["category"] in ("other", "")
        and number(row["flops_tensor"]) == 0
        and number(row["shared_memory_bytes"]) > 0
        and number(row["fusable_pct"]) <= PURE
        and use["fp32"] >= WORKING
        and intensity >= REUSED
    )


def _matrix(row: Row, context: Context, use: dict[str, float]) -> dict[str, float]:
    dtype, size = text(row["dtype"]), context.need(row).size
    is_partial = any(p.search(_name(row)) for p in (NO_PRODUCT, TRANSFORM, DEPTHWISE))
    product = (row["category"] in MATRIX and not is_partial) or _is_product(row, use)
    roof = context.roofs.pipe("tensor", TENSOR_TYPES.get(dtype, dtype))
    rate = number(row["flop_throughput"])
    required = 100 * rate / roof.at_clock(number(row["sm_clock_hz"])) if roof else math.nan
    odd = bool(unaligned(size, dtype))
    loading = _stall_time(row, MEMORY_STALLS)
    return {
        "is_own": float(text(row["library"]) in ("", *WRITTEN)),
        "is_attention": float(row["category"] == "attention"),
        "half_left": HALF,
        "unmasked_left": HALF * (1 - loading / 100),
        "is_matrix": float(product),
        "tensor_active": _tensor_active(row, use),
        "tensor_needed": required,
        "tensor_reached": required,
        "misaligned": float(odd or slow_name(row)),
    }


def _tensor_active(row: Row, use: dict[str, float]) -> float:
    """Return the per cent of the cycles in which the Tensor Cores work.

    The counter of the pipe is a few per cent in kernels that never use it (H200, ncu 2025.3.1): 0
    where no operation of the Tensor Cores was counted and another pipe does more.
    """
    busy = number(row["tensor_pct"])
    others = 100 * _maximum(use[pipe] for pipe in ("fp32", "fp16", "fp64"))
    return 0.0 if number(row["flops_tensor"]) == 0 and others > busy else busy


def slow_name(row: Row) -> bool:
    """Tell whether its name says that the operands of a kernel are aligned to less than 16 bytes.

    Kernels of the FP pipes (SIMT) need no more than an element.
    """
    found = None if "simt" in _name(row) else ALIGNED.search(_name(row))
    return found is not None and int(found.group(1)) < ELEMENTS.get(text(row["dtype"]), 8)


def _name(row: Row) -> str:
    return f"{text(row['name'])} {text(row['short_name'])}"


def _required(row: Row, need: Need) -> dict[str, float]:
    moved = number(row["dram_bytes"])
    times = moved / need.bytes if need.bytes > 0 else math.nan
    return {"reread": times, "reread_left": 100 / times if times > 0 else math.nan}
