"""Tensor Core counters of any chip: which operations, of which dtype, under which peak."""

import math

import pandas as pd

from nsight_prof.parsers.metrics.tensor import tensor_inputs

PREFIX = "sm__ops_path_tensor_"


def inputs(**values: float) -> pd.Series:
    """What a capture of one kernel with these counters gives."""
    names = {PREFIX + name.replace("__", "."): [value] for name, value in values.items()}
    return tensor_inputs(pd.DataFrame(names, index=["k"])).iloc[0]


def test_the_total_of_a_dtype_is_not_counted_again_by_instruction_or_sparsity() -> None:
    row = inputs(
        src_bf16_dst_fp32__sum=10.0,
        op_hgmma_src_bf16_dst_fp32__sum=10.0,
        op_hgmma_src_bf16_dst_fp32_sparsity_off__sum=10.0,
    )
    assert row["tensor_operations"] == 10
    assert row["tensor_operations_dtype"] == "bf16"


def test_parts_add_up_where_a_report_has_no_total() -> None:
    row = inputs(
        op_hmma_src_fp16_dst_fp32_sparsity_off__sum=1.0,
        op_hmma_src_fp16_dst_fp16_sparsity_on__sum=2.0,
        op_utchmma_src_fp16_dst_fp32_sparsity_off__sum=4.0,
    )
    assert row["tensor_operations"] == 7


def test_both_accumulators_of_a_dtype_count() -> None:
    row = inputs(src_fp16_dst_fp32__sum=1.0, src_fp16_dst_fp16__sum=2.0)
    assert (row["tensor_operations"], row["tensor_operations_dtype"]) == (3, "fp16")


def test_narrow_types_of_one_blackwell_instruction_are_called_by_their_rate() -> None:
    row = inputs(src_fp4_fp6_fp8_dst_fp32__sum=1.0)
    assert row["tensor_operations_dtype"] == "fp8"
    assert inputs(src_fp4_dst_fp32__sum=1.0)["tensor_operations_dtype"] == "fp4"


def test_the_peak_is_the_highest_that_the_capture_states_for_the_dtype() -> None:
    row = inputs(
        src_bf16_dst_fp32__sum=1.0,
        src_bf16_dst_fp32__sum__peak_sustained=8192.0,
        op_hgmma_src_bf16_dst_fp32_sparsity_off__sum__peak_sustained=4096.0,
        src_fp8__sum__peak_sustained=16384.0,
    )
    assert row["tensor_operations_peak"] == 8192


def test_a_counter_without_a_value_is_no_zero() -> None:
    row = inputs(src_bf16_dst_fp32__sum=math.nan)
    assert math.isnan(row["tensor_operations"])
    assert pd.isna(row["tensor_operations_dtype"])


def test_a_capture_without_tensor_counters_knows_nothing() -> None:
    row = inputs(src_bf16_dst_fp32__avg=1.0)
    assert math.isnan(row["tensor_operations"])
    assert math.isnan(row["tensor_operations_peak"])
