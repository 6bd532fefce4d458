"""The probes of the pipes and Tensor Cores: their work by hand, and every case on a CPU."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.targets.harness import Case, Setup
from nsight_prof.targets.roofline import compute, run, tensor, triton_int8

torch = pytest.importorskip("torch", reason="the targets need torch")

ROOT = Path(__file__).resolve().parents[2]


def test_the_operations_of_a_launch_are_those_of_the_loop() -> None:
    shape = compute.Shape(block=256, threads_per_sm=2048, chains=8, loop=256)
    fp32 = compute.Precision("fp32", 2, 2, 256_000)
    # 132 SMs x 2048 threads, each 1000 turns of 256 multiply-adds of 2 operations
    assert compute.flops_of(fp32, shape, 132) == 132 * 2048 * 1000 * 256 * 2


def test_every_launch_shape_does_all_links_in_whole_turns() -> None:
    for precision in compute.PRECISIONS:
        for shape in compute.SHAPES:
            assert precision.links % shape.loop == 0
            assert shape.loop % shape.chains == 0
            assert shape.threads_per_sm % shape.block == 0


@pytest.mark.parametrize("start", [-0.99, 0.3, 0.99])
@pytest.mark.parametrize("summand", [-1.9, -1.5])
def test_the_chains_stay_bounded_and_lively(start: float, summand: float) -> None:
    chain, seen = start, set()
    for _ in range(10_000):
        chain = chain * chain + summand
        seen.add(round(chain, 6))
    assert abs(chain) <= 2
    assert len(seen) > 100


@pytest.mark.parametrize(("sms", "grid"), [(132, (11, 12)), (108, (9, 12)), (148, (4, 37))])
def test_whole_waves_give_each_sm_the_same_number_of_tiles(sms: int, grid: tuple[int, int]) -> None:
    assert tensor.whole_waves(sms) == grid
    m, n, k = tensor.sizes("bf16", sms)[2]
    assert (m // 256) * (n // 128) % sms == 0
    assert k % 128 == 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc and its disassembler")
@pytest.mark.parametrize(("real", "links"), [(1, ("DFMA",)), (2, ("FFMA",)), (3, ("HFMA2",))])
def test_the_compiled_loop_holds_every_link(
    real: int, links: tuple[str, ...], tmp_path: Path
) -> None:
    triton = pytest.importorskip("triton", reason="Triton's package has a disassembler")
    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    if not disassembler.is_file():
        pytest.skip("this build of Triton has no disassembler")
    cubin = tmp_path / "chains.cubin"
    source = str(ROOT / "targets/roofline/fma_chains.cu")
    options = [f"-DREAL={real}", "-DCHAINS=8", "-DUNROLL=128"]
    subprocess.run(["nvcc", "-arch=sm_90", "-cubin", *options, "-o", cubin, source], check=True)
    text = subprocess.run(
        [disassembler, "-c", cubin], check=True, capture_output=True, text=True
    ).stdout
    instructions = Counter(word for line in text.splitlines() for word in line.split()[1:2])
    found = sum(n for name, n in instructions.items() if name.startswith(links))
    assert 1024 <= found <= 1024 + 2


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch tell of an H200; no case is prepared."""
    h200 = SimpleNamespace(
        multi_processor_count=132, L2_cache_size=60 << 20, total_memory=140 << 30, major=9, minor=0
    )
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda *_: h200)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda *_: (139 << 30, 140 << 30))


@pytest.mark.usefixtures("h200")
def test_tensor_cases_are_the_same_work_in_every_type() -> None:
    cases = list(tensor.cases(argparse.Namespace(device="cuda")))
    bf16 = next(c for c in cases if c.name == "tensor/bf16/8192x8192x8192/burst")
    assert bf16.work.flops == 2 * 8192**3
    assert bf16.data == ("normal", "zeros")
    assert {case.dtype for case in cases} == set(tensor.DTYPES)
    assert {case.duration for case in cases} == {"burst", "steady"}
    steady = [case for case in cases if case.duration == "steady"]
    assert sorted(case.dtype for case in steady) == sorted(tensor.DTYPES)
    bursts = {(case.dtype, case.work) for case in cases if case.duration == "burst"}
    # Counters and clocks under load are set against those of a burst of the same product.
    assert {(case.dtype, case.work) for case in steady} <= bursts


class _Kernels:
    """Stands for Triton's module: writes the product, for one tiling a wrong one."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def matmul(self, a: Any, b: Any, out: Any, tiling: triton_int8.Tiling) -> None:
        torch.mm(a.int(), b.t().int(), out=out)
        if tiling.name == self.wrong:
            out += 1


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> _Kernels:
    made = _Kernels()
    monkeypatch.setitem(sys.modules, "nsight_prof.targets.roofline.triton_int8_kernel", made)
    monkeypatch.setattr(triton_int8, "is_cuda", lambda device: True)
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda: None)
    return made


def _int8(name: str) -> Case:
    args = argparse.Namespace(device="cuda")
    return {case.name: case for case in triton_int8.cases(args, (32, 64, 48))}[name]


SETUP = Setup(torch.device("cpu"), 2, "normal", 0, 1 << 16)


def test_a_tiling_is_used_only_where_its_product_is_right(kernels: _Kernels) -> None:
    tiling = triton_int8.TILINGS[0]
    prepare = _int8(f"tensor/int8/triton-{tiling.name}/burst").prepare
    for call in prepare(SETUP):
        call()
        a, b, out = call.args[-3:]  # type: ignore[attr-defined]
        assert torch.equal(out.double(), a.double() @ b.double().t())
    kernels.wrong = tiling.name
    with pytest.raises(RuntimeError, match="is wrong"):
        prepare(SETUP)


def test_the_steady_int8_product_is_the_quickest_that_is_right(
    kernels: _Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def seconds(call: Any) -> float:
        tried.append("torch" if call.func is triton_int8._by_torch else call.args[1].name)
        return {triton_int8.TILINGS[2].name: 1.0, "torch": 2.0}.get(tried[-1], 3.0)

    monkeypatch.setattr(triton_int8, "trial_seconds", seconds)
    kernels.wrong = triton_int8.TILINGS[0].name
    prepare = _int8("tensor/int8/quickest/steady").prepare
    first, second = prepare(SETUP)
    assert tried == [*(t.name for t in triton_int8.TILINGS[1:]), "torch"]
    chosen = {call.args[1] for call in (first, second)}  # type: ignore[attr-defined]
    assert chosen == {triton_int8.TILINGS[2]}
    # Without Triton, torch's own product is left.
    monkeypatch.setitem(sys.modules, "nsight_prof.targets.roofline.triton_int8_kernel", None)
    tried.clear()
    assert len(prepare(SETUP)) == 2
    assert tried == ["torch"]


@pytest.mark.usefixtures("h200")
def test_names_are_unique_over_all_families() -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args([])
    args.device = "cuda"
    names = Counter(case.name for case in run.cases(args))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("script", ["compute.py", "tensor.py"])
def test_every_case_runs_on_a_cpu(script: str, bench_schema: object) -> None:
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "targets/roofline" / script,
            "--device",
            "cpu",
            "--case-time",
            "0.01",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for record in records:
        bench_schema.validate(record)  # type: ignore[attr-defined]
    cases = [record for record in records if record["record"] == "case"]
    assert cases
    assert {case["status"] for case in cases} <= {"ok", "unsupported"}
    assert any(case["status"] == "ok" for case in cases)
