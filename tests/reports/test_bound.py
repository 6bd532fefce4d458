import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.bound import MEMORY_BUSY, SM_BUSY, assign_bounds, bound_gaps
from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.metrics.catalogue import UTILIZATION
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.roofs import limit_clause
from nsight_prof.reports.findings.kernels.waits import STALLS
from nsight_prof.reports.page import Number
from nsight_prof.reports.page.writer import Writer

ROOFS = [
    ("dram", "", 4e12, "B/s", "counters"),
    ("l2", "", 10e12, "B/s", "counters"),
    ("tensor", "bf16", 1000e12, "FLOP/s", "counters"),
    ("fp32", "fp32", 60e12, "FLOP/s", "counters"),
]


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    names = [c.name for c in tables.tables()[table]]
    return tables.check(pd.DataFrame(rows, columns=names), table)


def roofs(extra: tuple[Any, ...] = ()) -> pd.DataFrame:
    keys = ("level_or_pipe", "dtype", "value", "unit", "source")
    return frame("roofs", [dict(zip(keys, row, strict=True)) for row in [*ROOFS, *extra]])


def counters(**known: Any) -> pd.DataFrame:
    row = {
        "kernel_id": "k1",
        "duration_ns": 1000.0,
        "dram_pct": 10.0,
        "l2_pct": 10.0,
        "l1_pct": 10.0,
        "tensor_pct": 0.0,
        "flops_tensor": 0.0,
        "flops_fp32": 0.0,
        "flops_fp16": 0.0,
        "flops_fp64": 0.0,
    }
    return frame("counters", [row | known])


def kernels() -> pd.DataFrame:
    return frame("kernels", [{"kernel_id": "k1", "dtype": ""}])


def bound(extra: tuple[Any, ...] = (), **known: Any) -> Any:
    found = assign_bounds(counters(**known), kernels(), roofs(extra)).iloc[0]
    return found["bound_by"], float(found["roof_share"])


@pytest.mark.parametrize("level", ["dram", "l2", "l1"])
def test_the_resource_nearest_to_its_roof_bounds(level: str) -> None:
    known: dict[str, Any] = {f"{level}_pct": 85.0}
    assert bound(**known) == (level, 0.85)


def test_flops_are_held_to_the_roof_of_their_type() -> None:
    known: dict[str, Any] = {"tensor_dtype": "bf16", "flops_tensor": 0.8e9, "tensor_pct": 82.0}
    assert bound(**known) == ("tensor", pytest.approx(0.8))


def test_the_roof_is_taken_at_the_clock_of_the_kernel() -> None:
    table = roofs().assign(clock_hz=2e9)
    found = assign_bounds(counters(flops_fp32=0.024e9, sm_clock_hz=1e9), kernels(), table)
    assert found.iloc[0]["bound_by"] == "fp32"
    assert found.iloc[0]["roof_share"] == pytest.approx(0.8)


def test_a_kernel_that_saturates_nothing_is_latency_bound() -> None:
    assert bound(dram_pct=59.0) == ("latency", 0.59)


def test_a_missing_decisive_counter_leaves_the_bound_empty_with_a_reason() -> None:
    made = assign_bounds(counters(dram_pct=None), kernels(), roofs())
    assert pd.isna(made.iloc[0]["bound_by"]) or made.iloc[0]["bound_by"] == ""
    assert math.isnan(made.iloc[0]["roof_share"])
    gaps = bound_gaps(made, kernels(), roofs())
    assert gaps["reason"].tolist() == ["no share of the roof is known for DRAM bandwidth"]


def test_a_saturated_resource_is_told_even_where_others_are_unknown() -> None:
    assert bound(l2_pct=None, flops_fp32=None, dram_pct=90.0) == ("dram", 0.9)


def test_idle_schedulers_stand_in_for_uncounted_flops() -> None:
    unknown: dict[str, Any] = {"flops_fp32": None, "flops_fp16": None, "flops_fp64": None}
    assert math.isnan(bound(**unknown)[1])
    assert bound(**unknown, issue_active_pct=20.0) == ("latency", 0.1)


def test_idle_sms_stand_in_for_everything_they_do() -> None:
    unknown = dict.fromkeys(
        ("tensor_pct", "flops_tensor", "flops_fp32", "flops_fp16", "flops_fp64")
    )
    row = counters(**unknown, launch=3)

    def judged(busy: float) -> pd.DataFrame:
        metric = {"kernel_id": "k1", "launch": 3, "metric": SM_BUSY, "value": busy}
        return frame("metrics", [metric])

    made = assign_bounds(row, kernels(), roofs(), judged(30.0))
    assert made["bound_by"].tolist() == ["latency"]
    made = assign_bounds(row, kernels(), roofs(), judged(85.0))
    assert made["bound_by"].fillna("").tolist() == [""]
    assert "the SMs are 85 % busy" in bound_gaps(made, kernels(), roofs(), judged(85.0)).reason[0]


def test_the_tensor_pipe_stands_in_for_a_type_without_roof() -> None:
    known: dict[str, Any] = {"tensor_dtype": "fp8", "flops_tensor": 1.8e9, "tensor_pct": 70.0}
    assert bound(**known) == ("tensor", 0.7)


def test_flops_beyond_their_roof_are_refused_and_said() -> None:
    known: dict[str, Any] = {"tensor_dtype": "bf16", "flops_tensor": 1.2e9, "tensor_pct": 70.0}
    assert bound(**known) == ("tensor", 0.7)
    made = assign_bounds(counters(**known), kernels(), roofs())
    assert "120%" in bound_gaps(made, kernels(), roofs())["reason"].iloc[0]


def test_a_measured_roof_replaces_the_per_cent_of_the_counters() -> None:
    measured = (("dram", "", 3.2e12, "B/s", "measured"),)
    assert bound(extra=measured, dram_pct=70.0, dram_throughput=2.8e12) == (
        "dram",
        pytest.approx(0.875),
    )


def unit_bound(busy: dict[str, float], **known: Any) -> dict[str, Any]:
    """Return what bounds a kernel whose units are busy for so many per cent of all cycles."""
    names = {"sm": SM_BUSY, "memory": MEMORY_BUSY}
    rows = [
        {"kernel_id": "k1", "launch": 3, "metric": names.get(n, f"{n}{UTILIZATION}"), "value": v}
        for n, v in busy.items()
    ]
    made = assign_bounds(counters(**known, launch=3), kernels(), roofs(), frame("metrics", rows))
    return records(made)[0]


def test_a_full_unit_bounds_whatever_bytes_it_moves() -> None:
    row = unit_bound({"l1tex__data_pipe_lsu_wavefronts": 99.6, "lts__t_tag_requests": 20.0})
    assert (row["bound_by"], row["bound_unit"]) == ("l1", "lsu_wavefronts")
    assert row["roof_share"] == pytest.approx(0.996)
    row = unit_bound({"lts__t_tag_requests": 96.4})
    assert (row["bound_by"], row["bound_unit"]) == ("l2", "l2_tags")


def test_bytes_that_say_more_than_units_name_the_bound() -> None:
    row = unit_bound({"lts__t_sectors": 60.0}, l2_pct=85.0, l2_throughput=4e12)
    assert (row["bound_by"], row["bound_unit"], row["roof_share"]) == ("l2", "", 0.85)


def test_a_per_cent_without_bytes_is_that_of_some_unit() -> None:
    # A saved text of ncu (a naive product on a GeForce): L1 busy in 94.7 %, no bytes of it.
    row = unit_bound({}, l1_pct=94.7)
    assert (row["bound_by"], row["bound_unit"]) == ("l1", "l1_busiest")


def test_the_busiest_unit_has_the_name_of_the_one_that_is_as_busy() -> None:
    # A naive product on an RTX A6000 (ncu 2021): both print 92.66.
    busy = {"l1tex__lsuin_requests": 92.66, "l1tex__throughput": 92.66, "memory": 92.66}
    assert unit_bound(busy, l1_pct=92.66)["bound_unit"] == "lsu_instructions"
    assert unit_bound(busy | {"l1tex__lsuin_requests": 60.0})["bound_unit"] == "l1_busiest"


def test_a_full_pipe_names_the_bound_where_its_instructions_fill_the_issue_slots() -> None:
    issued = {"sm__issue_active": 97.0, "sm__pipe_fma_cycles_active": 96.0}
    row = unit_bound(issued, flops_fp32=0.05e9)
    assert (row["bound_by"], row["bound_unit"]) == ("fp32", "fma_pipe")
    assert unit_bound(issued)["bound_by"] == "alu"  # no FP32 arithmetic: integers
    assert unit_bound(issued | {"sm__pipe_fma_cycles_active": 70.0})["bound_by"] == "issue"
    # An A10G: ncu says "greater than 80 %" of these issue slots, which a pipe at 78 % would hide.
    partly = {"sm__issue_active": 87.6, "sm__pipe_fma_cycles_active": 77.9}
    row = unit_bound(partly, flops_fp32=0.01e9)
    assert (row["bound_by"], row["second_by"]) == ("fp32", "issue")
    assert row["second_share"] == pytest.approx(0.876)


def test_operands_of_the_tensor_cores_are_no_bound_of_their_own() -> None:
    tensor: dict[str, Any] = {"tensor_dtype": "bf16", "flops_tensor": 0.85e9, "tensor_pct": 84.0}
    row = unit_bound({"l1tex__data_pipe_lsu_wavefronts": 88.0}, **tensor)
    assert (row["bound_by"], row["second_by"]) == ("tensor", "")


def test_what_is_used_as_much_beside_the_bound_is_kept() -> None:
    row = unit_bound({"sm__pipe_alu_cycles_active": 66.0}, dram_pct=71.0)
    assert (row["bound_by"], row["second_by"], row["second_share"]) == ("dram", "alu", 0.66)
    assert unit_bound({"sm__pipe_alu_cycles_active": 55.0}, dram_pct=71.0)["second_by"] == ""


@pytest.mark.parametrize(
    ("bound_by", "stall", "same"),
    [("alu", "math_pipe_throttle", True), ("issue", "not_selected", True),
     ("l2", "long_scoreboard", True), ("alu", "long_scoreboard", False)],
)  # fmt: skip
def test_a_wait_for_what_is_used_most_is_no_second_thing(
    bound_by: str, stall: str, same: bool
) -> None:
    row = {"bound_by": bound_by, "bound_unit": "", "roof_share": 0.66, "second_by": ""}
    clause = limit_clause(row | {"top_stall": stall}, Number(0.66, "fraction"), STALLS[stall])
    words = Writer().text(clause)
    assert ("for which its warps wait most of all" in words) == same
    assert ("both must go down" in words) != same


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        (61.4, "limited in part by Tensor Core pipe (61 % used)"),
        (86.0, "busy in 86 % of all cycles"),
    ],
)
def test_a_busy_tensor_pipe_of_which_no_flops_were_counted_is_no_rate(
    busy: float, said: str
) -> None:
    row = records(assign_bounds(counters(tensor_pct=busy, flops_tensor=None), kernels(), roofs()))
    clause = limit_clause(row[0], Number(busy / 100, "fraction"), None)
    assert said in Writer().text(clause)
    assert "rate" not in Writer().text(clause)


@pytest.mark.parametrize(("whole", "unit"), [("sm", "SMs are"), ("memory", "memory is")])
def test_a_busier_unit_that_was_not_counted_leaves_the_bound_open(whole: str, unit: str) -> None:
    busy = {whole: 82.7}
    assert unit_bound(busy, dram_pct=63.5)["bound_by"] == ""
    rows = [{"kernel_id": "k1", "launch": 3, "value": 82.7,
             "metric": SM_BUSY if whole == "sm" else MEMORY_BUSY}]  # fmt: skip
    metrics = frame("metrics", rows)
    made = assign_bounds(counters(dram_pct=63.5, launch=3), kernels(), roofs(), metrics)
    reason = bound_gaps(made, kernels(), roofs(), metrics)["reason"].iloc[0]
    assert f"the {unit} 83 % busy" in reason
    assert unit_bound({whole: 72.0}, dram_pct=63.5)["bound_by"] == "dram"


def test_parts_of_l2_that_ncu_does_not_count_for_memory_bound_nothing() -> None:
    row = unit_bound({"lts__throughput": 80.9, "memory": 55.4}, dram_pct=55.4)
    assert (row["bound_by"], row["roof_share"]) == ("latency", pytest.approx(0.554))


def test_dram_that_is_read_and_written_has_the_roof_of_its_mix() -> None:
    kinds = {"read": 4.7e12, "triad": 4.4e12, "copy": 4.3e12, "write": 4.6e12, "memcpy": 9e12}
    measured = frame("measured_roofs", [
        {"level_or_pipe": "dram", "kind": kind, "value": value, "accepted": True}
        for kind, value in kinds.items()
    ])  # fmt: skip
    known = roofs((("dram", "", 4.7e12, "B/s", "measured"),))
    moved: dict[str, Any] = {"dram_bytes": 4.0e6, "dram_throughput": 4.0e12, "dram_pct": 84.0}
    for part, roof in ((0.0, 4.7e12), (0.5, 4.3e12), (1.0, 4.6e12)):
        row = counters(**moved, dram_write_bytes=part * 4.0e6)
        made = assign_bounds(row, kernels(), known, None, measured).iloc[0]
        assert made["roof_share"] == pytest.approx(4.0e12 / roof)
    mixed = ceilings(known, measured).level("dram", 0.25)
    assert mixed is not None
    assert 4.4e12 < mixed.value < 4.7e12


def test_an_empty_table_stays_empty() -> None:
    made = assign_bounds(tables.empty("counters"), tables.empty("kernels"), roofs())
    assert made.empty
    assert bound_gaps(made, kernels(), roofs()).empty


def test_a_decoder_block_has_every_kind_of_bound(run: Run) -> None:
    found = dict(zip(run.counters["kernel_id"], run.counters["bound_by"], strict=True))
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    by_name = {names[key]: value for key, value in found.items()}
    assert by_name["cuBLAS GEMM 64x8"] == "dram"
    assert by_name["cuBLAS GEMM 256x128"] == "tensor"
    assert by_name["PyTorch RMSNorm"] == "latency"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"issue_active_pct": 76.0, "waves": 108.0}, ("issue", 0.76)),
        ({"issue_active_pct": 59.0, "waves": 108.0}, ("latency", 0.59)),
        ({"issue_active_pct": 76.0, "waves": 108.0, "dram_pct": 80.0}, ("dram", 0.8)),
        ({"issue_active_pct": 90.0, "waves": 0.03}, ("latency", 0.1)),
    ],
)
def test_full_issue_slots_bound_a_kernel_whose_grid_fills_the_gpu(
    known: dict[str, Any], expected: tuple[str, float]
) -> None:
    assert bound(**known) == expected
