"""Formulas against answers that are known without them."""

import math

import pandas as pd
import pytest

from nsight_prof.parsers.metrics import formulas


def series(*values: float) -> pd.Series:
    return pd.Series(values, dtype="float64")


def test_a_fused_multiply_add_is_two_operations() -> None:
    flops = formulas.fused_flops(series(3), series(4), series(5))
    assert flops.tolist() == [17.0]


def test_packed_halves_count_twice_and_their_fma_four_times() -> None:
    flops = formulas.packed_flops(series(1), series(1), series(1))
    assert flops.tolist() == [8.0]


def test_constants_that_the_tensor_pipe_loads_are_no_fp16_work_on_hopper() -> None:
    # H200, ncu 2025.3.1: a bf16 multiply of torch, the hfma2 kernel, and a GEMM.
    hfma = series(12_583_040, 2_703_630_336, 0)
    tensor = series(393_220, 8_448, 34_079_000)
    zero = series(0, 0, 0)
    flops = formulas.packed_flops_without_constants(zero, zero, hfma, tensor)
    assert flops.tolist() == [0.0, 4 * 2_703_360_000.0, 0.0]


def test_a_busy_tensor_pipe_does_fp16_work_on_hopper() -> None:
    # H200, ncu 2025.3.1: a chain of HFMA2 with 34,603,008,000 of them, half on the Tensor pipe.
    hfma, tensor = series(34_603_008_000, 12_583_040), series(540_672_000, 393_220)
    zero = series(0, 0)
    busy = series(95.1, 4.9)
    flops = formulas.packed_flops_without_constants(zero, zero, hfma, tensor, busy)
    assert flops.tolist() == [4 * 34_603_008_000.0, 0.0]


def test_no_counted_tensor_operation_means_none_only_where_the_pipe_was_idle() -> None:
    operations = series(0, 0, 0, 5)
    instructions = series(0, 100, 100, 100)
    hfma = series(0, 3200, 0, 0)
    counted = formulas.counted_tensor_flops(operations, instructions, hfma)
    assert counted.tolist()[:2] == [0.0, 0.0]
    assert math.isnan(counted[2])
    assert counted[3] == 5.0


def test_intensity_of_a_kernel_without_floating_point_work_is_unknown() -> None:
    assert formulas.intensity(series(0, 8), series(4, 4)).isna().tolist() == [True, False]
    assert formulas.intensity(series(8), series(0)).isna().all()


def test_unknown_in_unknown_out() -> None:
    assert formulas.add(series(1), series(math.nan)).isna().all()
    assert formulas.add_positive(series(0), series(0)).isna().all()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1, 1, 32, 5), "registers, shared memory"),
        ((16, 32, 32, 8), "warps"),
        ((8, 32, 32, 8), "warps"),
        ((16, 4, 32, 8), "shared memory"),
        ((math.nan, 4, 32, 8), None),
    ],
)
def test_the_limiter_is_the_least_limit(limits: tuple[float, ...], expected: str | None) -> None:
    (found,) = formulas.limiter(*map(series, limits)).tolist()
    assert found == expected


def test_theoretical_occupancy_of_a_gemm_with_one_block_an_sm() -> None:
    # H200: 384 threads a block, one block by registers, 64 warps an SM.
    pct = formulas.theoretical_occupancy(*map(series, (384, 64, 1, 1, 32, 5)))
    assert pct.tolist() == [18.75]


def test_throughput_at_the_peak_is_one_hundred_per_cent() -> None:
    # 4.8 TB/s of an H200 for 1 ms: 1504 B a cycle at 3.2 GHz.
    pct = formulas.pct_of_peak(series(1504 * 3.2e6), series(1e6), series(1504), series(3.2e9))
    assert pct.tolist() == pytest.approx([100.0])


def test_the_pipe_with_most_operations_is_named_where_there_are_any() -> None:
    pipes = formulas.dominant_pipe(
        series(10, 0, 3), series(9, 0, 0), series(1, 0, 0), series(0, 0, 3)
    )
    assert pipes.tolist()[0] == "tensor"
    assert pipes.isna().tolist() == [False, True, False]
    assert pipes[2] == "fp64"


def test_tile_padding_of_a_gemm_whose_flop_counter_shows_it() -> None:
    # 8192^3 bf16 on an H200: 1.11669e12 counted, 2MNK = 1.09951e12.
    one, other = formulas.tile_padding(8192, 8192, 320, 128)
    assert one == other == 1.015625
    assert pytest.approx(1.11669e12 / (2 * 8192**3), rel=1e-5) == one


def test_tile_padding_depends_on_the_orientation_of_the_tile() -> None:
    assert formulas.tile_padding(300, 128, 320, 128) == (320 / 300, 384 * 320 / (300 * 128))


def test_the_list_of_formulas_is_that_of_the_catalogue() -> None:
    from nsight_prof.parsers.metrics.catalogue import catalogue

    named = {s.formula for c in catalogue().columns.values() for s in c.sources}
    assert named == set(formulas.FORMULAS)


def test_local_bytes_are_held_to_the_instructions_that_access_local_memory() -> None:
    # H200, ncu 2025.3.1: a kernel that spills, FlashAttention-2, and a cuBLAS kernel without any
    # local access; L1 counted 1168730112, 16531456 and 0 sectors of 32 B.
    counted = series(1_168_730_112, 16_531_456, 67_108_864, 0)
    loads = series(147_975_168, 1_867_776, 0, 0)
    stores = series(144_190_464, 1_855_488, 0, 0)
    moved = formulas.bytes_of_all_threads(counted, loads, stores)
    assert moved.tolist() == [32.0 * 1_168_730_112, 32.0 * 16_531_456, 0.0, 0.0]


@pytest.mark.parametrize(("counted", "instructions"), [(67e6, 100.0), (0.0, 100.0)])
def test_local_bytes_that_no_access_can_have_moved_are_unknown(
    counted: float, instructions: float
) -> None:
    moved = formulas.bytes_of_all_threads(series(counted), series(instructions), series(0))
    assert moved.isna().all()
    unknown = series(math.nan)
    assert formulas.bytes_of_all_threads(series(counted), unknown, series(0)).isna().all()


def test_a_counter_that_counts_other_things_too_tells_of_none_only() -> None:
    assert formulas.none_at_all(series(0, 9)).isna().tolist() == [False, True]
