"""The memory roofs: what the cases claim, and that their kernels compile."""

from __future__ import annotations

import gc
import json
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

from nsight_prof.targets.harness import Case, Setup, Unsupported, run_target
from nsight_prof.targets.harness.cuda import compile_cubin
from nsight_prof.targets.roofline import (
    latency,
    memory,
    memory_dram,
    memory_kernels,
    memory_l2,
    memory_l2_points,
    memory_l2_private,
    memory_sm,
)

pytest.importorskip("torch")

MIB = 1 << 20
H200 = {"sms": 132, "l2": 60 * MIB, "memory": 141 * 10**9, "shared": 227 * 1024}
ON_GPU = Namespace(device="cuda", dram_gib=None)
ON_CPU = Namespace(device="cpu")
MODULES = (
    latency, memory_dram, memory_kernels, memory_l2, memory_l2_points, memory_l2_private, memory_sm
)  # fmt: skip


class Recorder:
    """Stands for CudaModule: compiles for an H200, which needs no GPU, and records launches."""

    launches: list[dict[str, Any]] = []
    compiled: dict[str, bytes] = {}

    def __init__(self, text: str) -> None:
        if text not in self.compiled:
            try:
                self.compiled[text] = compile_cubin(text, ("--gpu-architecture=sm_90a",))
            except Unsupported as error:
                pytest.skip(str(error))
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
        "zeroed": lambda setup, size: torch.zeros(size // 4, dtype=torch.int32),
        "numbers": lambda setup, values: torch.tensor(values, dtype=torch.int32),
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
    assert all(found[roof] >= 5 for roof in kinds), found
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
    gc.freeze()  # so that collecting looks at new objects only
    for case in memory_dram.cases(ON_GPU):
        case.prepare(setup("meta", data=case.data[0]))
        gc.collect()
        most = max(most, sum(size for buffer, size in made if buffer() is not None))
    gc.unfreeze()
    # Random data and zeros of each of five streams: 1 or 2 or 3 buffers each.
    assert len([size for _, size in made if size > MIB]) == 2 * (1 + 1 + 2 + 2 + 3)
    assert 15.9 < most / 2**30 < 16.1
    assert all(buffer() is None for buffer, _ in made)


def launches(h200: type[Recorder], case: Case) -> dict[str, Any]:
    """Return the only launch of a case."""
    h200.launches.clear()
    case.prepare(setup())
    (launch,) = h200.launches
    return launch


def test_the_l2_is_read_often_enough_and_both_patterns_at_the_same_sizes(
    h200: type[Recorder],
) -> None:
    sizes: dict[str, set[float]] = {"private": set(), "shared": set()}
    for case in memory_l2.cases(ON_GPU):
        footprint, passes = float(case.params["footprint_bytes"]), float(case.params["passes"])
        assert case.work.bytes == pytest.approx(footprint * passes)
        if case.roof is not None:
            # What comes from DRAM at first is under 1 % of it.
            assert passes > 200
            assert footprint <= 40 * MIB
        if case.operation == "L2 read" and case.params["pattern"] in sizes:
            sizes[str(case.params["pattern"])].add(footprint / MIB)
    assert sizes["private"] == {size for size in sizes["shared"] if size >= 8}
    assert {2, 4, 16, 24, 28, 30, 32, 56, 60, 64, 96, 128, 256} <= sizes["shared"]


def test_the_shared_slices_are_read_evenly(h200: type[Recorder]) -> None:
    """Follow `l2_around`."""
    for case in memory_l2.cases(ON_GPU):
        launch = launches(h200, case)
        if launch["name"] != "l2_around" or float(case.params["footprint_bytes"]) > 40 * MIB:
            continue
        _, _, sms, slices, spread, hops, count, iterations = launch["args"]
        slice_bytes = launch["block"] * int(case.params["unroll"]) * 16
        assert case.params["footprint_bytes"] == slices * slice_bytes
        assert case.work.bytes == launch["grid"] * iterations * slice_bytes
        assert launch["grid"] * spread < 1 << 32
        assert len(hops) == count
        blocks = np.arange(launch["grid"])
        hop = hops.numpy()[blocks // sms % count]
        assert hop.max() < slices
        places = blocks[:, None] * spread + hop[:, None] * np.arange(iterations)
        reads = np.bincount(places.ravel() % slices, minlength=slices)
        assert reads.max() < 1.1 * reads.mean() < 1.21 * reads.min()


def test_no_line_of_a_private_case_is_asked_for_twice_at_a_time(h200: type[Recorder]) -> None:
    """Follow `l2_own`: whose lines are whose, and which a warp has in flight."""
    kinds = Counter[str]()
    for case in memory_l2_private.cases(ON_GPU):
        launch = launches(h200, case)
        assert launch["name"] == "l2_own"
        _, _, lines, owners, first, more, tickets, drawn = launch["args"]
        warps, unroll = launch["grid"] * launch["block"] // 32, int(case.params["unroll"])
        buffers = 2 if "/copy/" in case.name else 1
        assert case.params["footprint_bytes"] == buffers * lines * 128
        assert case.work.bytes == (warps * first + tickets * more) * unroll * 512 * buffers
        kinds[str(case.params["pattern"])] += 1
        assert owners == warps
        share, rest = divmod(lines, owners)
        mine = [share + (owner < rest) for owner in range(owners)]
        begins = [owner * share + min(owner, rest) for owner in range(owners)]
        assert begins == list(np.cumsum([0, *mine])[:-1])
        assert sum(mine) == lines
        # A step's loads are of 4 neighbouring lines each, counted around.
        assert (unroll + 1) * 4 <= share
        assert first * unroll * 4 >= max(mine)
        assert 0.1 < tickets * more / (warps * first + tickets * more) < 0.3
        assert drawn.tolist() == [0] * 4
    assert kinds["private"] > 25


@given(st.integers(1, 60), st.integers(0, 200), st.integers(0, 2**32 - 1))
def test_tickets_are_drawn_once_and_the_counter_ends_where_it_began(
    warps: int, tickets: int, seed: int
) -> None:
    """Follow `l2_own`: warps draw in any order, each until it draws in vain."""
    order = np.random.default_rng(seed)
    drawn, last, won = 0, tickets + warps - 1, []
    working = list(range(warps))
    while working:
        place = int(order.integers(len(working)))
        ticket, drawn = drawn, 0 if drawn >= last else drawn + 1
        if ticket >= tickets:
            working.pop(place)
        else:
            won.append(ticket)
    assert won == list(range(tickets))
    assert drawn == 0


@given(st.integers(1, 8000))
def test_beginnings_are_spread_over_all_slices(slices: int) -> None:
    step = memory_l2.spread(slices)
    assert len({i * step % slices for i in range(slices)}) == slices


@given(st.integers(64, 4000), st.integers(2, 16))
def test_each_way_from_slice_to_slice_comes_to_all(slices: int, count: int) -> None:
    ways = memory_l2.hops(slices, count)
    assert len(ways) == count
    for hop in set(ways):
        assert hop < slices
        assert len({i * hop % slices for i in range(slices)}) == slices


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
