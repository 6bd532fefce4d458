import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.targets import gemm_staircase as target
from nsight_prof.targets.harness import Case

H200 = 132  # SMs
BF16 = target.TILES["bf16"]
SIZES = target.GPU_SIZES


def run(root: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the target as a file, from elsewhere; return its records."""
    pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")
    done = subprocess.run(
        [sys.executable, str(root / "targets" / "gemm_staircase.py"), "--device", "cpu",
         "--min-samples", "2", "--case-time", "0.001", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def gpu_cases(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Case]:
    """The cases of an H200, without one."""
    monkeypatch.setattr(target, "sm_count", lambda device: H200)
    words = {"device": "cuda", "n": None, "k": None, "m_max": None, "seed": 0,
             "process": 1, "list": False, "count": False, "dtype": list(target.DTYPES)}  # fmt: skip
    return target.cases(Namespace(**words | options))


def test_sweeps_single_rows_around_edges_and_every_16th_elsewhere() -> None:
    rows = target.sweep_rows(SIZES, BF16, H200)
    assert set(range(16, SIZES.m_max + 1, 16)) <= set(rows)
    for edge in range(128, SIZES.m_max, 128):
        assert {edge - 1, edge, edge + 1} <= set(rows)
    # 64 columns of tiles: two rows of tiles are 128 of 132 slots, so 256 rows are a wave.
    for edge in (256, 512, 768, 1024, 2048):
        assert target.is_wave_edge(edge, SIZES.n, BF16, H200)
        assert set(range(edge - 3, edge + 5)) <= set(rows)
    assert not target.is_wave_edge(128, SIZES.n, BF16, H200)
    assert target.waves(2048, SIZES.n, BF16, H200) == 8
    assert target.waves(2049, SIZES.n, BF16, H200) == 9


def test_counts_few_enough_sizes_with_both_sides_of_each_edge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = gpu_cases(monkeypatch)
    counted = {case.name for case in found if case.counted}
    assert len(found) < 1000  # 35 ms each on an H200
    assert len(counted) < 270  # a sixth of a second each
    for edge in (256, 512, 768, 1024, 1280, 1536, 1792, 2048):
        for m in (edge, edge + 1):
            assert f"sweep/bf16/cublas/m{m}" in counted
            assert f"sweep/fp8/triton/m{m}" in counted


def test_each_process_measures_the_same_cases_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, again, second = (
        [case.name for case in gpu_cases(monkeypatch, process=process)] for process in (1, 1, 2)
    )
    assert first == again
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(set(first)) == len(first)


def test_work_as_worked_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {case.name: case for case in gpu_cases(monkeypatch, n=256, k=512)}
    bf16, fp8 = (cases[f"sweep/{dtype}/triton/m16"].work for dtype in target.DTYPES)
    assert bf16.flops == fp8.flops == 2 * 16 * 256 * 512
    assert bf16.bytes == 2 * (16 * 512 + 256 * 512 + 16 * 256)
    assert fp8.bytes == 16 * 512 + 256 * 512 + 2 * 16 * 256  # the result is bf16


def test_names_the_pinned_tile_in_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {case.name: case for case in gpu_cases(monkeypatch)}
    pinned = cases["sweep/fp8/triton/m256"].params
    assert (pinned["tile_m"], pinned["tile_n"], pinned["tile_k"]) == (128, 128, 128)
    assert "tile_m" not in cases["sweep/fp8/cublas/m256"].params


def test_records_on_a_cpu_follow_the_schema(root: Path) -> None:
    records = run(root, "--only", r"sweep/.*/m(16|129)\||odd/.*/(base|k63)\||batch/.*/m1\|")
    schema = json.loads((root / "parsers" / "bench.schema.json").read_text(encoding="utf-8"))
    for record in records:
        jsonschema.validate(record, schema)
    cases = [record for record in records if record["record"] == "case"]
    assert {case["case"] for case in cases} >= {"sweep/bf16/torch/m129", "odd/bf16/torch/k63"}
    assert len(cases) == 4 + 4 + 4
    assert [case["mode"] for case in cases].count("hot") == 2
    bf16 = [case for case in cases if case["dtype"] == "bf16"]
    assert {case["status"] for case in bf16} == {"ok"}
    # fp8 at a size that torch refuses is a row with a reason, not the end.
    assert {case["status"] for case in cases} <= {"ok", "unsupported"}


def test_counts_only_what_is_marked_for_it(root: Path) -> None:
    records = run(root, "--count", "--dtype", "bf16", "--only", r"batch/")
    names = {r["case"] for r in records if r["record"] == "case" and r["mode"] == "cold"}
    assert names == {f"batch/bf16/torch/m{m}" for m in target.COUNTED_BATCHES}
    assert {r["status"] for r in records if r["record"] == "case"} == {"counted"}


def test_a_wrong_result_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    right = torch.randn(64, 96)
    target.require_same(right.bfloat16(), right)
    last_row, noise = right.clone(), right + 0.1 * torch.randn(64, 96)
    last_row[-1] = 0
    for wrong in (last_row, noise, right * torch.nan):
        with pytest.raises(ArithmeticError, match="of its typical size"):
            target.require_same(wrong, right)


INTERPRETED = """
import torch
from nsight_prof.targets.staircase_triton import matmul
torch.manual_seed(0)
for dtype in (torch.float16, torch.float8_e4m3fn):
    for m in (1, 16, 37):
        a, w = torch.randn(m, 64).to(dtype), torch.randn(48, 64).to(dtype)
        c = torch.full((m + 1, 48), 7.0, dtype=torch.float16)
        matmul(a, w, c[:m], (16, 16, 32))
        expected = a.float() @ w.float().T
        assert torch.allclose(c[:m].float(), expected, rtol=2e-3, atol=2e-2), (dtype, m)
        assert (c[m] == 7).all(), "wrote past the last row"
"""


def test_the_pinned_kernel_computes_the_product(root: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from nsight_prof.targets.gemm_staircase import GPU_SIZES, TILES
from nsight_prof.targets.staircase_triton import pinned_tile_matmul
for dtype, name in (("bf16", "bf16"), ("fp8", "fp8e4nv")):
    t = TILES[dtype]
    sizes = dict(N=GPU_SIZES.n, K=GPU_SIZES.k, TILE_M=t.m, TILE_N=t.n, TILE_K=t.k)
    types = dict(a_ptr=f"*{name}", w_ptr=f"*{name}", c_ptr="*bf16", m="i32")
    source = ASTSource(
        pinned_tile_matmul,
        signature=types | {key: "constexpr" for key in sizes},
        constexprs=sizes,
        attrs={(i,): [["tt.divisibility", 16]] for i in range(3)},
    )
    options = {"num_warps": t.warps, "num_stages": t.stages}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(made.metadata.shared, "wgmma.mma_async" in made.asm["ptx"])
"""


def test_the_pinned_kernel_uses_tensor_cores_and_fits_once_on_an_sm(root: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
    # Of 228 KB on an SM of an H200, more than half: no second CTA finds room.
    assert done.stdout.splitlines() == ["131072 True", "131072 True"]
