"""Latency targets: the chains are single random cycles, and starts are far enough apart."""

from __future__ import annotations

from argparse import Namespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.targets.harness import Setup, Unsupported
from nsight_prof.targets.roofline import latency

torch = pytest.importorskip("torch")

ON_CPU = Namespace(device="cpu")


@given(st.integers(2, 300), st.integers(0, 100))
def test_a_chain_visits_each_of_its_lines_once_and_comes_back(lines: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes = max(2, lines // 2)
    order = latency.cycle(generator, lines, nodes, "cpu")
    buffer = latency.link(order, lines)
    place, seen = int(order[0]), []
    for _ in range(nodes):
        seen.append(place)
        address = int(buffer[place, 0]) - buffer.data_ptr()
        assert address % latency.LINE == 0
        place = address // latency.LINE
    assert sorted(seen) == sorted(order.tolist())
    assert place == seen[0]
    assert int((buffer != 0).sum()) == nodes


def test_every_case_runs_on_a_cpu_or_says_why_not() -> None:
    setup = Setup(torch.device("cpu"), 1, "normal", 0, 65536)
    names = set()
    for case in latency.cases(ON_CPU):
        names.add(case.name)
        assert case.work.accesses
        if case.samples is not None:
            with pytest.raises(Unsupported, match="clock"):
                case.samples(setup)
            continue
        (call,) = case.prepare(setup)
        call()
    assert {"latency/shared", "latency/l1", "latency/l2/mean", "latency/dram/1gib"} <= names


def test_the_same_seed_gives_the_same_chain() -> None:
    orders = [latency.cycle(torch.Generator().manual_seed(3), 64, 64, "cpu") for _ in range(2)]
    assert torch.equal(*orders)


def test_accesses_are_whole_rounds_of_the_unrolled_loop() -> None:
    for case in latency.cases(ON_CPU):
        if case.samples is None:
            assert (case.work.accesses or 0) % 16 == 0


def test_a_start_is_further_on_than_a_thread_gets_before_the_next() -> None:
    tick_ns, fastest_dram_ns = 1 << 18, 250
    assert tick_ns / fastest_dram_ns < latency.START_SPACING
