"""Names of NVTX ranges as people read them: shortened, and folded where only a counter differs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.names.ranges import LONGEST_LABEL, fold_repeats, name_stages, shorten

CONV = (
    "{'mod': 'torch.nn.functional', 'op': 'conv2d', 'args': [{'name': '', 'type': 'tensor', "
    + "'shape': (32, 64, 112, 112), 'dtype': 'float16'}, " * 12
    + "]}"
)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["defect/fp32_gemm", "twin/fp16_gemm"], ["defect/fp32_gemm", "twin/fp16_gemm"]),
        (
            ["fp8_gemm", "fp16_gemm", "fp32_gemm", "fp64_gemm"],
            ["fp8_gemm", "fp16_gemm", "fp32_gemm", "fp64_gemm"],
        ),
        ([f"step {n}" for n in range(9)], ["step *"] * 9),
        ([f"Qwen2.layers.{n}.mlp" for n in range(9)], ["Qwen2.layers.*.mlp"] * 9),
        ([f"{n}:seq {n % 2}" for n in range(6)], [f"*:seq {n % 2}" for n in range(6)]),
        (["step 1", "", "step 1"], ["step 1", "", "step 1"]),
    ],
)
def test_a_number_is_masked_only_where_it_counts_repeats(
    names: list[str], shown: list[str]
) -> None:
    assert fold_repeats(names) == shown


@given(st.lists(st.text("ab1230 ._", max_size=8), max_size=30))
def test_folding_replaces_numbers_alone(names: list[str]) -> None:
    folded = fold_repeats(names)
    for name, shown in zip(names, folded, strict=True):
        assert re.sub(r"[\d*]+", "#", shown) == re.sub(r"\d+", "#", name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CONV, "torch.nn.functional.conv2d"),
        (CONV.replace("'", '"'), "torch.nn.functional.conv2d"),
        ("prefill", "prefill"),
        ("aten::linear, op_id = 318126", "aten::linear"),
        (
            "autograd::engine: Mul, seq = 12, op_id = 3, sizes = [[2]]",
            "autograd::engine: Mul, sizes = [[2]]",
        ),
        ("{'mod': 'torch', 'op': 'add'}", "{'mod': 'torch', 'op': 'add'}"),
        ("x" * 600, "x" * (LONGEST_LABEL - 1) + "…"),
    ],
)
def test_a_record_as_a_name_is_shortened_to_its_operation(text: str, shown: str) -> None:
    assert shorten(text) == shown
    assert name_stages([("", text)], []) == [shown]
    assert name_stages([("", text)], [".*"]) == [shown]
    assert name_stages([("", text)], {"stage": ".*"}) == ["stage"]


@given(st.text(max_size=400))
def test_no_label_is_longer_than_a_line(text: str) -> None:
    shown = shorten(text)
    assert len(shown) <= LONGEST_LABEL
    assert bool(shown) == bool(text)
