"""The product of known size, as a program of its own, and the operands of all dtypes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.harness import Setup, Unsupported
from nsight_prof.targets.harness.matmul import DTYPES, make_matmul, operand, refuse

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

SIZES = ["--m", "8", "--n", "16", "--k", "32"]


def gemm(root: Path, *options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(root / "targets" / "gemm.py"), "--device", "cpu", *SIZES, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_states_its_shape_and_its_known_operation_count(root: Path) -> None:
    conditions, record = gemm(root, "--dtype", "fp32", "--case-time", "0.01")
    assert conditions["record"] == "conditions"
    assert conditions["gpu"] is None
    assert record["case"] == "gemm/8x16x32/fp32"
    assert record["work"]["flops"] == 2 * 8 * 16 * 32
    assert record["work"]["bytes"] == 4 * (8 * 32 + 32 * 16 + 8 * 16)
    assert record["time"]["n"] >= 10
    (known,) = record["gemms"]
    assert known["calls"] == record["time"]["n"] * record["time"]["calls_per_sample"]


def test_counting_launches_as_often_as_it_is_told(root: Path) -> None:
    _, record = gemm(root, "--count", "--launches", "10")
    shape = {"name": "gemm", "m": 8, "n": 16, "k": 32}
    stage = "case:gemm/8x16x32/bf16|cold|normal"
    assert record["gemms"] == [{**shape, "stage": stage, "calls": 10}]
    assert record["status"] == "counted"


def test_lists_of_sizes_and_dtypes_are_swept(root: Path) -> None:
    options = ("--m", "8", "16", "--dtype", "fp32", "fp64", "--modes", "cold", "hot", "--count")
    cases = [record["case"] for record in gemm(root, *options)[1:]]
    assert cases == [
        f"gemm/{m}x16x32/{dtype}" for m in (8, 16) for dtype in ("fp32", "fp64") for _ in range(2)
    ]


def multiply(dtype: str, transposed: bool) -> tuple[Any, list[Any]]:
    """Calls of the product, and what each returns; skips where the CPU has none."""
    try:
        calls: Any = make_matmul(dtype, 32, 48, 64, transposed).prepare(setup())
        return calls, [call() for call in calls]
    except RuntimeError as error:
        pytest.skip(f"torch has no {dtype} product on this CPU: {error}")


def setup(data: str = "normal", copies: int = 2) -> Setup:
    return Setup(torch.device("cpu"), copies, data, 0, 1 << 16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_call_is_the_product_of_its_operands(dtype: str, transposed: bool) -> None:
    torch.manual_seed(0)
    calls, results = multiply(dtype, transposed)
    assert len(calls) == 2
    for call, result in zip(calls, results, strict=True):
        a, b = call.args
        expected = a.double() @ b.double()
        close = torch.testing.assert_close
        close(result.double(), expected, rtol=2e-2, atol=2e-2 * float(expected.abs().max()))
        assert result.data_ptr() == call.keywords["out"].data_ptr()
    assert not torch.equal(results[0], results[1])  # buffers of their own


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_are_normal_or_zero(dtype: str) -> None:
    torch.manual_seed(0)
    scale = 32.0 if dtype == "int8" else 1.0
    values = operand(dtype, (200, 200), setup()).double()
    assert float(values.mean()) == pytest.approx(0, abs=0.03 * scale)
    assert float(values.std()) == pytest.approx(scale, rel=0.05)
    assert not operand(dtype, (4, 4), setup("zeros")).double().any()


def test_shapes_that_torch_has_no_kernel_for_are_unsupported() -> None:
    with pytest.raises(Unsupported, match="multiples of 16"):
        refuse(make_matmul("fp8", 32, 24, 32), cuda=True)
    with pytest.raises(Unsupported, match="m above 16"):
        refuse(make_matmul("int8", 16, 32, 32), cuda=True)
    refuse(make_matmul("bf16", 1, 3, 5), cuda=True)
    with pytest.raises(ValueError, match="none of the dtypes"):
        make_matmul("fp4", 8, 8, 8)
    with pytest.raises(ValueError, match="no elements"):
        make_matmul("bf16", 0, 8, 8)


def test_bytes_count_each_operand_once() -> None:
    # fp8 writes bf16, int8 writes int32.
    assert make_matmul("fp8", 2, 3, 5).bytes == 2 * 5 + 5 * 3 + 2 * 3 * 2
    assert make_matmul("int8", 2, 3, 5).bytes == 2 * 5 + 5 * 3 + 2 * 3 * 4
    assert make_matmul("fp64", 2, 3, 5).bytes == 8 * (2 * 5 + 5 * 3 + 2 * 3)
