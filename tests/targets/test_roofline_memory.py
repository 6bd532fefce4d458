"""The memory roofs: what the cases claim, that kernels compile, and what the compiler keeps."""

from __future__ import annotations

import gc
import json
import re
import shutil
import subprocess
import weakref
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from targets.harness import Case, Setup, run_target
from targets.harness.cuda import compile_cubin
from targets.roofline import latency, memory, memory_dram, memory_kernels, memory_l2, memory_sm

pytest.importorskip("torch")

MIB = 1 << 20
H200 = {"sms": 132, "l2": 60 * MIB, "memory": 141 * 10**9, "shared": 227 * 1024}
ON_GPU = Namespace(device="cuda", dram_gib=None)
ON_CPU = Namespace(device="cpu")
MODULES = (latency, memory_dram, memory_kernels, memory_l2, memory_sm)


class Recorder:
    """Stands for CudaModule: compiles for an H200, which needs no GPU, and records launches."""

    launches: list[dict[str, Any]] = []
    compiled: dict[str, bytes] = {}

    def __init__(self, text: str) -> None:
        if text not in self.compiled:
            self.compiled[text] = compile_cubin(text, ("--gpu-architecture=sm_90a",))
        self.text = text

    def function(self, name: str) -> Recorder:
        assert name.encode() in self.compiled[self.text]
        self.name = name
        return self

    def bind(self, grid: int, block: int, args: list[Any], shared: int = 0) -> Any:
        self.launches.append(
            {"name": self.name, "grid": grid, "block": block, "args": args, "shared": shared}
        )
        return lambda: None

    def allow_shared(self, size: int) -> None:
        assert size <= H200["shared"]

    def prefer_shared(self, percent: int) -> None:
        assert 0 <= percent <= 100


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    """Let the targets see an H200 that records launches and has no memory to fill."""
    import torch

    facts = {
        "is_cuda": lambda device: str(device) != "cpu",
        "sm_count": lambda device: H200["sms"],
        "l2_bytes": lambda device: H200["l2"],
        "memory_bytes": lambda device: H200["memory"],
        "filled": lambda setup, size, copy=0: torch.zeros(1),
        "empty": lambda setup, size: torch.zeros(1),
        "require_bulk_copies": lambda setup, shared: None,
        "require_shared": lambda setup, shared: None,
        "CudaModule": Recorder,
    }
    for module in MODULES:
        for name, value in facts.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(Recorder, "launches", [])
    return Recorder


def setup(device: str = "meta", copies: int = 1, data: str = "normal") -> Setup:
    """Return what the harness hands to a case; the device "meta" is the recorded H200."""
    import torch

    return Setup(torch.device(device), copies, data, 0, H200["l2"] if device == "meta" else 65536)


def all_cases(args: Namespace) -> list[Case]:
    return [*memory.cases(args), *latency.cases(args)]


def test_every_case_runs_on_a_cpu_and_two_copies_are_two_calls() -> None:
    for case in memory.cases(ON_CPU):
        assert len(calls := case.prepare(setup("cpu", copies=2, data=case.data[0]))) == 2
        for call in calls:
            call()


def test_a_record_of_each_level_is_what_the_schema_says(
    tmp_path: Path, bench_schema: Draft202012Validator
) -> None:
    out = tmp_path / "records.jsonl"
    only = "copy/memcpy|l2/read/private|l1/read/stride-8|shared/read/k1-b1024-u1-w4"
    argv = ["--device", "cpu", "--out", str(out), "--only", only, "--min-samples", "2"]
    code = run_target(
        "roofline", memory.cases, [*argv, "--case-time", "0.01"], description="-",
        add_arguments=memory.add_arguments,
    )  # fmt: skip
    assert code == 0
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for record in records:
        bench_schema.validate(record)
    cases = [record for record in records if record["record"] == "case"]
    assert {record["level"] for record in cases} == {"dram", "l2", "l1", "shared"}
    assert {record["status"] for record in cases} == {"ok"}


def test_every_roof_of_memory_has_candidates_of_several_shapes(h200: type[Recorder]) -> None:
    cases = all_cases(ON_GPU)
    assert len({case.name for case in cases}) == len(cases)
    found = Counter((c.roof.level_or_pipe, c.roof.kind) for c in cases if c.roof is not None)
    kinds = {("dram", kind) for kind in ("read", "write", "copy", "scale", "triad")}
    kinds |= {("l2", kind) for kind in ("read", "write", "copy")}
    kinds |= {("l1", "read"), ("shared", "read")}
    assert all(found[roof] >= 5 for roof in kinds)
    assert found["dram", "memcpy"] == 1
    assert all(found[level, "latency"] == 1 for level in ("dram", "l2", "l1", "shared"))


def test_all_kernels_compile_and_are_launched_within_the_limits_of_the_device(
    h200: type[Recorder],
) -> None:
    for case in memory.cases(ON_GPU):
        case.prepare(setup(data=case.data[0]) if "mem" not in case.name else setup("cpu"))
    assert len(h200.launches) > 100
    for launch in h200.launches:
        assert 0 < launch["grid"] < 1 << 31
        assert launch["block"] <= 1024
        assert launch["shared"] <= H200["shared"]


def test_a_stream_moves_the_bytes_that_its_launch_covers(h200: type[Recorder]) -> None:
    for case in memory_dram.cases(ON_GPU):
        if case.name.endswith(("memcpy", "memset")):
            continue
        h200.launches.clear()
        case.prepare(setup())
        (launch,) = h200.launches
        streams = sum(memory_dram.STREAMS[case.name.split("/")[1]])
        assert case.work.bytes == streams * case.params["buffer_bytes"] == case.footprint_bytes
        assert case.footprint_bytes >= 4 * H200["l2"]
        if launch["name"] == "stream":
            chunk = launch["block"] * int(case.params["unroll"]) * 16
            chunks = launch["args"][3]
            assert case.work.bytes == streams * chunks * chunk
            if "one-shot" in case.name:
                assert launch["grid"] == chunks


def test_each_stream_on_zeros_has_a_twin_on_random_data(h200: type[Recorder]) -> None:
    cases = list(memory_dram.cases(ON_GPU))
    for kind in memory_dram.STREAMS:
        mine = [case for case in cases if case.name.startswith(f"dram/{kind}/")]
        (zeros,) = [case for case in mine if case.name.split("/")[-1].startswith("zeros-")]
        (twin,) = [case for case in mine if case.name == zeros.name.replace("zeros-", "")]
        assert (twin.params, twin.work) == (zeros.params, zeros.work)


def test_the_shapes_of_a_stream_share_buffers_and_another_stream_gets_its_own(
    h200: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    made: list[Any] = []

    def filled(setup: Setup, size: int, copy: int = 0) -> Any:
        made.append((weakref.ref(buffer := torch.zeros(1)), size))
        return buffer

    monkeypatch.setattr(memory_dram, "filled", filled)
    monkeypatch.setattr(memory_dram, "empty", filled)
    monkeypatch.setattr(memory_dram, "KEPT", memory_kernels.Kept())
    monkeypatch.setattr(Recorder, "bind", lambda *_: int)
    most = 0
    for case in memory_dram.cases(ON_GPU):
        case.prepare(setup("meta", data=case.data[0]))
        gc.collect()
        most = max(most, sum(size for buffer, size in made if buffer() is not None))
    # Random data and zeros of each of five streams: 1 or 2 or 3 buffers each.
    assert len([size for _, size in made if size > MIB]) == 2 * (1 + 1 + 2 + 2 + 3)
    assert 15.9 < most / 2**30 < 16.1
    assert all(buffer() is None for buffer, _ in made)


def visited(launch: dict[str, Any], block: int) -> Any:
    """Follow `memory_l2.cu`: the slices that a block does, in order."""
    _, _, sms, _, slices, sm_spread, block_spread, iterations = launch["args"]
    place = (block % sms * sm_spread + block // sms * block_spread) % slices
    return (place + np.arange(iterations)) % slices


def test_the_l2_is_read_evenly_within_the_buffer_and_often_enough(h200: type[Recorder]) -> None:
    for case in memory_l2.cases(ON_GPU):
        h200.launches.clear()
        case.prepare(setup())
        (launch,) = h200.launches
        footprint, passes = float(case.params["footprint_bytes"]), float(case.params["passes"])
        assert case.work.bytes == pytest.approx(footprint * passes)
        if launch["name"] != "l2_stream":
            continue
        _, _, sms, region, slices, *_, iterations = launch["args"]
        buffers = 2 if "/copy/" in case.name else 1
        slice_bytes = launch["block"] * int(case.params["unroll"]) * 16
        parts = sms if case.params["pattern"] == "private" else 1
        assert footprint == buffers * slices * parts * slice_bytes
        assert region in {0, slices * slice_bytes / 16}
        assert case.work.bytes == buffers * launch["grid"] * iterations * slice_bytes
        if case.roof is not None:
            # What comes from DRAM at first is under 1 % of it.
            assert passes > 100
        if case.params["pattern"] == "shared":
            reads = np.zeros(slices)
            for block in range(launch["grid"]):
                np.add.at(reads, visited(launch, block), 1)
            assert reads.max() < 1.1 * reads.mean() < 1.21 * reads.min()


@given(st.integers(1, 8000))
def test_beginnings_are_spread_over_all_slices(slices: int) -> None:
    step = memory_l2._spread(slices)
    assert len({i * step % slices for i in range(slices)}) == slices


@pytest.mark.parametrize("level", ["l1", "shared"])
def test_no_lane_reads_beyond_its_buffer(h200: type[Recorder], level: str) -> None:
    """Follow the addresses of `memory_sm.cu`."""
    for case in memory_sm.cases(ON_GPU):
        if case.level != level:
            continue
        h200.launches.clear()
        case.prepare(setup())
        (launch,) = h200.launches
        _, _, size, stride, mask, half, iterations = launch["args"]
        words, unroll = int(case.params["load_bytes"]) // 4, int(case.params["unroll"])
        hop = half // unroll
        offsets = [
            (t // 32 * 128 * words * stride & mask) + t % 32 * 4 * words * stride
            for t in range(launch["block"])
        ]
        last = max(offsets) + (unroll - 1) * hop + half + 4 * words
        assert last <= size
        assert size % 128 == 0
        assert iterations < 1 << 31
        loads = launch["grid"] * launch["block"] * unroll * iterations
        assert case.work.bytes == loads * 4 * words
        if case.roof is not None:
            # The whole buffer is read, each word in every second iteration.
            assert last == size
            assert len(set(offsets)) == launch["block"]


def sass(text: str, tmp_path: Path) -> str:
    """Disassemble what NVRTC makes of a source for an H200."""
    found = shutil.which("nvdisasm")
    if found is None:
        triton = pytest.importorskip("triton")
        beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
        found = str(beside)
    if not Path(found).exists():
        pytest.skip("no nvdisasm")
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compile_cubin(text, ("--gpu-architecture=sm_90a",)))
    done = subprocess.run([found, "-c", cubin], capture_output=True, text=True, check=True)
    return done.stdout


def loop(listing: str, load: str) -> list[str]:
    """Return the instructions of the innermost loop that loads: from its label to its branch."""
    lines = re.findall(r"^(\.L_x_\d+):|^\s+/\*[0-9a-f]{4}\*/\s+(.*?);", listing, re.MULTILINE)
    best: list[str] = []
    for start, (label, _) in enumerate(lines):
        body = []
        for _, instruction in lines[start + 1 :]:
            body.append(instruction)
            if label and "BRA" in instruction and f"({label})" in instruction:
                best = body if any(load in line for line in body) else best
                break
    return best


def defines(**values: str | int) -> tuple[tuple[str, str | int], ...]:
    return tuple(values.items())


@pytest.mark.parametrize(
    ("operation", "loads", "stores"),
    [("READ", 4, 1), ("WRITE", 0, 4), ("COPY", 4, 4), ("SCALE", 4, 4), ("TRIAD", 8, 4)],
)
def test_a_stream_keeps_all_of_its_loads_and_stores(
    tmp_path: Path, operation: str, loads: int, stores: int
) -> None:
    macros = defines(
        OPERATION=operation, THREADS=256, UNROLL=4, ONE_SHOT=1, EVICT=0,
        LOAD='"ld.global.nc.L1::no_allocate"', STORE='"st.global"',
    )  # fmt: skip
    listing = sass(memory_kernels.source("memory_stream.cu", macros), tmp_path)
    assert len(re.findall(r"LDG\.E\.NA\.128", listing)) == loads
    assert len(re.findall(r"STG\.E\.128", listing)) == stores  # a read's is never reached


def test_the_loop_over_the_l2_passes_the_l1_by(tmp_path: Path) -> None:
    macros = defines(OPERATION="READ", THREADS=256, UNROLL=8, LOAD='"ld.global.cg"')
    body = loop(sass(memory_kernels.source("memory_l2.cu", macros), tmp_path), "LDG")
    assert sum("LDG.E.128.STRONG.GPU" in line for line in body) == 8


@pytest.mark.parametrize(("level", "load"), [("L1", "LDG.E.128 "), ("SHARED", "LDS.128 ")])
def test_the_loops_over_l1_and_shared_memory_do_little_but_load(
    tmp_path: Path, level: str, load: str
) -> None:
    macros = defines(LEVEL=level, THREADS=1024, UNROLL=4, WORDS=4, HOP=16384)
    body = loop(sass(memory_kernels.source("memory_sm.cu", macros), tmp_path), load)
    assert sum(load in line for line in body) == 4
    # A load of a warp takes 4 cycles of the data path, in which 16 instructions can be issued.
    assert len(body) <= 32
