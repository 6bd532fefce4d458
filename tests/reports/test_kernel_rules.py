"""The rules of kernels on counters as defects of known cost would leave them."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.roofline import Ceiling, Ceilings
from nsight_prof.parsers.cells import Row, number
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.reports.analysis.declared import Need
from nsight_prof.reports.analysis.profiled import EXACT_MORE, TRACE_ONLY
from nsight_prof.reports.findings.kernels.causes import LSU, Cause, Judged, causes, explain, gain
from nsight_prof.reports.findings.kernels.fact import Context
from nsight_prof.reports.findings.kernels.findings import EFFICIENCIES, _of_one_layout
from nsight_prof.reports.findings.kernels.judge import _work_alone
from nsight_prof.reports.findings.kernels.matrix import unaligned
from nsight_prof.reports.findings.kernels.measure import measure, resource_use
from nsight_prof.reports.findings.kernels.roofs import RESOURCES, UNITS
from nsight_prof.reports.findings.kernels.roofs import ROOFS as BOUNDS
from nsight_prof.reports.findings.kernels.rules import BY_KEY, RULES
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Text
from tests.reports.programs import english

SMS = 132.0
CLOCK = 1.98e9
FP32_ROOF = SMS * 256 * CLOCK


def ceiling(key: str, dtype: str, value: float) -> Ceiling:
    return Ceiling(key, dtype, value, "FLOP/s", "counters", CLOCK, "")


ROOFS = Ceilings(
    {},
    {
        ("tensor", "bf16"): ceiling("tensor", "bf16", SMS * 4096 * CLOCK),
        ("tensor", "tf32"): ceiling("tensor", "tf32", SMS * 2048 * CLOCK),
        ("fp32", "fp32"): ceiling("fp32", "fp32", FP32_ROOF),
    },
)
H200 = Context(SMS, ROOFS)
DURATION = 1e6


def row(**known: Any) -> Row:
    """A kernel of a million blocks that does nothing in particular, for 1 ms."""
    columns = [c.name for c in tables.tables()["counters"]] + [*TRACE_ONLY, "stall_share"]
    plain = {
        "kernel_id": "k1", "grid": "13200x1x1", "block": "256x1x1", "category": "other",
        "duration_ns": DURATION, "sm_clock_hz": CLOCK, "waves": 12.5, "sm_balance_pct": 99.0,
        "sm_active_pct": 98.0, "tensor_pct": 0.0, "flops_tensor": 0.0, "flops_fp16": 0.0,
        "flops_fp64": 0.0, "flops_fp32": 0.0, "dram_pct": 5.0, "l2_pct": 5.0, "l1_pct": 5.0,
        "local_bytes": 0.0, "l1_bytes": 1e9, "dram_bytes": 1e8, "l2_bytes": 1e8,
        "theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 95.0,
        "global_load_efficiency_pct": 100.0, "global_store_efficiency_pct": 100.0,
        "global_load_bytes": 5e7, "global_store_bytes": 5e7, "atomic_instructions": 0.0,
        "atomic_pct": 0.0, "threads_per_instruction": 31.0, "issue_active_pct": 20.0,
        "bound_by": "latency",
    }  # fmt: skip
    return dict.fromkeys(columns) | plain | known


def first(context: Context = H200, **known: Any) -> Cause:
    return causes(row(**known), context)[0]


def waits(reason: str, part: float) -> dict[str, Any]:
    rest = {"selected": (1 - part) / 2, "wait": (1 - part) / 2}
    return {"top_stall": reason, "stall_share": part, "stalls": {reason: part, **rest}}


def keys(**known: Any) -> set[str]:
    return {cause.key for cause in causes(row(**known), H200)}


@pytest.mark.parametrize(
    ("library", "used", "gains"),
    [("other", 12.5, [0.5, 0.2]), ("other", 50.0, [0.3, 0.2]), ("PyTorch", 12.5, [0.3, 0.2])],
)
def test_one_layout_mends_kernels_that_use_as_much_of_each_sector(
    library: str, used: float, gains: list[float]
) -> None:
    """Three kernels of a magma flow read structures of twelve numbers; ends measured: 85 %."""
    found, leads = [], []
    for name, gain_part, efficiency in (("k1", 0.3, 12.5), ("k2", 0.2, used)):
        found.append(
            Finding("uncoalesced_accesses", Text("v"), kernel_ids=(name,), share=0.4,
                    gain_program=gain_part, gain_ns=100 * gain_part)
        )  # fmt: skip
        sectors = dict.fromkeys(EFFICIENCIES, efficiency)
        leads.append(Judged(row(library=library, **sectors), (), None, gain_part, 0.0))
    mended = _of_one_layout(found, leads, 100.0)
    assert [f.gain_program for f in mended] == pytest.approx(gains)
    assert ("another layout" in english(mended[0].verdict)) == (gains[0] == 0.5)


def test_a_healthy_kernel_has_no_cause() -> None:
    assert causes(row(), H200) == []


# A transpose by columns: loads of 4 B touch a sector each, L2 serves them from one DRAM read.
TRANSPOSE: dict[str, Any] = {
    "global_load_efficiency_pct": 12.5, "global_load_bytes": 1e9, "global_store_bytes": 1e9,
    "dram_bytes": 2e9, "l2_bytes": 9e9, "l2_pct": 80.0, "dram_pct": 25.0,
}  # fmt: skip


def test_scattered_loads_leave_the_sectors_that_are_useful() -> None:
    cause = first(**TRANSPOSE)
    assert cause.key == "uncoalesced_loads"
    # Of 9 sectors a 32 bytes 8 are loads, of which one remains: 2 of 9; DRAM needs a quarter
    # at its full roof, of which copies reach nine tenths.
    assert cause.gain == pytest.approx(1 - 0.25 / 0.9)
    assert first(**TRANSPOSE | {"dram_pct": 19.0}).gain == pytest.approx(1 - 2 / 9)
    # Beside tiles that TMA fetches, of which the efficiency says nothing, they are a few bytes.
    assert "uncoalesced_loads" not in keys(**TRANSPOSE, l1_bytes=4e10)
    assert "use 4.0 of the 32 bytes" in english(cause.clause)


def test_scattered_loads_and_stores_have_one_repair() -> None:
    both = TRANSPOSE | {"global_store_efficiency_pct": 12.5, "global_sector_efficiency_pct": 12.5}
    found = causes(row(**both), H200)
    assert [c.key for c in found] == ["uncoalesced_accesses"]
    assert found[0].gain == pytest.approx(1 - 0.25 / 0.9)  # DRAM needs a quarter at its roof


# A table of 200 MB in memory of the host, read at 51 GB/s; DRAM delivers 67 MB of other data.
ZERO_COPY: dict[str, Any] = {
    "l2_bytes": 2.68e8, "l2_hit_pct": 25.0, "dram_read_bytes": 6.7e7, "dram_bytes": 1.31e8,
    "duration_ns": 2.6e6, "dram_pct": 1.5, "l2_pct": 1.2, "l1_pct": 0.5,
    "issue_active_pct": 0.4,
}  # fmt: skip


def test_bytes_that_neither_l2_nor_dram_delivers_come_from_the_host() -> None:
    stalls = waits("long_scoreboard", 0.9)
    cause = first(**ZERO_COPY, **stalls)
    assert cause.key == "host_memory"
    assert "at 52 GB/s" in english(cause.clause)
    left = 0.015 * (1 + (2.68e8 * 0.75 - 6.7e7) / 1.31e8)  # DRAM would move them, too
    assert cause.gain == pytest.approx(1 - left)
    # DRAM delivered them, a rate that no PCIe has, or a kernel that waits for something else.
    for other in ({"dram_read_bytes": 2e8}, {"duration_ns": 1e5}, waits("wait", 0.9)):
        keys = {c.key for c in causes(row(**ZERO_COPY | stalls | other), H200)}
        assert "host_memory" not in keys
    assert "host_memory" not in {c.key for c in causes(row(**stalls), H200)}


def test_sectors_that_dram_delivers_in_vain_are_no_floor() -> None:
    # Records of 32 B of which 4 are stored: DRAM moves 36 B for 8 that are asked for.
    cause = first(
        global_store_efficiency_pct=12.5, global_load_bytes=1e9, global_store_bytes=1e9,
        dram_bytes=9e9, l2_bytes=9e9, dram_pct=90.0, l2_pct=50.0, bound_by="dram",
    )  # fmt: skip
    assert cause.key == "uncoalesced_stores"
    assert cause.gain == pytest.approx(1 - 2 / 9)


def test_a_level_that_is_not_full_costs_no_more_than_it_works_or_is_waited_for() -> None:
    # A quarter of L2, and a third of the stalls: the other two thirds of the time do not go.
    quiet: dict[str, Any] = TRANSPOSE | {"l2_pct": 25.0, "dram_pct": 10.0}
    assert first(**quiet, **waits("long_scoreboard", 1 / 3)).gain == pytest.approx(7 / 9 / 3)
    # No warp waits for memory: whatever the level does, it does behind other work.
    assert causes(row(**quiet | {"l2_pct": 40.0}, **waits("wait", 0.9)), H200)[0].key == "latency"
    # Without stalls the use of the level is all that is known.
    assert first(**quiet).gain == pytest.approx(0.25 * 7 / 9)


def test_few_threads_cost_no_more_than_the_time_of_instructions() -> None:
    half = row(threads_per_instruction=4.0, issue_active_pct=40.0, **waits("wait", 0.5),
               achieved_occupancy_pct=96.0)  # fmt: skip
    half["stalls"] = {"wait": 0.5, "long_scoreboard": 0.5}
    (divergent,) = [c for c in causes(half, H200) if c.key == "divergence"]
    assert divergent.gain == pytest.approx(0.5 * (1 - 4 / 32))


def test_loads_and_stores_apart_make_the_sum_of_both_no_cause() -> None:
    found = causes(row(**TRANSPOSE, global_sector_efficiency_pct=22.2), H200)
    assert [c.key for c in found] == ["uncoalesced_loads"]


def test_one_number_for_all_threads_of_a_warp_is_no_scattered_load() -> None:
    # A sector for a number of 4 bytes is all that such a load needs: source counters tell.
    assert causes(row(**TRANSPOSE, needless_share=0.0), H200) == []
    assert first(**TRANSPOSE, needless_share=0.875).key == "uncoalesced_loads"


def test_blocks_whose_threads_load_16_bytes_are_not_too_short_for_their_work() -> None:
    short: dict[str, Any] = {"library": "other", "waves": 62.0, "duration_ns": 6e4,
                             "achieved_occupancy_pct": 75.0}  # fmt: skip
    threads = 13200 * 256
    assert "short_blocks" in keys(**short, global_load_bytes=4.0 * threads)
    assert "short_blocks" not in keys(**short, global_load_bytes=32.0 * threads)


def test_conflicts_cost_the_part_of_the_pipe_that_they_take() -> None:
    conflicts: dict[str, Any] = {
        "shared_wavefront_efficiency_pct": 6.25,
        "shared_conflict_pct": 93.75,
        "issue_active_pct": 5.0,
    }
    assert first(**conflicts, lsu_pct=96.0).gain == pytest.approx(0.96 * 0.9375)
    waiting = first(**conflicts, lsu_pct=40.0, **waits("short_scoreboard", 0.8))
    assert waiting.gain == pytest.approx(0.8 * 0.9375)
    # Narrow accesses of few threads are no conflict.
    assert causes(row(**conflicts | {"shared_conflict_pct": 0.0}, lsu_pct=96.0), H200) == []
    assert keys(**conflicts, lsu_pct=78.0, bound_by="dram", dram_pct=83.0) == set()


def test_spills_cost_their_part_of_the_memory_time() -> None:
    cause = first(local_bytes=6e8, l1_bytes=1e9, l1_pct=70.0, bound_by="l1")
    assert cause.key == "local_spills"
    assert cause.gain == pytest.approx(0.7 * 0.6)
    assert "60 % of its traffic in L1" in english(cause.clause)


def test_more_warps_for_a_tile_mend_its_spills_and_its_waits() -> None:
    few: dict[str, Any] = {"theoretical_occupancy_pct": 43.8, "achieved_occupancy_pct": 39.1,
                           "occupancy_limiter": "blocks", "top_stall": "long_scoreboard",
                           "stall_share": 0.6, "local_bytes": 4e8, "l1_bytes": 1e9}  # fmt: skip
    few["stalls"] = {"long_scoreboard": 0.6, "selected": 0.11, "not_selected": 0.02}

    def gains(block: str) -> dict[str, float]:
        return {c.key: c.gain for c in causes(row(**few, block=block), H200)}

    alone, both = gains("256x1x1"), gains("32x1x1")
    assert both["block_limited"] == alone["block_limited"] > 0
    remaining = (1 - alone["local_spills"]) * (1 - alone["block_limited"])
    assert both["local_spills"] == pytest.approx(1 - remaining)
    assert remaining < 1 - alone["local_spills"]


def test_spills_that_no_warp_waits_for_cost_nothing() -> None:
    # FlashAttention-2 keeps three tenths of its L1 traffic in local memory and waits for the pipes.
    spills: dict[str, Any] = {"local_bytes": 3e8, "l1_bytes": 1e9, "lsu_pct": 50.0, "l2_pct": 30.0}
    assert "local_spills" not in [c.key for c in causes(row(**spills, **waits("wait", 0.9)), H200)]
    cause = first(**spills, **waits("lg_throttle", 0.8))
    assert cause.key == "local_spills"
    assert cause.gain == pytest.approx(0.8 * 0.3)
    assert causes(row(**spills), H200) == []  # without stalls it abstains


def test_contended_atomics_leave_what_dram_needs() -> None:
    busy: dict[str, Any] = {"atomic_instructions": 13200 * 8, "dram_pct": 30.0}
    # One address keeps the unit of its slice busy in a third of the cycles.
    assert first(**busy, atomic_pct=33.3).gain == pytest.approx(1 - 0.3 / 0.9)
    assert first(**busy, atomic_pct=1.0, **waits("lg_throttle", 0.6)).gain == pytest.approx(0.6)
    one_a_block: dict[str, Any] = busy | {"atomic_instructions": 13200}
    assert causes(row(**one_a_block, atomic_pct=33.3), H200) == []


def test_fences_of_atomics_are_time_of_atomics() -> None:
    # Atomics of Triton have an order: a fence (membar) stands beside each.
    stalls = {"long_scoreboard": 0.53, "membar": 0.43, "wait": 0.04}
    fenced = waits("long_scoreboard", 0.53) | {"stalls": stalls, "issue_active_pct": 1.0}
    cause = first(atomic_instructions=13200 * 8, atomic_pct=9.5, **fenced)
    assert cause.key == "atomics"
    assert cause.gain == pytest.approx(1 - 0.05 / 0.9)  # then as busy as its memory is


def test_work_on_padding_leaves_what_masks_let_through() -> None:
    masked: dict[str, Any] = {"unmasked_share": 0.22, "tensor_pct": 42.0, "bound_by": "l1"}
    cause = first(**masked)
    assert cause.key == "masked_work"
    assert "masked_work" not in keys(**masked | {"unmasked_share": 0.9})
    assert "masked_work" not in keys(**masked | {"tensor_pct": 0.0}, flops_tensor=0.0)


def test_a_sort_of_which_little_is_stored_can_go() -> None:
    sorts: dict[str, Any] = {"sorting_share": 0.77, "bound_by": "latency",
                             "global_load_bytes": 537e6, "global_store_bytes": 17e6}  # fmt: skip
    assert "sorted_for_few" in keys(**sorts)
    assert "sorted_for_few" not in keys(**sorts | {"global_store_bytes": 537e6})
    assert "sorted_for_few" not in keys(**sorts | {"sorting_share": 0.1})


@pytest.mark.parametrize(
    ("share", "enough", "few", "rule", "gain"),
    [
        ("halves", 0.9, 0.3, "scalar_halves", 0.45),
        ("drawn", 0.88, 0.2, "random_numbers", 0.66),
        ("exchanged", 0.21, 0.05, "exchanges_each_pass", None),
        ("fixed", 0.5, 0.05, "stored_each_pass", None),
        ("triangle", 0.96, 0.2, "quadratic_loop", None),
        ("heap", 0.97, 0.2, "device_heap", None),
        ("calls", 0.5, 0.1, "indirect_calls", 0.5),
        ("lookups", 0.8, 0.2, "table_lookups", 0.8),
        ("sides", 0.9, 0.2, "both_sides", 0.45),
        ("same", 0.9, 0.4, "same_loads", 0.9),
        ("tree", 0.54, 0.2, "block_tree", None),
        ("again", 0.33, 0.1, "several_passes", 0.33),
    ],
)
def test_code_tells_what_a_loop_repeats(
    share: str, enough: float, few: float, rule: str, gain: float | None
) -> None:
    code: dict[str, Any] = {"bound_by": "latency", f"{share}_share": enough, "tensor_pct": 0.0}
    found = [cause for cause in causes(row(**code), H200) if cause.key == rule]
    assert [cause.gain for cause in found] == [pytest.approx(gain) if gain else found[0].gain]
    assert rule not in keys(**code | {f"{share}_share": few})
    assert rule not in keys(**code | {"library": "PyTorch"})


def test_scattered_sectors_that_no_cache_keeps_cost_bursts_of_dram() -> None:
    scattered: dict[str, Any] = {"global_load_bytes": 1.7e9, "global_load_efficiency_pct": 24.0,
                                 "global_store_bytes": 1e8, "global_store_efficiency_pct": 100.0,
                                 "dram_bytes": 11.6e9, "dram_pct": 57.0, "bound_by": "latency",
                                 **waits("long_scoreboard", 0.9)}  # fmt: skip
    far, near = (first(**scattered, dram_read_bytes=read) for read in (11.5e9, 2e9))
    assert (far.key, near.key) == ("uncoalesced_loads", "uncoalesced_loads")
    assert far.gain > near.gain + 0.05


def test_a_full_pipe_of_special_functions_is_no_latency() -> None:
    # A kernel that counts bits (POPC, 16 threads a cycle) and finds the queue of that pipe full.
    full: dict[str, Any] = {"bound_by": "latency", "issue_active_pct": 42.0, "sm_active_pct": 99.0,
                            **waits("mio_throttle", 0.7)}  # fmt: skip
    assert first(**full, special_share=0.05).gain > 0.5
    assert first(**full, special_share=0.29).gain < 0.05


def test_blocks_that_end_at_once_are_told_by_their_time() -> None:
    short: dict[str, Any] = {"waves": 496.0, "achieved_occupancy_pct": 75.0, "bound_by": "latency",
                             "theoretical_occupancy_pct": 100.0, "duration_ns": 389e3}  # fmt: skip
    assert "short_blocks" in keys(**short)  # of 0.6 us
    assert "short_blocks" not in keys(**short | {"duration_ns": 1e6})
    assert "short_blocks" not in keys(**short | {"waves": 4.0})


@pytest.mark.parametrize(("flops", "left"), [(0.39, 0.39 / 0.6), (0.05, 0.305 / 0.8)])
def test_products_by_hand_end_at_what_their_like_reach_of_the_tensor_cores(
    flops: float, left: float
) -> None:
    # Two Triton products behind L2, as of H200 (three fifths of the roof), and DRAM beside them.
    rate = flops * SMS * 4096 * CLOCK * DURATION / 1e9
    product = row(bound_by="l2", flops_tensor=rate, tensor_pct=100 * flops, tensor_dtype="bf16",
                  dram_pct=30.5, library="Triton", flop_throughput=rate)  # fmt: skip
    assert resource_use(product, H200)["tensor"] == pytest.approx(flops)
    assert _work_alone(product, H200)[0] == pytest.approx(left)


def test_functions_of_tens_of_instructions_are_told_where_nothing_else_is() -> None:
    sines: dict[str, Any] = {"functions_share": 0.59, "issue_active_pct": 85.0, "bound_by": "issue"}
    cause = first(**sines)
    assert cause.key == "slow_functions"
    assert cause.gain == pytest.approx(0.9 * 0.59)
    # Angles that are large go through local memory: these are no spilled registers.
    slow_path: dict[str, Any] = {"local_bytes": 9e8, "l1_pct": 70.0}
    assert keys(**sines, **slow_path) == {"slow_functions"}
    assert "local_spills" in keys(**sines | slow_path | {"functions_share": 0.1})
    assert "slow_functions" not in keys(**sines, sides_share=0.9)  # half of them are dropped
    assert "slow_functions" not in keys(**sines, library="PyTorch")


def test_blocks_of_less_than_a_warp_are_no_divergence() -> None:
    narrow: dict[str, Any] = {"block": "8x1x1", "threads_per_instruction": 8.0,
                              "issue_active_pct": 60.0, "bound_by": "issue"}  # fmt: skip
    cause = first(**narrow)
    assert cause.key == "narrow_blocks"
    assert cause.gain == pytest.approx(0.75)
    assert "8 of the 32 threads" in english(cause.clause)
    assert "divergence" not in keys(**narrow)
    assert "divergence" in keys(**narrow | {"block": "32x1x1"})


def test_what_waits_for_special_functions_uses_no_shared_memory() -> None:
    waiting = waits("short_scoreboard", 0.7)
    assert "special functions (square roots" in english(
        first(**waiting, shared_memory_bytes=0.0).clause
    )
    assert "shared memory" in english(first(**waiting, shared_memory_bytes=1e6).clause)


def test_more_warps_help_little_where_others_are_ready_whenever_one_issues() -> None:
    few: dict[str, Any] = {"theoretical_occupancy_pct": 43.8, "achieved_occupancy_pct": 39.1,
                           "occupancy_limiter": "registers", "top_stall": "long_scoreboard",
                           "stall_share": 0.46}  # fmt: skip
    ready = {"long_scoreboard": 0.46, "selected": 0.11, "not_selected": 0.19}
    assert "register_limited" not in keys(**few, stalls=ready)
    assert "register_limited" in keys(**few, stalls=ready | {"not_selected": 0.02})


def test_approximate_functions_leave_the_other_instructions() -> None:
    exact: dict[str, Any] = {"exact_share": 0.49, "issue_active_pct": 62.0, "bound_by": "issue"}
    cause = first(**exact)
    assert cause.key == "exact_math"
    assert cause.gain == pytest.approx(0.49)
    assert "exact_math" not in keys(**exact | {"exact_share": 0.1})
    assert "exact_math" not in keys(**exact, library="PyTorch")
    assert "exact_math" not in keys(**exact | {"issue_active_pct": 5.0})


@pytest.mark.parametrize(
    ("sass", "more"),
    [
        ("I2F.U32.RP R0, UR9", 16),
        ("I2F.U64.RP R13, R6", 60),
        ("FCHK P0, R3, R4", 8),
        ("I2F.F64.U32 R2, R4", 0),
        ("F2I.U64.TRUNC R16, R16", 0),
    ],
)
def test_divisions_are_told_by_the_instruction_that_begins_them(sass: str, more: int) -> None:
    assert sum(times for at, times in EXACT_MORE.items() if re.search(at, sass)) == more


def test_atomics_that_do_not_set_the_pace_are_no_cause() -> None:
    def keys(**known: Any) -> list[str]:
        return [c.key for c in causes(row(atomic_instructions=13200 * 8, **known), H200)]

    # One sum a warp behind a long loop: it is the loads that warps wait for.
    loop: dict[str, Any] = {"atomic_pct": 1.0, **waits("long_scoreboard", 0.9)}
    assert "atomics" in keys(**loop)
    assert "atomics" not in keys(**loop, global_load_bytes=1e10)
    # Many addresses: each slice of L2 is as busy as one would be with a single address.
    assert "atomics" not in keys(atomic_pct=33.3, dram_pct=75.0, bound_by="dram")


def test_divergent_warps_could_do_with_fewer_instructions() -> None:
    cause = first(threads_per_instruction=4.0, issue_active_pct=95.0, bound_by="issue")
    assert cause.key == "divergence"
    # The issue slots are relieved as well: they are no floor.
    assert cause.gain == pytest.approx(1 - 4 / 32)
    # Few threads beside a wait for memory cost nothing.
    quiet = row(threads_per_instruction=4.0, issue_active_pct=5.0, **waits("long_scoreboard", 0.9))
    assert [c.key for c in causes(quiet, H200)] == ["latency"]


def test_queues_of_divergent_warps_go_with_their_instructions() -> None:
    # Special functions through a full queue: as many instructions, of whole warps.
    stalls = {"mio_throttle": 0.6, "wait": 0.4}
    cause = first(threads_per_instruction=4.0, issue_active_pct=55.0, top_stall="mio_throttle",
                  stall_share=0.6, stalls=stalls)  # fmt: skip
    assert cause.key == "divergence"
    assert cause.gain == pytest.approx(1 - 4 / 32)


def test_issue_slots_full_of_masked_threads_leave_what_bytes_and_flops_need() -> None:
    masked: dict[str, Any] = {
        "threads_per_instruction": 26.0, "issue_active_pct": 75.0, "bound_by": "issue",
        "flop_throughput": 0.04 * FP32_ROOF, "dram_pct": 8.0, "l2_pct": 5.0, "l1_pct": 2.0,
    }  # fmt: skip
    cause = first(**masked)
    assert cause.key == "idle_lanes"
    assert cause.gain == pytest.approx(1 - 0.08 / 0.8)
    assert "idle_lanes" not in keys(**masked | {"dram_pct": 30.0})
    assert "idle_lanes" not in keys(**masked, library="PyTorch")


# Each multiply-add loads both of its numbers again: 8 bytes through L1 for 2 FLOPs.
NAIVE: dict[str, Any] = {
    "flops": 1e9, "l1_bytes": 4e9, "dram_bytes": 2e7, "global_store_bytes": 1e7, "dram_pct": 1.0,
    "lsu_pct": 85.0, "bound_by": "l1", "flops_fp32": 0.1 * FP32_ROOF * DURATION / 1e9,
}  # fmt: skip


def test_numbers_that_are_loaded_for_each_use_could_stay_in_tiles() -> None:
    cause = first(**NAIVE)
    assert cause.key == "repeated_loads"
    # Tiles by hand reach half of a roof.
    assert cause.gain == pytest.approx(1 - 0.1 / 0.5, abs=0.01)
    assert "repeated_loads" not in keys(**NAIVE | {"l1_bytes": 4e8})
    assert "repeated_loads" not in keys(**NAIVE, library="cuBLAS")
    # A product by hand has loads for each multiply-add: where most is floats, they are the work.
    assert "repeated_loads" in keys(**NAIVE, float_share=0.33)
    assert "repeated_loads" not in keys(**NAIVE, float_share=0.44)


def test_tensor_cores_that_wait_for_loads_through_registers_lack_a_pipeline() -> None:
    loop: dict[str, Any] = {
        "tensor_pct": 35.0, "flops_tensor": 1e12, "global_load_bytes": 9e8, "bound_by": "l1",
        "lsu_pct": 80.0, "top_stall": "long_scoreboard", "stall_share": 0.6,
        "stalls": {"long_scoreboard": 0.6, "barrier": 0.3, "wait": 0.1},
    }  # fmt: skip
    assert "unpipelined_loads" in keys(**loop)
    # Asynchronous copies are no loads of threads.
    assert "unpipelined_loads" not in keys(**loop | {"global_load_bytes": 1e7})


def test_an_attention_that_loads_by_thread_reads_a_mask() -> None:
    masked: dict[str, Any] = {
        "category": "attention", "library": "cuDNN", "tensor_pct": 40.0, "flops_tensor": 1e12,
        "global_load_bytes": 2e8, "bound_by": "latency", **waits("long_scoreboard", 0.4),
    }  # fmt: skip
    found = {c.key: c.gain for c in causes(row(**masked), H200)}
    assert found["attention_mask"] == pytest.approx(1 - 0.5 * (1 - 0.4))
    assert "attention_mask" not in keys(**masked | {"global_load_bytes": 2e6})


def test_pairs_of_adds_and_muls_could_be_one_instruction() -> None:
    # All instructions unfused: half of the roof's FLOPs keep the pipe full.
    flops = 0.48 * FP32_ROOF * DURATION / 1e9
    cause = first(fusable_pct=50.0, flops_fp32=flops, issue_active_pct=97.0, bound_by="issue")
    assert cause.key == "unfused_fma"
    assert cause.gain == pytest.approx(0.96 * 0.5)
    idle_pipe = row(fusable_pct=50.0, flops_fp32=flops / 10)
    assert causes(idle_pipe, H200) == []


def test_sums_that_take_no_product_cannot_be_fused() -> None:
    apart: dict[str, Any] = {"fusable_pct": 50.0, "issue_active_pct": 97.0, "bound_by": "issue",
                             "flops_fp32": 0.48 * FP32_ROOF * DURATION / 1e9}  # fmt: skip
    assert "unfused_fma" not in keys(**apart, pairs_share=0.03)
    assert first(**apart, pairs_share=0.25).gain == pytest.approx(0.96 * 0.25)


def test_data_that_comes_again_and_again_needs_to_come_once() -> None:
    known = Context(SMS, ROOFS, {"k1": Need(bytes=1e9)})
    cause = first(known, dram_bytes=1.6e10, dram_pct=92.0, l2_pct=40.0, bound_by="dram")
    assert cause.key == "l2_thrashing"
    assert cause.gain == pytest.approx(0.6)  # L2 needs what it needed
    assert "16 times the bytes" in english(cause.clause)
    streamed = row(dram_bytes=1.05e9, dram_pct=92.0, l2_pct=40.0, bound_by="dram")
    assert causes(streamed, known) == []


def test_data_that_comes_again_costs_no_more_than_the_time_of_dram() -> None:
    known = Context(SMS, ROOFS, {"k1": Need(bytes=1e9)})
    (twice,) = [c for c in causes(row(dram_bytes=4e9, dram_pct=30.0), known)
                if c.key == "l2_thrashing"]  # fmt: skip
    assert twice.gain == pytest.approx(0.3 * (1 - 1 / 4))


def test_blocks_that_share_an_sm_lose_less_in_the_last_wave() -> None:
    # Two blocks fill an SM; 272 blocks are 1.03 waves of places, and 2.06 rounds of the SMs.
    tail: dict[str, Any] = {
        "grid": "272x1x1",
        "waves": 272 / 264,
        "sm_balance_pct": 70.0,
        "sm_active_pct": 68.0,
    }
    waiting = first(**tail, issue_active_pct=20.0)
    assert waiting.key == "tail"
    assert waiting.gain == pytest.approx(1 - 272 / 264 / 2)
    # Busy SMs give a block that is alone all of their slots.
    flops = 0.6 * FP32_ROOF * DURATION / 1e9
    busy = first(**tail, issue_active_pct=95.0, flops_fp32=flops, bound_by="issue")
    assert busy.gain == pytest.approx(1 - 272 / 132 / 3)


def test_one_wave_and_a_bit_counts_where_the_sms_show_it() -> None:
    tail: dict[str, Any] = {"grid": "140x1x1", "waves": 140 / 132, "sm_active_pct": 55.0}
    assert first(**tail, sm_balance_pct=55.0).key == "tail"
    assert causes(row(**tail | {"sm_active_pct": 98.0}, sm_balance_pct=99.0), H200) == []


def test_a_block_of_one_warp_leaves_more_empty_than_sms() -> None:
    few: dict[str, Any] = {"grid": "96x1x1", "waves": 0.02, "achieved_occupancy_pct": 1.0}
    few |= {"theoretical_occupancy_pct": 50.0, **waits("long_scoreboard", 0.9)}
    assert first(**few, block="32x1x1").key == "few_blocks"
    assert first(**few, block="256x1x1").key == "small_grid"


def test_uneven_blocks_cost_what_the_mean_sm_waits() -> None:
    uneven: dict[str, Any] = {"sm_balance_pct": 40.0, "sm_active_pct": 38.0}
    cause = first(grid="13200x1x1", waves=12.5, **uneven)
    assert cause.key == "imbalance"
    assert cause.gain == pytest.approx(0.95 - 0.38)
    # Of blocks that all start at once, places stand empty too: a quarter of the warps is there.
    at_once = first(grid="264x1x1", waves=1.0, achieved_occupancy_pct=25.0, **uneven)
    assert at_once.gain == pytest.approx(1 - (1 - 0.95 + 0.38) * 0.25)
    # Places that never had a block, as less than a wave leaves them, are no unequal length.
    few = causes(row(grid="264x1x1", waves=0.25, achieved_occupancy_pct=20.0, **uneven), H200)
    uneven_alone = next(cause for cause in few if cause.key == "imbalance")
    assert uneven_alone.gain == pytest.approx(1 - (1 - 0.95 + 0.38) * 0.8)


@pytest.mark.parametrize(
    ("limiter", "key"),
    [("registers", "register_limited"), ("shared memory", "shared_limited"),
     ("blocks", "block_limited"), ("warps", "warps_limited"), ("barriers", "barrier_limited")],
)  # fmt: skip
def test_each_limiter_of_occupancy_has_its_rule(limiter: str, key: str) -> None:
    few: dict[str, Any] = {"theoretical_occupancy_pct": 25.0, "achieved_occupancy_pct": 24.0,
           "occupancy_limiter": limiter, "dram_pct": 40.0}  # fmt: skip
    cause = first(**few, **waits("long_scoreboard", 0.9))
    assert cause.key == key  # before the wait that more warps would hide
    assert cause.gain == pytest.approx(0.5)  # DRAM needs its 40 %, at 80 % of its roof
    assert "25 %" in english(cause.clause)
    more: dict[str, Any] = few | {"theoretical_occupancy_pct": 75.0, "achieved_occupancy_pct": 74.0}
    assert first(**more, **waits("long_scoreboard", 0.9)).key == "latency"


def test_room_for_warps_is_blamed_where_warps_fill_it_and_waits_were_counted() -> None:
    few: dict[str, Any] = {"theoretical_occupancy_pct": 16.7, "occupancy_limiter": "registers",
           "achieved_occupancy_pct": 11.3, "waves": None}  # fmt: skip
    # The GEMV of an RTX 5090 whose 224 blocks all have a place: more room would stay empty.
    assert "register_limited" not in keys(**few)
    assert "register_limited" in keys(**few | {"achieved_occupancy_pct": 16.0})
    # A k-mer counter whose warps wait for a barrier, as its stalls would tell: 6 of 8 warps fit.
    most = few | {"theoretical_occupancy_pct": 75.0, "achieved_occupancy_pct": 72.6, "waves": 11.4}
    assert "register_limited" not in keys(**most)
    assert "register_limited" in keys(**most, **waits("wait", 0.9))


def test_limits_that_come_with_small_blocks_are_not_blamed() -> None:
    # Blocks of 32 threads that use neither shared memory nor barriers (H200, ncu 2025.3.1).
    tied: dict[str, Any] = {"theoretical_occupancy_pct": 50.0, "achieved_occupancy_pct": 48.9,
            "occupancy_limiter": "shared memory, blocks, barriers"}  # fmt: skip
    assert first(**tied, shared_bytes=0.0).key == "block_limited"
    assert first(**tied, shared_bytes=7000.0).key == "shared_limited"


def gemm(**known: Any) -> dict[str, Any]:
    return {"category": "gemm", "dtype": "fp32", "short_name": "GEMM", "name": "gemm",
            "flop_throughput": 0.8 * FP32_ROOF, "bound_by": "fp32",
            "flops_fp32": 0.8 * FP32_ROOF * DURATION / 1e9} | known  # fmt: skip


def test_an_idle_tensor_core_says_which_type_it_lacks() -> None:
    cause = first(**gemm())
    assert cause.key == "tensor_idle"
    assert "its inputs are FP32, and TF32 is not allowed" in english(cause.clause)
    # TF32 does eight times as many FLOPs a clock.
    assert cause.gain == pytest.approx(1 - 0.8 / 8)


@pytest.mark.parametrize(
    "name",
    ["flash::FlashAttnFwdCombine<cute::tuple>", "cublasLt::splitKreduce_kernel<32>",
     "flash::prepare_varlen_num_blocks_kernel"],
)  # fmt: skip
def test_kernels_beside_a_product_need_no_tensor_core(name: str) -> None:
    beside = row(**gemm(category="attention", name=name, bound_by="latency"))
    assert "tensor_idle" not in [c.key for c in causes(beside, H200)]


def test_sizes_that_are_not_aligned_are_named() -> None:
    known = Context(SMS, ROOFS, {"k1": Need(1e9, (6143, 6143, 6143))})
    slow = gemm(dtype="bf16", tensor_pct=30.0, flops_fp32=0.0, tensor_dtype="bf16",
                flop_throughput=0.3 * SMS * 4096 * CLOCK, bound_by="latency")  # fmt: skip
    cause = first(known, **slow)
    assert cause.key == "misaligned"
    assert "n = 6143 and k = 6143" in english(cause.clause)
    assert cause.gain == pytest.approx(0.7)
    assert unaligned((7, 6144, 6144), "bf16") == ()
    assert unaligned((8, 6142, 6144), "fp32") == ("n = 6142",)


def test_a_rule_abstains_only_where_the_unknown_decides() -> None:
    quiet = row(global_load_efficiency_pct=math.nan, **waits("wait", 0.2))
    _, open_ones = explain(quiet, H200)
    # Nothing waits for memory and no level is busy: the answer is no, whatever the efficiency.
    assert "uncoalesced_loads" not in [a.key for a in open_ones]
    busy = row(global_load_efficiency_pct=math.nan, l2_pct=70.0)
    _, open_ones = explain(busy, H200)
    assert ("uncoalesced_loads", ("global_load_efficiency_pct",)) in [
        (a.key, a.columns) for a in open_ones
    ]


def test_bytes_that_nobody_declares_are_abstained_from_with_the_reason() -> None:
    _, open_ones = explain(row(dram_pct=90.0), H200)
    (thrashing,) = [a for a in open_ones if a.key == "l2_thrashing"]
    assert thrashing.columns == ()
    assert "neither the program nor the torch profiler" in english(thrashing.reason)


COLUMNS = [c.name for c in tables.tables()["counters"] if c.dtype == "float"]


@given(
    values=st.dictionaries(st.sampled_from(COLUMNS), st.floats(0, 130) | st.just(math.nan)),
    stall=st.sampled_from(["long_scoreboard", "wait", "drain", "barrier"]),
    bound=st.sampled_from([*BOUNDS]),
    category=st.sampled_from(["gemm", "other"]),
)
def test_no_gain_goes_beyond_the_roofs_that_the_repair_leaves(
    values: dict[str, float], stall: str, bound: str, category: str
) -> None:
    one = row(bound_by=bound, category=category, occupancy_limiter="registers",
              **values, **waits(stall, 0.5))  # fmt: skip
    known = measure(one, H200)
    use = resource_use(one, H200) | {LSU: number(one["lsu_pct"]) / 100}
    for cause in causes(one, H200):
        assert math.isnan(cause.gain) or 0 <= cause.gain <= 1
        kept = [part for key, part in use.items() if key not in cause.rule.unloads]
        floor = max((part for part in kept if not math.isnan(part)), default=0.0)
        if not math.isnan(cause.gain):
            assert cause.gain <= max(0.0, 1 - floor) + 1e-9
        assert gain(cause.rule, known, use) == pytest.approx(cause.gain, nan_ok=True)
        assert "nan" not in english(cause.clause).lower().split()


def test_every_rule_is_whole() -> None:
    values = measure(row(), H200)
    known = catalogue().columns
    assert len(BY_KEY) == len(RULES)
    for rule in RULES:
        assert rule.question.endswith("?")
        expressions = [rule.when] if rule.promote is None else [rule.when, rule.promote]
        facts = [
            *(c.fact for expression in expressions for c in expression.conditions()),
            *(rule.time, rule.remaining, *rule.evidence, *rule.unloads.values()),
        ]
        for fact in (fact for fact in facts if fact is not None):
            assert fact.name in values, (rule.key, fact.name)
            assert all(c in known or c == "top_stall" for c in fact.of), fact.name
        texts: tuple[Text, ...] = (rule.symptom, rule.remedy, rule.action, rule.advice,
                                   rule.disproof, rule.source)  # fmt: skip
        for words in (*map(english, texts), rule.question, rule.estimate):
            assert 0 < len(words.split()) <= 45, (rule.key, words)
        assert english(rule.source).startswith(("Nsight Compute rule", "prof", "CUDA"))
        assert set(rule.unless) <= set(BY_KEY)
        assert set(rule.bounds) <= set(BOUNDS)


def test_each_bound_has_a_key_of_its_own() -> None:
    assert {key: english(name) for key, name in RESOURCES.items()} == LABELS
    assert len({roof.key for roof in BOUNDS.values()}) == len(BOUNDS)
    assert set(BOUNDS) == set(LABELS)
    assert set(UNITS) | {"issue_slots"} == {unit.name for unit in catalogue().units}
    assert {unit.bound for unit in catalogue().units} < set(BOUNDS)


@pytest.mark.parametrize(
    ("name", "dtype", "slow"),
    [("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32", 0.0),
     ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align1", "tf32", 1.0),
     ("cutlass_80_wmma_tensorop_bf16_s161616gemm_nn_align4", "bf16", 1.0),
     ("cutlass_80_wmma_tensorop_bf16_s161616gemm_nn_align8", "bf16", 0.0),
     ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "fp32", 0.0)],
)  # fmt: skip
def test_an_alignment_in_a_name_counts_elements(name: str, dtype: str, slow: float) -> None:
    assert measure(row(name=name, category="gemm", dtype=dtype), H200)["misaligned"] == slow


@pytest.mark.parametrize(
    ("grid", "missing"), [("66x1x1", 50.0), ("132x1x1", 0.0), ("192x1x1", 0.0)]
)
def test_no_sm_is_without_a_block_where_there_are_more_blocks(grid: str, missing: float) -> None:
    assert measure(row(grid=grid), H200)["blocks_missing"] == pytest.approx(missing)


def test_a_noise_of_the_tensor_pipe_is_no_use_of_the_tensor_cores() -> None:
    simt: dict[str, Any] = {"category": "conv", "dtype": "fp32", "flops_fp32": 3e10,
                            "flops": 3e10, "flop_throughput": 3e13, "tensor_pct": 2.0}  # fmt: skip
    assert first(**simt).key == "tensor_idle"
    # A product of a type whose operations were not asked for does nothing else either.
    found = causes(row(**simt | {"flops_fp32": 0.0}), H200)
    assert "tensor_idle" not in [cause.key for cause in found]


OPTIONAL = ("grid", "issue_active_pct", "sm_active_pct", "sm_balance_pct", "atomic_pct", "l1_bytes",
            "theoretical_occupancy_pct", "dram_bytes", "l2_bytes", "global_load_bytes")  # fmt: skip
WORSE: dict[str, Any] = {
    "waves": 0.3, "achieved_occupancy_pct": 20.0, "sm_balance_pct": 40.0, "fusable_pct": 60.0,
    "global_load_efficiency_pct": 12.5, "threads_per_instruction": 4.0, "atomic_instructions": 1e9,
    "shared_conflict_pct": 90.0, "occupancy_limiter": "registers", "shared_bytes": 0.0,
}  # fmt: skip


@given(st.sets(st.sampled_from(OPTIONAL)), st.sets(st.sampled_from(sorted(WORSE))))
def test_a_sentence_never_holds_a_number_that_is_not_known(
    unknown: set[str], bad: set[str]
) -> None:
    known = {name: WORSE[name] for name in bad} | dict.fromkeys(unknown)
    for cause in causes(row(**known), H200):
        assert "n/a" not in english(cause.clause)


def test_blocks_of_an_unknown_grid_are_just_blocks() -> None:
    few: dict[str, Any] = {"waves": 0.001, "achieved_occupancy_pct": 5.0, "grid": None}
    (cause,) = (c for c in causes(row(**few), H200) if c.key == "few_blocks")
    assert english(cause.clause).startswith("its blocks are only 0.10 %")


def test_double_precision_costs_what_the_fp64_pipe_takes_more_than_fp32() -> None:
    roofs = Ceilings({}, {("fp32", "fp32"): ceiling("fp32", "fp32", FP32_ROOF),
                          ("fp64", "fp64"): ceiling("fp64", "fp64", FP32_ROOF / 2)})  # fmt: skip
    half_a_ms = 0.8 * FP32_ROOF / 2 * DURATION / 1e9
    cause = first(
        Context(SMS, roofs), flops_fp64=half_a_ms, flops_fp32=half_a_ms / 2, fusable_pct=0.0,
        bound_by="fp64", issue_active_pct=70.0,
    )  # fmt: skip
    assert cause.key == "double_precision"
    # Of the 80 % of the time in which the pipe works half is left; nothing else takes longer.
    assert cause.gain == pytest.approx(0.8 * 0.5)
    assert causes(row(flops_fp64=half_a_ms / 10, flops_fp32=half_a_ms), H200) == []


def test_a_few_double_constants_are_told_before_functions_of_the_same_lines() -> None:
    """A helix of muons (H200): 20 % of the FLOPs in double, 50 % of the code in lines of sinf."""
    roofs = Ceilings({}, {("fp64", "fp64"): ceiling("fp64", "fp64", FP32_ROOF / 2)})
    double = 0.15 * FP32_ROOF / 2 * DURATION / 1e9
    cause = first(
        Context(SMS, roofs), flops_fp64=double, flops_fp32=4 * double, functions_share=0.5,
        bound_by="issue", issue_active_pct=84.0, fusable_pct=0.0,
    )  # fmt: skip
    assert cause.key == "double_precision"
    assert cause.gain == pytest.approx(0.2 * 2 / 3)


def test_functions_of_double_that_fill_the_issue_slots_leave_a_third() -> None:
    roofs = Ceilings({}, {("fp64", "fp64"): ceiling("fp64", "fp64", FP32_ROOF / 2)})
    flops = 0.7 * FP32_ROOF / 2 * DURATION / 1e9

    def saved(issued: float) -> float:
        return first(
            Context(SMS, roofs), flops_fp64=flops, flops_fp32=flops / 19, fusable_pct=0.0,
            bound_by="fp64", issue_active_pct=issued, sm_active_pct=100.0,
        ).gain  # fmt: skip

    # An exponential for each number: single ones have no more than a third of its instructions.
    assert saved(issued=64.0) == pytest.approx(0.95 * (1 - 1 / 3))
    assert saved(issued=40.0) == pytest.approx(0.7 * 0.5)


@pytest.mark.parametrize(("loaded", "key"), [(1, "narrow_accesses"), (2, "narrow_accesses"),
                                             (4, "latency")])  # fmt: skip
def test_few_bytes_a_thread_are_told_before_the_wait_for_them(loaded: int, key: str) -> None:
    threads = 13200 * 256
    cause = first(global_load_bytes=loaded * threads, **waits("long_scoreboard", 0.8))
    assert cause.key == key


PRODUCT: dict[str, Any] = {
    "flops_fp32": 0.5 * FP32_ROOF * DURATION / 1e9, "fusable_pct": 1.0, "shared_memory_bytes": 1e9,
    "global_load_bytes": 1e8, "global_store_bytes": 1e7,
}  # fmt: skip


def test_a_kernel_of_no_known_kind_that_multiplies_matrices_misses_the_tensor_cores() -> None:
    flops: dict[str, Any] = {"flop_throughput": 0.5 * FP32_ROOF}
    assert first(**PRODUCT, **flops).key == "tensor_idle"
    # Without tiles in shared memory, with other arithmetic, or with few FLOPs for each byte.
    for other in ({"shared_memory_bytes": 0.0}, {"fusable_pct": 20.0}, {"global_load_bytes": 5e9}):
        assert "tensor_idle" not in {c.key for c in causes(row(**PRODUCT | other, **flops), H200)}


def test_stores_that_l1_merges_are_no_reason_for_full_dram() -> None:
    # The sectors are half empty, yet DRAM moves hardly more than the threads ask for: 537 of 517.
    found = causes(
        row(global_store_efficiency_pct=50.0, global_load_bytes=2.6e8, global_store_bytes=2.57e8,
            dram_bytes=5.37e8, l2_bytes=5.5e8, dram_pct=95.0, l2_pct=50.0, bound_by="dram"),
        H200,
    )  # fmt: skip
    assert "uncoalesced_stores" not in {cause.key for cause in found}
