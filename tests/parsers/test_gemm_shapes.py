"""Sizes of products against torch's own count of FLOPs and against numpy's result shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.torch.gemm_shapes import Gemm, gemm_of

SIZE = st.integers(1, 6)


@given(batch=st.lists(SIZE, max_size=2), m=SIZE, n=SIZE, k=SIZE, left=SIZE, vector=st.booleans())
def test_matmul_multiplies_as_numpy_does(
    batch: list[int], m: int, n: int, k: int, left: int, vector: bool
) -> None:
    a = [k] if vector else [left, *([1] * len(batch)), m, k]
    b = [*batch, k, n]
    out = np.matmul(np.zeros(a), np.zeros(b)).size  # a multiplication and addition for each of K
    found = gemm_of("aten::matmul", [a, b], ["float", "float"])
    assert found is not None
    assert found.flops == 2 * out * k
    assert (found.n, found.k) == (n, k)


def counted(operator: str, *shapes: list[int]) -> float:
    torch: Any = pytest.importorskip("torch")
    counter: Any = pytest.importorskip("torch.utils.flop_counter")
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    name = operator.removeprefix("aten::")
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    with counter.FlopCounterMode(display=False) as mode:
        function(*tensors)
    return float(mode.get_total_flops())


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::mm", [[8, 16], [16, 24]]),
        ("aten::addmm", [[24], [8, 16], [16, 24]]),
        ("aten::bmm", [[3, 8, 16], [3, 16, 24]]),
        ("aten::baddbmm", [[3, 8, 24], [3, 8, 16], [3, 16, 24]]),
        ("aten::linear", [[2, 5, 16], [24, 16], [24]]),
        ("aten::matmul", [[2, 3, 8, 16], [16, 24]]),
        ("aten::matmul", [[2, 3, 8, 16], [2, 3, 16, 24]]),
    ],
)
def test_flops_are_those_that_torch_counts(operator: str, shapes: list[list[int]]) -> None:
    found = gemm_of(operator, shapes, ["c10::BFloat16"] * len(shapes))
    assert found is not None
    assert found.flops == counted(operator, *shapes)


def test_a_product_as_vllm_calls_it() -> None:
    dims = [[1152], [4096, 896], [896, 1152], [], []]
    found = gemm_of("aten::addmm", dims, ["c10::BFloat16"] * 3 + ["Scalar"] * 2)
    assert found == Gemm(4096, 1152, 896, 1, "bf16")
    assert found.bytes == 2 * (4096 * 896 + 896 * 1152 + 4096 * 1152)


def test_one_byte_inputs_give_two_byte_outputs() -> None:
    dims = [[4, 32], [4, 16], [16, 32], [], []]
    types = ["c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float"]
    found = gemm_of("_C::cutlass_scaled_mm", dims, types)
    assert found == Gemm(4, 32, 16, 1, "fp8")
    assert found.bytes == 4 * 16 + 16 * 32 + 2 * 4 * 32


@pytest.mark.parametrize(
    ("operator", "dims"),
    [
        ("aten::add", [[2, 2], [2, 2]]),
        ("aten::mm", [[2, 3], [4, 5]]),
        ("aten::mm", [[2, 3]]),
        ("aten::mm", [[2, 3], [3, 0]]),
        ("aten::mm", [[], []]),
        ("aten::mm", [[[2, 3], [3, 2]], []]),
        ("aten::mm", None),
        ("aten::matmul", [[2, 3, 4], [5, 4, 2]]),
        ("aten::bmm", [[2, 3, 4], [4, 5]]),
        ("aten::mv", [[2, 3], [4]]),
    ],
)
def test_what_is_no_product_or_does_not_fit_has_none(operator: str, dims: Any) -> None:
    assert gemm_of(operator, dims, None) is None


def test_an_unknown_type_has_no_bytes() -> None:
    found = gemm_of("aten::mm", [[2, 3], [3, 4]], ["c10::Float4", "c10::Float4"])
    assert found is not None
    assert found.dtype == ""
    assert found.bytes is None
    assert not math.isnan(found.flops)
