import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row
from nsight_prof.reports.analysis.profiled import INDEXED_CONSTANTS, TRACE_ONLY
from nsight_prof.reports.findings.kernels.causes import causes
from nsight_prof.reports.findings.kernels.fact import Context
from nsight_prof.reports.findings.kernels.measure import blocks
from nsight_prof.reports.findings.kernels.waits import stall_meaning
from tests.reports.programs import amount, english

SMS = 132.0
H200 = Context(sms=SMS)


def row(**known: Any) -> Row:
    columns = [c.name for c in tables.tables()["counters"]] + [*TRACE_ONLY, "stall_share"]
    return dict.fromkeys(columns) | {"grid": "1056x1x1", "category": "elementwise"} | known


def keys(**known: Any) -> list[str]:
    return [cause.key for cause in causes(row(**known), H200)]


def test_each_cause_is_told_once() -> None:
    # Few warps are told before a stall reason, and the rule after it finds them again.
    found = keys(theoretical_occupancy_pct=100.0, achieved_occupancy_pct=40.0,
                 top_stall="long_scoreboard", stall_share=0.8)  # fmt: skip
    assert found == ["achieved_occupancy", "latency"]


def test_several_limiters_read_as_a_list() -> None:
    (cause,) = causes(
        row(theoretical_occupancy_pct=12.5, occupancy_limiter="registers, shared memory"), H200
    )
    assert english(cause.clause).startswith("registers and shared memory per block allow only 12 %")


def test_nothing_known_is_no_cause() -> None:
    assert keys() == []


@pytest.mark.parametrize(
    ("known", "key", "gain"),
    [
        ({"grid": "33x1x1"}, "small_grid", 0.75),
        ({"waves": 2.5}, "tail", 1 / 6),
        ({"theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 60.0},
         "achieved_occupancy", 0.4),
        ({"theoretical_occupancy_pct": 25.0, "occupancy_limiter": "registers"},
         "register_limited", 0.75),
        ({"top_stall": "barrier", "stall_share": 0.5}, "latency", 0.5),
        ({"waves": 0.1, "theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 13.0},
         "few_blocks", 0.87),
    ],
)  # fmt: skip
def test_rules_of_nsight_compute_estimate_the_gain(
    known: dict[str, Any], key: str, gain: float
) -> None:
    (cause,) = causes(row(**known), H200)
    assert cause.key == key
    assert cause.gain == pytest.approx(gain)
    assert english(cause.evidence[0].source).startswith("Nsight Compute rule")


@pytest.mark.parametrize(
    ("known", "key"),
    [
        ({"grid": "128x1x1"}, "small_grid"),
        ({"waves": 5.5}, "tail"),
        ({"waves": 1.91}, "tail"),
        ({"waves": 2.0}, "tail"),
        ({"waves": 1.2, "grid": "132x1x1"}, "tail"),
        ({"theoretical_occupancy_pct": 85.0, "occupancy_limiter": "warps"},
         "warps_limited"),
        ({"theoretical_occupancy_pct": 50.0}, "register_limited"),
        ({"theoretical_occupancy_pct": 50.0, "achieved_occupancy_pct": 41.0},
         "achieved_occupancy"),
        ({"top_stall": "barrier", "stall_share": 0.29}, "latency"),
        ({"top_stall": "barrier", "stall_share": 0.9, "issue_active_pct": 85.0}, "latency"),
        ({"shared_wavefront_efficiency_pct": 5.0, "l1_pct": 2.0}, "bank_conflicts"),
        ({"global_sector_efficiency_pct": 25.0, "dram_pct": 3.0}, "uncoalesced"),
        ({"category": "gemm", "tensor_pct": 40.0}, "tensor_idle"),
        ({"category": "elementwise", "tensor_pct": 0.0}, "tensor_idle"),
        ({"category": "gemm"}, "tensor_idle"),
    ],
)  # fmt: skip
def test_below_its_threshold_a_rule_is_silent(known: dict[str, Any], key: str) -> None:
    assert key not in keys(**known)


@pytest.mark.parametrize(
    ("known", "key"),
    [
        ({"shared_wavefront_efficiency_pct": 40.0, "l1_pct": 70.0}, "bank_conflicts"),
        ({"global_sector_efficiency_pct": 25.0, "l2_pct": 50.0}, "uncoalesced"),
    ],
)
def test_wasteful_accesses_are_a_cause_where_the_level_is_busy(
    known: dict[str, Any], key: str
) -> None:
    assert keys(**known) == [key]


TRANSPOSE: dict[str, Any] = {
    "global_sector_efficiency_pct": 22.2, "dram_pct": 12.2, "l2_pct": 23.6, "l1_pct": 7.3,
    "top_stall": "drain", "stall_share": 0.44, "waves": 248.2, "grid": "256x1024x1",
    "achieved_occupancy_pct": 74.7, "theoretical_occupancy_pct": 100.0, "issue_active_pct": 4.9,
}  # fmt: skip


def test_scattered_stores_explain_a_transpose_and_not_its_occupancy() -> None:
    first, *others = causes(row(**TRANSPOSE), H200)
    assert first.key == "uncoalesced"
    assert "use 7.1 of the 32 bytes of each sector" in english(first.clause)
    assert amount(first.evidence[0]) == 22.2
    assert "UncoalescedGlobal" in english(first.evidence[0].source)
    assert [cause.key for cause in others] == ["latency", "achieved_occupancy"]


@pytest.mark.parametrize(("dram", "gain"), [(12.2, 0.94 * 0.778), (45.0, 1 - 45 / 90)])
def test_useful_sectors_alone_still_take_the_time_that_dram_needs(dram: float, gain: float) -> None:
    # Warps wait for memory in 94 % of their stalls: what they do else does not go. DRAM is
    # reached to nine tenths of its roof at most.
    stalls = {"drain": 0.44, "long_scoreboard": 0.5, "selected": 0.06}
    (first, *_) = causes(row(**TRANSPOSE | {"dram_pct": dram}, stalls=stalls), H200)
    assert first.gain == pytest.approx(gain)


def test_waiting_for_memory_is_enough_for_scattered_accesses_to_matter() -> None:
    quiet = {"global_sector_efficiency_pct": 25.0, "dram_pct": 3.0, "l2_pct": 9.0}
    assert keys(**quiet) == []
    assert keys(**quiet, top_stall="lg_throttle", stall_share=0.5)[0] == "uncoalesced"
    assert "uncoalesced" not in keys(**quiet, top_stall="barrier", stall_share=0.5)


def test_few_warps_come_before_what_they_wait_for() -> None:
    known = {"theoretical_occupancy_pct": 100.0, "top_stall": "wait", "stall_share": 0.5}
    assert keys(**known, achieved_occupancy_pct=30.0)[0] == "achieved_occupancy"
    assert keys(**known, achieved_occupancy_pct=70.0)[0] == "latency"


def test_a_matrix_product_without_tensor_cores_comes_first() -> None:
    assert keys(category="gemm", tensor_pct=0.0, grid="8x1x1")[0] == "tensor_idle"


def test_an_unknown_number_of_sms_tells_no_small_grid() -> None:
    assert causes(row(grid="8x1x1"), Context()) == []


def test_a_grid_that_is_none_has_unknown_blocks() -> None:
    assert blocks("4x2x3") == 24
    assert blocks("") != blocks("")


NUMBERS = [c.name for c in tables.tables()["counters"] if c.dtype in ("float", "int")]


@given(
    st.lists(
        st.sampled_from([None, None, 0.1, 3.0, 25.0, 60.0, 100.0]),
        min_size=len(NUMBERS),
        max_size=len(NUMBERS),
    ),
    st.sampled_from(["", "8x1x1", "1056x1x1"]),
    st.sampled_from([{}, {"theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 20.0}]),
    st.sampled_from([Context(), H200]),
    st.sampled_from(["gemm", "elementwise", "other"]),
)
@settings(derandomize=True, max_examples=80)
def test_no_sentence_of_a_cause_shows_what_is_not_known(
    values: list[float | None],
    grid: str,
    warps: dict[str, float],
    context: Context,
    category: str,
) -> None:
    known = dict(zip(NUMBERS, values, strict=True)) | warps
    for cause in causes(row(**known, grid=grid, category=category), context):
        assert not {"n/a", "nan"} & set(english(cause.clause).replace(",", " ").split()), cause


def test_an_unknown_stall_reason_is_shown_as_it_is() -> None:
    assert english(stall_meaning("new_reason")) == "(new reason)"


LIMITED: dict[str, Any] = {
    "theoretical_occupancy_pct": 12.5, "achieved_occupancy_pct": 12.4, "waves": 10.0,
    "occupancy_limiter": "registers", "bound_by": "latency", "dram_pct": 30.0,
    "global_load_efficiency_pct": 100.0, "global_load_bytes": 9e8, "global_store_bytes": 1e8,
    "global_store_efficiency_pct": 50.0, "top_stall": "long_scoreboard", "stall_share": 0.8,
    "stalls": {"long_scoreboard": 0.8, "wait": 0.2},
}  # fmt: skip


def test_of_two_causes_the_larger_gain_is_told_first() -> None:
    first, second, *others = causes(row(**LIMITED), H200)
    assert (first.key, second.key) == ("register_limited", "uncoalesced_stores")
    # DRAM needs three tenths, and more warps take it to eight tenths of its roof.
    assert first.gain == pytest.approx(1 - 0.3 / 0.8)
    # Half of the sectors of stores are no use: 1 of 11 sectors, in the stalls for memory.
    assert second.gain == pytest.approx(0.8 / 11)
    assert [cause.key for cause in others] == ["latency"]


def test_of_gains_that_end_at_one_roof_the_defect_is_told_first() -> None:
    known = LIMITED | {"global_load_efficiency_pct": 12.5, "dram_bytes": 1e9}
    keys = [cause.key for cause in causes(row(**known), H200)]
    assert keys[:2] == ["uncoalesced_accesses", "register_limited"]


@pytest.mark.parametrize(("queue", "gain"), [("lg_throttle", 0.25), ("barrier", 1 - 0.3 / 0.8)])
def test_more_warps_hide_no_full_queue(queue: str, gain: float) -> None:
    stalls = {"long_scoreboard": 2 / 7, queue: 5 / 7}
    known = LIMITED | {"global_store_efficiency_pct": 100.0, "stalls": stalls}
    (limited,) = [c for c in causes(row(**known), H200) if c.key == "register_limited"]
    assert limited.gain == pytest.approx(gain)  # 2 / 7 x 7 / 8, or up to 80 % of the roof of DRAM


def test_registers_limit_no_grid_that_leaves_places_empty() -> None:
    few = LIMITED | {"waves": 0.3, "achieved_occupancy_pct": 3.7}
    assert "register_limited" not in [cause.key for cause in causes(row(**few), H200)]


def test_a_last_wave_that_costs_less_hides_no_imbalance() -> None:
    known = {"waves": 1.7, "grid": "224x1x1", "sm_balance_pct": 40.0, "sm_active_pct": 40.0}
    first, second = causes(row(**known), H200)
    assert (first.key, second.key) == ("imbalance", "tail")
    # Where it explains the balance, it is told alone.
    assert keys(**known | {"sm_balance_pct": 85.0, "sm_active_pct": 85.0}) == ["tail"]


@pytest.mark.parametrize(("share", "told"), [(0.8, True), (0.1, False)])
def test_constants_by_an_index_of_the_thread_cost_what_warps_stand_at_them(
    share: float, told: bool
) -> None:
    known = row(constants_share=share, dram_pct=1.0, l1_pct=5.0, l2_pct=3.0)
    found = [c for c in causes(known, H200) if c.key == "constant_loads"]
    assert [c.gain for c in found] == [pytest.approx(share)] * told


@pytest.mark.parametrize(
    ("sass", "is_indexed"),
    [
        ("LDC R5, c[0x3][R4]", True),
        ("@!P0 LDC.U8 R4, c[0x3][R2+0x40]", True),
        ("LDC R1, c[0x0][0x28]", False),
        ("LDC.64 R8, c[0x0][UR4]", False),
        ("LDG.E R4, desc[UR4][R2.64]", False),
    ],
)
def test_loads_of_constants_are_told_from_those_at_one_address(sass: str, is_indexed: bool) -> None:
    assert bool(re.search(INDEXED_CONSTANTS, sass)) is is_indexed
