"""Products of the operator view get the kernels of the trace: by order, by name, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.join.gemms import Launch, join_gemms, padding, split_k
from nsight_prof.parsers.torch.gemm_shapes import Gemm
from nsight_prof.parsers.torch.trace import GemmKernel

SMALL = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
SPLIT = "nvjet_sm90_tst_256x8_64x6_4x1_v_bz_splitK_TNT"
LARGE = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"
REDUCE = "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16>(int)"
NAMES = {"small": SMALL, "split": SPLIT, "large": LARGE, "reduce": REDUCE}
GRIDS = {"small": "4x18x1", "split": "4x28x1", "large": "2x66x1", "reduce": "1x1x1"}
QKV, DOWN = Gemm(8, 4608, 3584, 1, "bf16"), Gemm(8, 3584, 18944, 1, "bf16")


def seen(gemm: Gemm | None, kernel: str, duration: int = 1000, grid: str = "") -> GemmKernel:
    operator = "aten::mm" if gemm else "fused_moe"
    return GemmKernel(NAMES[kernel], grid or GRIDS[kernel], duration, operator, "", gemm)


def kernels() -> pd.DataFrame:
    rows = [{"kernel_id": key, "name": NAMES[key], "grid": GRIDS[key]} for key in NAMES]
    return pd.DataFrame(rows)


def launches(*rows: tuple[str, str, int], pid: int = 1, start: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"stage": stage, "kernel_id": key, "duration_ns": duration, "start_ns": start + place}
            | {"pid": pid, "device": 0, "stream": 7}
            for place, (stage, key, duration) in enumerate(rows)
        ],
        columns=["stage", "pid", "device", "stream", "kernel_id", "duration_ns", "start_ns"],
    )


def by_size(frame: pd.DataFrame) -> dict[int, Any]:
    return {row["k"]: SimpleNamespace(**row) for row in records(frame)}


def test_order_joins_shapes_that_share_a_kernel() -> None:
    runs = {"prefill": [[seen(QKV, "large"), seen(DOWN, "large")]]}
    traced = launches(*[("prefill", "large", 100), ("prefill", "large", 500)] * 3)
    rows = by_size(join_gemms(runs, traced, kernels()).gemms)
    assert (rows[3584].median_ns, rows[18944].median_ns) == (100, 500)
    assert (rows[3584].calls, rows[3584].join) == (3, "order and name")
    assert rows[3584].total_ns + rows[18944].total_ns == traced["duration_ns"].sum()
    assert rows[18944].flop_per_s == pytest.approx(2 * 8 * 3584 * 18944 / 500e-9)


def test_order_joins_a_kernel_that_the_library_chose_anew_and_its_reduction() -> None:
    step = [("decode", "small", 110), ("decode", "split", 380), ("decode", "reduce", 20)]
    runs = {"decode": [[seen(QKV, "small"), seen(DOWN, "small", 700)]] * 2}
    found = join_gemms(runs, launches(*step * 5), kernels())
    rows = by_size(found.gemms)
    down = rows[18944]
    assert (down.join, down.kernel_id, down.operator_ns) == ("order", "split", 700)
    assert (down.median_ns, down.reduction_ns, down.calls, down.operator_calls) == (400, 20, 5, 2)
    assert (down.tile, down.split_k) == ("256x8x64", 8)
    assert (rows[3584].join, rows[3584].split_k) == ("order and name", 1)
    assert found.warnings == ()


def test_each_rank_is_joined_by_its_own_order() -> None:
    runs = {"decode": [[seen(QKV, "small"), seen(DOWN, "split")]]}
    one = launches(("decode", "small", 10), ("decode", "split", 30), pid=1)
    two = launches(("decode", "small", 12), ("decode", "split", 34), pid=2)
    rows = by_size(join_gemms(runs, pd.concat([one, two]), kernels()).gemms)
    assert (rows[3584].calls, rows[3584].total_ns) == (2, 22)
    assert (rows[18944].calls, rows[18944].total_ns) == (2, 64)


def test_runs_that_differ_join_when_the_trace_has_as_many() -> None:
    runs = {"mixed": [[seen(QKV, "small")], [seen(DOWN, "split"), seen(QKV, "small")]]}
    traced = launches(("mixed", "small", 1), ("mixed", "split", 2), ("mixed", "small", 3))
    rows = by_size(join_gemms(runs, traced, kernels()).gemms)
    assert (rows[3584].calls, rows[18944].calls) == (2, 1)


def test_a_name_joins_where_the_order_does_not_fit() -> None:
    runs = {"decode": [[seen(QKV, "small"), seen(DOWN, "split")]]}
    traced = launches(("decode", "small", 10), ("decode", "split", 30), ("decode", "small", 12))
    rows = by_size(join_gemms(runs, traced, kernels()).gemms)
    assert (rows[3584].join, rows[3584].calls, rows[3584].median_ns) == ("name", 2, 11)
    assert rows[18944].join == "name"
    assert "3 products in the trace, 2" in rows[3584].reason


def test_a_name_that_two_shapes_have_does_not_join() -> None:
    runs = {"prefill": [[seen(QKV, "large"), seen(DOWN, "large")]]}
    traced = launches(*[("prefill", "large", 100)] * 3)
    frame = join_gemms(runs, traced, kernels()).gemms
    assert (frame["join"] == "").all()
    assert frame["median_ns"].isna().all()
    assert frame["calls"].isna().all()
    assert frame["reason"].str.contains("other shapes of the stage have the same kernel").all()


def test_kernels_that_do_not_repeat_do_not_join_by_order() -> None:
    runs = {"decode": [[seen(QKV, "small"), seen(DOWN, "split")]]}
    order = ["small", "split", "split", "small"]
    frame = join_gemms(runs, launches(*[("decode", k, 5) for k in order]), kernels()).gemms
    assert set(frame["join"]) == {"name"}
    assert frame["reason"].str.contains("do not repeat").all()


def test_what_either_side_lacks_is_told() -> None:
    runs = {"prefill": [[seen(QKV, "small"), seen(None, "large")]]}
    found = join_gemms(runs, launches(("decode", "small", 5)), kernels())
    (row,) = by_size(found.gemms).values()
    assert (row.join, row.kernel_id) == ("", "")
    assert "no product in this stage" in row.reason
    assert any("decode: 1 kernels" in text for text in found.warnings)
    assert any("fused_moe" in text for text in found.warnings)


def test_products_of_unknown_shape_keep_their_place() -> None:
    runs = {"decode": [[seen(None, "large"), seen(QKV, "small")]]}
    traced = launches(("decode", "large", 7), ("decode", "small", 9))
    (row,) = by_size(join_gemms(runs, traced, kernels()).gemms).values()
    assert (row.join, row.median_ns) == ("order and name", 9)


def test_nothing_gives_an_empty_table() -> None:
    assert join_gemms({}, launches(), kernels()).gemms.empty


@pytest.mark.parametrize(
    ("gemm", "name", "grid", "parts"),
    [
        (Gemm(8, 3584, 3584), "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "4x28x1", 2),
        (Gemm(8, 3584, 18944), SPLIT, "4x28x1", 8),
        (Gemm(8, 4608, 3584), SMALL, "4x18x1", 1),
        (Gemm(8, 3584, 18944), SPLIT, "", None),
        (Gemm(8, 3584, 18944), "void other_gemm_kernel()", "4x28x1", None),
    ],
)
def test_parts_of_a_split_k(gemm: Gemm, name: str, grid: str, parts: int | None) -> None:
    assert split_k(gemm, name, grid) == parts


def test_padding_of_whole_tiles() -> None:
    assert padding(Gemm(4096, 3584, 64), "320x128x64") == pytest.approx(3840 / 3584 * 1.0, rel=0.06)
    assert padding(Gemm(8192, 8192, 8192), "320x128") == pytest.approx(26 * 320 / 8192)


def test_launches_add_their_reductions() -> None:
    assert Launch("k", 5).reduction == 0
