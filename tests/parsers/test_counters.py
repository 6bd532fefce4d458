"""The counters table against known answers: real captures of an H200, and single faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.join.counters import CounterTables, build_counters
from nsight_prof.parsers.ncu import can_read_rep, read_ncu
from nsight_prof.parsers.tables import empty

ITERATIONS = 1056 * 256 * 10000


@dataclass(frozen=True)
class Case:
    """What a kernel has, for a table of one kernel."""

    metrics: Mapping[str, float]
    chip: str = "GH100"
    median_ns: float = float("nan")


def joined(names: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`joins` and `kernels` where every result is the chosen launch of a kernel of its own."""
    ids = [f"k{i:02d}" for i in range(len(names))]
    kernels = empty("kernels").reindex(range(len(ids)))
    joins = empty("joins").reindex(range(len(ids)))
    joins = joins.assign(profile=range(len(ids)), kernel_id=ids, launch=0, name=names, chosen=True)
    return joins, kernels.assign(kernel_id=ids, name=names)


def tables_of(path: Path, chip: str = "GH100") -> CounterTables:
    capture = read_ncu(path)
    joins, kernels = joined(capture.launches["name"].tolist())
    joins["profile"] = capture.launches["profile"].to_numpy()
    metrics = capture.metrics.assign(kernel_id="", launch=0)
    return build_counters(metrics, joins, kernels, chip)


def tables_from(case: Case) -> CounterTables:
    joins, kernels = joined(["kernel"])
    kernels["median_ns"] = case.median_ns
    metrics = pd.DataFrame({"metric": list(case.metrics), "value": list(case.metrics.values())})
    metrics = metrics.assign(kernel_id="k00", launch=0, profile=0, text="", unit="", source="csv")
    return build_counters(metrics, joins, kernels, case.chip)


def reason(tables: CounterTables, column: str, kernel_id: str = "k00") -> str:
    gaps = tables.gaps
    found = gaps[(gaps["column"] == column) & gaps["kernel_id"].isin([kernel_id, ""])]
    return "; ".join(found["reason"])


@pytest.fixture(scope="module")
def flops(root: Path) -> CounterTables:
    return tables_of(root / "tests/fixtures/h200_ncu/flops.csv.xz")


@pytest.fixture(scope="module")
def gemm(root: Path) -> CounterTables:
    return tables_of(root / "tests/fixtures/h200_ncu/gemm.csv.xz")


@pytest.fixture(scope="module")
def block(root: Path) -> CounterTables:
    return tables_of(root / "tests/fixtures/h200_ncu/decoder_block.csv.xz")


@pytest.mark.parametrize(
    ("kernel", "pipe", "expected"),
    [
        (0, "fp32", 2 * ITERATIONS),
        (1, "fp64", 2 * ITERATIONS),
        (2, "fp16", 4 * ITERATIONS),
        (3, "fp16", 4 * ITERATIONS),
        (5, "fp16", 2 * ITERATIONS),
        (6, "fp32", ITERATIONS),
    ],
)
def test_flops_are_those_that_the_source_code_asks_for(
    flops: CounterTables, kernel: int, pipe: str, expected: float
) -> None:
    row = flops.counters.loc[kernel]
    assert row["flops"] == row[f"flops_{pipe}"] == pytest.approx(expected, rel=1e-4)
    assert row["pipe"] == pipe


def test_single_halves_count_twice_as_documented(flops: CounterTables) -> None:
    assert flops.counters.loc[4, "flops_fp16"] == pytest.approx(4 * ITERATIONS, rel=1e-3)


def test_a_copy_does_no_floating_point_work_and_moves_what_it_copies(flops: CounterTables) -> None:
    row = flops.counters.loc[7]
    assert row["flops"] == 0
    assert pd.isna(row["intensity_dram"])
    assert reason(flops, "intensity_dram", "k07") == "no floating-point work"
    assert row["l2_bytes"] == row["l1_bytes"] == 2 * 2**30
    assert row["dram_bytes"] == pytest.approx(2 * 2**30, rel=0.02)
    assert 85 < row["dram_pct"] < 95


def test_bytes_through_shared_memory_are_those_of_the_loop(flops: CounterTables) -> None:
    assert flops.counters.loc[6, "shared_memory_bytes"] == pytest.approx(4 * ITERATIONS, rel=1e-3)
    assert flops.counters.loc[6, "shared_wavefront_efficiency_pct"] == pytest.approx(100, rel=1e-3)


def test_a_gemm_counts_the_padding_of_its_tile(gemm: CounterTables) -> None:
    row = gemm.counters.loc[0]
    assert row["flops_tensor"] / (2 * 8192**3) == pytest.approx(1.015625, rel=1e-6)
    assert (row["tensor_dtype"], row["pipe"]) == ("bf16", "tensor")
    assert row["passes"] == 11


def test_tma_and_warpgroup_operands_are_part_of_a_hopper_gemms_traffic(gemm: CounterTables) -> None:
    row = gemm.counters.loc[0]
    assert row["l1_bytes"] > 12e9
    assert row["shared_memory_bytes"] > 34e9
    assert 98 < row["shared_wavefront_efficiency_pct"] < 100
    assert "TMA" in reason(gemm, "l1_hit_pct")
    assert "TMA" in reason(gemm, "global_sector_efficiency_pct")


def test_occupancy_of_the_gemm_is_limited_by_registers_and_shared_memory(
    gemm: CounterTables,
) -> None:
    row = gemm.counters.loc[0]
    assert row["theoretical_occupancy_pct"] == 18.75
    assert row["occupancy_limiter"] == "registers, shared memory"


def test_stalls_are_sorted_and_add_up(gemm: CounterTables) -> None:
    stalls = gemm.stalls
    assert stalls.iloc[0]["reason"] == gemm.counters.loc[0, "top_stall"] == "gmma"
    assert stalls["share"].sum() == pytest.approx(1)
    assert stalls["ratio"].is_monotonic_decreasing


def test_an_elementwise_product_of_bf16_has_one_operation_on_six_bytes(
    block: CounterTables,
) -> None:
    # Constants that HFMA2.MMA loads would make it 13 times as many.
    row = block.counters.loc[0]
    assert row["intensity_l1"] == pytest.approx(1 / 6, rel=1e-3)
    assert row["pipe"] == "fp32"


def test_no_value_of_a_real_capture_is_beyond_its_roof(block: CounterTables) -> None:
    pct = block.counters.filter(like="_pct")
    assert len(block.counters) == 26
    assert pct.max().max() <= 105
    assert not block.gaps["reason"].str.contains("came out").any()


def test_the_order_is_that_of_the_kernels(block: CounterTables) -> None:
    assert block.counters["kernel_id"].is_monotonic_increasing


PEAK = {
    "gpu__time_duration.sum": 1e6,
    "dram__cycles_elapsed.avg.per_second": 1e9,
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__bytes_write.sum": 0.0,
}


def test_a_throughput_over_105_per_cent_of_its_peak_is_not_available() -> None:
    # 1e9 bytes in 1 ms at a peak of 1000 B x 1 GHz are 100 %.
    good = tables_from(Case(PEAK | {"dram__bytes_read.sum": 1.04e9}))
    assert good.counters.loc[0, "dram_pct"] == pytest.approx(104)
    bad = tables_from(Case(PEAK | {"dram__bytes_read.sum": 1.06e9}))
    assert bad.counters.loc[0, ["dram_pct", "dram_throughput"]].isna().all()
    assert "106" in reason(bad, "dram_throughput")


def test_an_occupancy_above_what_the_launch_allows_is_not_available() -> None:
    occupancy = {"sm__maximum_warps_per_active_cycle_pct": 18.75}
    achieved = "sm__warps_active.avg.pct_of_peak_sustained_active"
    wrong = tables_from(Case({achieved: 24.7, **occupancy}))
    assert pd.isna(wrong.counters["achieved_occupancy_pct"].iloc[0])
    assert "more than the 18.8 %" in reason(wrong, "achieved_occupancy_pct")
    rounded = tables_from(Case({achieved: 18.9, **occupancy}))
    assert rounded.counters["achieved_occupancy_pct"].iloc[0] == 18.9


def test_an_intensity_beyond_reason_is_not_available() -> None:
    metrics = PEAK | {
        "dram__bytes_read.sum": 10.0,
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 2e6,
    }
    tables = tables_from(Case(metrics))
    assert tables.counters["intensity_dram"].isna().all()
    assert "2e+05" in reason(tables, "intensity_dram")


def test_a_missing_metric_is_named() -> None:
    tables = tables_from(Case({"gpu__time_duration.sum": 1e6}))
    assert reason(tables, "dram_read_bytes") == "not collected: dram__bytes_read.sum"
    assert reason(tables, "dram_throughput").startswith("needs dram_read_bytes, which is not coll")


def test_a_metric_without_a_value_is_named() -> None:
    tables = tables_from(Case({"gpu__time_duration.sum": float("nan")}))
    assert reason(tables, "duration_ns") == "ncu has no value for gpu__time_duration.sum"


def test_work_in_a_dtype_that_was_not_counted_is_unknown_not_zero() -> None:
    metrics = {
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 0.0,
        "sm__inst_executed_pipe_tensor.sum": 5000.0,
        "sm__sass_thread_inst_executed_op_hfma_pred_on.sum": 0.0,
    }
    tables = tables_from(Case(metrics))
    assert tables.counters["flops_tensor"].isna().all()
    assert tables.counters["flops"].isna().all()
    assert reason(tables, "flops_tensor") == "of a dtype that is not among those collected"


def test_halves_on_other_chips_are_flagged_as_an_upper_bound() -> None:
    names = [
        f"sm__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("hadd", "hmul", "hfma")
    ]
    tables = tables_from(Case(dict.fromkeys(names, 1.0), chip="GA100"))
    assert tables.counters.loc[0, "flops_fp16"] == 8
    assert "upper bound" in reason(tables, "flops_fp16")


def test_instructions_times_512_are_for_volta_alone_and_flagged() -> None:
    metrics = {"sm__inst_executed_pipe_tensor.sum": 10.0}
    volta = tables_from(Case(metrics, chip="GV100"))
    assert volta.counters.loc[0, "flops_tensor"] == 5120
    assert "512" in reason(volta, "flops_tensor")
    assert tables_from(Case(metrics)).counters["flops_tensor"].isna().all()


def test_two_dtypes_add_up_and_the_larger_names_the_work() -> None:
    metrics = {
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1.0,
        "sm__ops_path_tensor_src_fp8.sum": 10.0,
        "sm__inst_executed_pipe_tensor.sum": 3.0,
    }
    row = tables_from(Case(metrics)).counters.loc[0]
    assert (row["flops_tensor"], row["tensor_dtype"]) == (11, "fp8")


def test_durations_of_the_two_tools_stand_side_by_side() -> None:
    row = tables_from(Case({"gpu__time_duration.sum": 120.0}, median_ns=100.0)).counters.loc[0]
    assert row["trace_duration_ns"] == 100
    assert row["duration_difference"] == pytest.approx(0.2)


def test_no_profiled_kernel_gives_empty_tables_and_the_reason() -> None:
    tables = build_counters(empty("metrics"), empty("joins"), empty("kernels"), "GH100")
    assert len(tables.counters) == len(tables.stalls) == 0
    assert tables.gaps["reason"].tolist() == ["no counters were taken"]


def test_results_that_did_not_join_are_left_out() -> None:
    joins, kernels = joined(["kernel"])
    joins["kernel_id"] = pd.NA
    joins["chosen"] = False
    tables = build_counters(empty("metrics"), joins, kernels, "GH100")
    assert len(tables.counters) == 0
    assert tables.gaps["reason"].tolist() == ["no profiled kernel joined the trace"]


PUBLISHED = (380.6, 716.2, 96.5, 70.8, 717.6)


def test_published_intensities_of_an_rtx_5090_come_out_right(real_exports: Path) -> None:
    found = []
    for path in sorted(real_exports.glob("ncu/CodeGandee*/kernel_*/ncu.metrics.csv")):
        found.append(tables_of(path, "GB202").counters.loc[0, "intensity_dram"])
    for expected in PUBLISHED:
        assert any(value == pytest.approx(expected, rel=2e-3) for value in found), expected


@pytest.mark.skipif(not can_read_rep(), reason="ncu_report is not installed")
@pytest.mark.parametrize(
    ("report", "chip", "expected"),
    [
        # STREAM in double: one addition on 16 bytes; full sets of ncu.
        ("stream-cuda.ncu-rep", "GV100", {"intensity_l2": 1 / 16, "dram_pct": 87.2}),
        ("stream-cuda_391f3e.ncu-rep", "GA100", {"intensity_l2": 1 / 16, "dram_pct": 80.3}),
    ],
)
def test_reports_of_others_are_read_as_far_as_they_go(
    real_exports: Path, report: str, chip: str, expected: dict[str, float]
) -> None:
    (path,) = real_exports.glob(f"ncu/*/{report}")
    row = tables_of(path, chip).counters.loc[0]
    for column, value in expected.items():
        assert row[column] == pytest.approx(value, rel=1e-3), column


@pytest.mark.skipif(not can_read_rep(), reason="ncu_report is not installed")
def test_every_real_report_gives_tables(real_exports: Path) -> None:
    for path in sorted(real_exports.glob("ncu/*/*.ncu-rep")):
        tables = tables_of(path, "")
        assert tables.counters["duration_ns"].notna().any(), path
        assert tables.counters["occupancy_limiter"].notna().any(), path
