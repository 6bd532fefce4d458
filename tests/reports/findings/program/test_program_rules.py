"""Findings about the whole program, on made-up tables whose answer is known and on recordings."""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.directory import RunDir, read_manifest, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.analysis.timeline import chains, exposed, timeline, union
from nsight_prof.reports.findings.kernels.measure import ARITHMETIC
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import backends, idle
from nsight_prof.reports.findings.program.backends import BACKENDS
from nsight_prof.reports.findings.program.launch_rules import SMALL_KERNELS
from nsight_prof.reports.findings.program.rules import RULES, program_findings
from nsight_prof.reports.page import Text, Verbatim
from nsight_prof.reports.verdicts.bound_shares import bound_shares
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.programs import (
    OF_LAUNCHES,
    OF_TABLES,
    OF_WAITS,
    US,
    amount,
    english,
    kernels,
    of_cause,
    of_rule,
    where,
    write,
)


def causes(run: Run) -> set[str]:
    return {f.rule for f in program_findings(run)}


def test_a_rule_that_is_asked_alone_is_one_of_all(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(rule: str) -> Finding:
        return Finding(rule, Text("{rule}", rule=Verbatim(rule)), key=rule)

    for rule, function in (OF_TABLES | OF_LAUNCHES).items():
        module = sys.modules[function.__module__]
        monkeypatch.setattr(module, function.__name__, lambda *_, rule=rule: [finding(rule)])
    monkeypatch.setattr(idle, "idle_findings", lambda _: [finding(rule) for rule in OF_WAITS])
    monkeypatch.setattr(backends, "backend_findings", lambda *_: [finding("slow_backend")])
    found = [f.rule for f in program_findings(launch_table(run, [("PyTorch copy", 0, 1)]))]
    for rule in (*OF_TABLES, *OF_LAUNCHES, *OF_WAITS, "slow_backend"):
        assert found.count(rule) == 1, rule


# --- the order of launches ------------------------------------------------------------------------


def launch_table(run: Run, rows: list[tuple[str, int, int]], **more: Any) -> Run:
    """Write launches (short name of a kernel, start and length in us) on one stream."""
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    return write(run, "launches", [
        {"kernel_id": ids[name], "index": at, "start_ns": start * US, "duration_ns": length * US,
         "device": 0, "pid": 1, "context": 1, "stream": 7, "stage": "decode", **more}
        for at, (name, start, length) in enumerate(rows)
    ])  # fmt: skip


@pytest.mark.parametrize(("steps", "told"), [("ABAB", True), ("AAAA", False)])
def test_one_kernel_in_a_row_goes_over_steps_and_not_over_items(
    run: Run, steps: str, told: bool
) -> None:
    names = {"A": "PyTorch copy", "B": "PyTorch SiLU x mul"}
    run = kernels(run, {name: {"category": "elementwise"} for name in names.values()})
    loop = [(names[step], 10 * at, 1) for at, step in enumerate("B" + 300 * steps)]
    run = write(run, "api_calls", [{"name": "cudaLaunchKernel", "calls": 1201, "total_ns": 1e6}])
    assert bool(of_rule(launch_table(run, loop), "one_by_one")) == told


@pytest.mark.parametrize(
    ("function", "told"), [("torch_dynamo_resume_in_day_at_53", True), ("day", False)]
)
def test_breaks_of_a_compiled_graph_are_told_with_their_lines(
    run: Run, function: str, told: bool
) -> None:
    names = ("PyTorch copy", "PyTorch SiLU x mul")
    fused = {"library": "Inductor", "category": "elementwise"}
    run = kernels(
        run, {n: fused | {"name": f"triton_poi_fused_{at}"} for at, n in enumerate(names)}
    )
    steps = [(names[at % 2], 200 * at, 190) for at in range(100)]
    at = {"file": "/a/sea.py", "line": 55, "source": "note(2)", "hits": 50, "time_ns": 1e6}
    run = write(launch_table(run, steps), "timed_lines",
                [at | {"function": function, "own_ns": 1e6}])  # fmt: skip
    assert bool(of_rule(run, "graph_breaks")) == told
    if told:
        found = of_cause(run, "graph_breaks")
        waits = run.idle_gaps.loc[run.idle_gaps["cause"] == "launches", "idle_ns"].sum() / 2
        # Two pieces: half of what each kernel right behind another one passes on.
        assert 0 <= found.gain_ns - 99 * 190 * US / 2 <= waits
        assert "sea.py:53" in english(found.verdict)


def test_rows_of_tiny_kernels_gain_all_but_one_of_their_floors(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("PyTorch copy", 3 * at, 2) for at in range(3000)]
    run = launch_table(run, rows)
    found = of_cause(run, "small_kernels")
    floor = float(run.kernels["min_ns"].min())
    assert found.gain_ns == pytest.approx(2999 * (floor + 1 * US))
    assert "3,000 kernels of 2.0 us run one after another" in english(found.verdict)
    (shortest,) = [e for e in found.evidence if english(e.label).startswith("shortest launch")]
    row = run.kernels[run.kernels["min_ns"] == floor].iloc[0]
    named = f"nsys: {row['short_name']}, grid {row['grid']}"
    assert (amount(shortest), english(shortest.source)) == (floor, named)
    # Where launches hold them up, that is the finding.
    waits = {"stage": "decode", "cause": "launches", "waited": "", "call": "", "nvtx_range": ""}
    times = {"gaps": 900, "idle_ns": 7000 * US, "longest_ns": 8 * US}
    held = write(run, "idle_gaps", [{**waits, **times}])
    assert not of_rule(held, "small_kernels")
    # Where nsys itself makes the gaps, launches hold up nothing.
    idled = idle.idle_findings(held)
    nothing = [replace(f, gain_program=0.0, gain_ns=0.0) for f in idled]
    monkeypatch.setattr(idle, "idle_findings", lambda _run: nothing)
    assert "launch_bound" in {f.rule for f in nothing}
    assert of_rule(load_run(held.path), "small_kernels")


@pytest.mark.parametrize(
    ("rows", "names", "every", "said"),
    [
        (200, ("PyTorch copy", "PyTorch SiLU x mul"), 20, True),
        (30, ("PyTorch copy", "PyTorch SiLU x mul"), 20, False),  # 15 of each
        (200, ("PyTorch copy",), 20, False),
        (200, ("PyTorch copy", "PyTorch SiLU x mul"), 3, False),  # queued
    ],
)
def test_a_loop_that_launches_small_kernels_gains_its_time(
    run: Run, rows: int, names: tuple[str, ...], every: int, said: bool
) -> None:
    run = launch_table(run, [(names[at % len(names)], every * at, 2) for at in range(rows)])
    run = write(run, "api_calls", [{"name": "cudaLaunchKernel", "calls": rows, "total_ns": 1}])
    assert bool(of_rule(run, "one_by_one")) == said
    if said:
        found = of_cause(run, "one_by_one")
        floor = float(run.kernels["min_ns"].min())
        assert found.gain_ns == pytest.approx((199 * 20 + 2 - 200 * (2 - floor / US)) * US)
        assert not found.choice


def test_a_loop_over_a_kernel_of_the_program_is_one_as_well(run: Run) -> None:
    rows = [(("PyTorch copy", "PyTorch SiLU x mul")[at % 2], 20 * at, 2) for at in range(200)]
    run = launch_table(run, rows)
    kernels = run.kernels.assign(category="other", library="other")  # one, for tensors of two sizes
    run = write(run, "kernels", records(kernels))
    run = write(run, "api_calls", [{"name": "cudaLaunchKernel", "calls": 200, "total_ns": 1}])
    assert of_cause(run, "one_by_one").gain_ns > 199 * 18 * US


@pytest.mark.parametrize(("calls", "told"), [(900, True), (9, False)])
def test_functions_of_the_host_in_a_stream_cost_the_gaps_behind_them(
    run: Run, calls: int, told: bool
) -> None:
    run = write(run, "api_calls", [{"name": "cudaLaunchHostFunc", "calls": calls, "total_ns": 1}])
    gaps = {"stage": "decode", "cause": "queued", "waited": "", "call": "", "nvtx_range": "",
            "gaps": 900, "idle_ns": 900 * 41_000, "longest_ns": 50_000}  # fmt: skip
    run = write(run, "idle_gaps", [gaps])
    assert bool(of_rule(run, "host_functions")) == told
    if told:  # a queue alone leaves a gap of 1 us
        assert of_cause(run, "host_functions").gain_ns == pytest.approx(900 * 40_000)


def test_pages_of_managed_memory_cost_what_kernels_and_the_host_wait_for_them(run: Run) -> None:
    moves = [{"kind": f"unified memory {way}", "calls": 900, "bytes": 1 << 20, "total_ns": 9e6}
             for way in ("host to device", "device to host")]  # fmt: skip
    run = write(run, "memory_operations", moves)
    late = (run.kernels["total_ns"] - run.kernels["calls"] * run.kernels["min_ns"]).sum()
    gaps = {"stage": "decode", "cause": "unknown", "waited": "", "call": "", "nvtx_range": "",
            "gaps": 9, "idle_ns": 3_000_000, "longest_ns": 1_000_000}  # fmt: skip
    run = write(run, "idle_gaps", [gaps])
    found = of_cause(run, "managed_memory")
    assert found.gain_ns == pytest.approx(late + 3e6)
    assert "1,800 times" in english(found.title)
    assert not {"copies", "idle"} & causes(run)


@pytest.mark.parametrize(("size", "title"), [(4096, "Many small copies"), (1 << 20, "Copies")])
def test_small_copies_cost_what_the_host_needs_to_start_them(
    run: Run, size: int, title: str
) -> None:
    number = 100 * int(run.kernels["calls"].sum())
    copies = {"kind": "host to device", "calls": number, "bytes": number * size, "total_ns": 1e8}
    gaps = {"stage": "decode", "cause": "launches", "waited": "", "call": "", "nvtx_range": "",
            "gaps": 9, "idle_ns": 1_010_000, "longest_ns": 1_000_000}  # fmt: skip
    run = write(write(run, "memory_operations", [copies]), "idle_gaps", [gaps])
    found = of_cause(run, "copies")
    assert english(found.title).startswith(title)
    assert ("one by one" in english(found.verdict)) == (size == 4096)


def test_gpus_that_work_at_once_save_their_tiny_kernels_once(run: Run) -> None:
    one = launch_table(run, [("PyTorch copy", 3 * at, 2) for at in range(3000)])
    alone = of_cause(one, "small_kernels").gain_ns
    both = pd.concat([one.launches, one.launches.assign(device=1)])
    found = of_cause(write(one, "launches", records(both)), "small_kernels")
    assert found.gain_ns == pytest.approx(alone)
    assert "6,000 kernels of 2.0 us run one after another in decode on 2 GPUs" in english(
        found.verdict
    )


def test_few_tiny_kernels_in_a_row_are_none(run: Run) -> None:
    least = int(SMALL_KERNELS.limit("run"))
    rows = [("PyTorch copy", 100 * a + 3 * b, 2) for a in range(900) for b in range(least - 1)]
    big = [("cuBLAS GEMM 64x8", 100 * a + 40, 50) for a in range(900)]
    run = launch_table(run, sorted(rows + big, key=lambda row: row[1]))
    assert not of_rule(run, "small_kernels")


CHAIN = {
    "PyTorch SiLU x mul": {"grid": "64x1x1", "mean_ns": 50e3},
    "PyTorch softmax": {"grid": "64x1x1", "mean_ns": 50e3},
    "PyTorch copy": {"grid": "64x1x1", "mean_ns": 50e3},
}
STEP = [("PyTorch SiLU x mul", 0, 50), ("PyTorch softmax", 51, 30), ("PyTorch copy", 82, 20),
        ("cuBLAS GEMM 64x8", 103, 90)]  # fmt: skip


def chained(run: Run) -> Run:
    steps = [(name, start + 200 * at, length) for at in range(100) for name, start, length in STEP]
    return launch_table(kernels(run, CHAIN), steps)


def test_chains_gain_all_but_their_longest_kernel(run: Run) -> None:
    found = of_cause(chained(run), "elementwise_chain")
    assert found.gain_ns == 100 * 50 * US
    assert "3 elementwise kernels run back to back 100 times" in english(found.verdict)
    assert found.confidence == "low"


@pytest.mark.parametrize(
    ("name", "grid", "kernels_of_chain"),
    [
        ("void at::native::elementwise_kernel<(int)128, (int)2, F>()", "256x1x1", 3),
        ("void at::native::unrolled_elementwise_kernel<F>()", "128x1x1", 3),
        (
            "void at::native::elementwise_kernel<(int)128, (int)2, F>()",
            "300x1x1",
            2,
        ),  # another size
        ("void at::native::vectorized_elementwise_kernel<(int)4, F>()", "128x1x1", 2),  # larger
    ],
)
def test_a_chain_goes_on_through_kernels_with_fewer_elements_for_a_thread(
    run: Run, name: str, grid: str, kernels_of_chain: int
) -> None:
    vectorized = {"name": "void at::native::vectorized_elementwise_kernel<(int)8, F>()",
                  "block": "128x1x1"}  # fmt: skip
    run = chained(run)
    run = kernels(run, dict.fromkeys(CHAIN, vectorized))
    run = kernels(run, {"PyTorch copy": {"name": name, "grid": grid}})
    found = of_cause(run, "elementwise_chain")
    assert english(found.verdict).startswith(f"{kernels_of_chain} elementwise kernels run back")


def test_kernels_of_cudnn_are_no_part_of_a_chain_to_fuse(run: Run) -> None:
    run = chained(run)
    mine = run.kernels["short_name"].eq("PyTorch copy")
    tables.write(
        run.kernels.assign(library=run.kernels["library"].mask(mine, "cuDNN")),
        "kernels", run.directory.tables,
    )  # fmt: skip
    found = of_cause(load_run(run.path), "elementwise_chain")
    assert "2 elementwise kernels run back to back 100 times" in english(found.verdict)


def test_counted_bytes_tell_what_a_chain_passes_on(run: Run) -> None:
    run = chained(run)
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    moved = {"PyTorch SiLU x mul": (2e6, 1e6), "PyTorch softmax": (1e6, 1e6)}
    frame = run.counters.copy()
    copy = frame.iloc[[0]].assign(kernel_id=ids["PyTorch copy"])
    frame = pd.concat([frame, copy], ignore_index=True)
    for name, (loaded, stored) in {**moved, "PyTorch copy": (1e6, 1e6)}.items():
        mine = frame["kernel_id"] == ids[name]
        frame.loc[mine, ["global_load_bytes", "global_store_bytes"]] = loaded, stored
    tables.write(frame, "counters", run.directory.tables)
    found = of_cause(load_run(run.path), "elementwise_chain")
    # 4 of 7 MB pass between them: as much of the 100 us.
    assert found.gain_ns == pytest.approx(100 * 100 * US * 4 / 7)
    assert "4.0 MB of the 7.0 MB that they move pass between them." in english(found.verdict)
    assert found.confidence == "medium"
    bound = frame.assign(bound_by="issue")
    tables.write(bound, "counters", run.directory.tables)
    # Where instructions set the pace, bytes left out gain less.
    assert of_cause(load_run(run.path), "elementwise_chain").confidence == "low"
    # Where one of them sums, nothing tells that bytes are all that it takes time for.
    at_roof = of_cause(load_run(run.path), "elementwise_chain")
    summing = kernels(run, {"PyTorch copy": {"category": "reduction"}})
    sums = of_cause(summing, "elementwise_chain")
    assert sums.gain_ns == pytest.approx(100 * 100 * US * 4 / 7)
    assert sums.gain_ns < sums.most_ns == pytest.approx(at_roof.gain_ns)
    kernels(run, {"PyTorch copy": {"category": "copy"}})
    frame.loc[frame["kernel_id"] == ids["PyTorch softmax"], "global_load_bytes"] = 1e5
    tables.write(frame, "counters", run.directory.tables)
    (shorter,) = of_rule(load_run(run.path), "elementwise_chain")
    assert "2 elementwise kernels" in english(shorter.title)


def test_a_sum_that_each_row_adds_to_is_passed_on_to_the_next_row(run: Run) -> None:
    row = (("PyTorch SiLU x mul", 0, 40), ("PyTorch softmax", 41, 60))
    starts = [110 * at for at in range(1000) if at % 10]  # nine rows, then a product
    launches = [(name, start + later, length) for start in starts for name, later, length in row]
    launches += [("cuBLAS GEMM 64x8", 110 * at, 90) for at in range(0, 1000, 10)]
    run = launch_table(kernels(run, CHAIN), sorted(launches, key=lambda launch: launch[1]))
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    frame = run.counters.copy()
    for name, loaded in (("PyTorch SiLU x mul", 1e6), ("PyTorch softmax", 2e6)):
        counted = frame["kernel_id"] == ids[name]
        frame.loc[counted, ["global_load_bytes", "global_store_bytes"]] = loaded, 1e6
    tables.write(frame, "counters", run.directory.tables)
    found = of_cause(load_run(run.path), "elementwise_chain")
    # Of 5 MB a product of 1 MB is written and read again, and in eight of nine rows the sum.
    assert found.gain_ns == pytest.approx(900 * 100 * US * (2 + 2 * 8 / 9) / 5)


def test_kernels_that_load_the_same_data_could_load_it_once(run: Run) -> None:
    run = chained(kernels(run, {name: {"category": "other", "library": "other"} for name in CHAIN}))
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    plain = run.counters.iloc[[0]].assign(shared_memory_bytes=1e6, bound_by="dram")
    moved = {"PyTorch SiLU x mul": 1e3, "PyTorch softmax": 1e3, "PyTorch copy": 1e9}
    loaded = plain.assign(global_load_bytes=1e9, dram_read_bytes=1e9)
    frame = pd.concat(
        [
            loaded.assign(kernel_id=ids[name], global_store_bytes=stored, dram_write_bytes=stored)
            for name, stored in moved.items()
        ],
        ignore_index=True,
    )
    tables.write(frame, "counters", run.directory.tables)
    found = of_cause(load_run(run.path), "elementwise_chain")
    assert "3 kernels in a row read the same data again" in english(found.title)
    # Three reads and a write, of which two reads go: half of the 100 us.
    assert found.gain_ns == pytest.approx(100 * 100 * US / 2, rel=1e-3)


def test_what_caches_held_is_no_byte_of_a_chain_that_dram_bounds(run: Run) -> None:
    """As counted of a gated addition, a norm and a modulation (Triton, H200): each loads gates,
    scales and shifts again for each row, which L1 holds."""
    run = chained(kernels(run, CHAIN))
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    counted = {  # loaded by threads, read by DRAM, written by it
        "PyTorch SiLU x mul": (1_073_741_824, 536_978_432, 273_585_408),
        "PyTorch softmax": (268_435_456, 268_448_512, 270_552_576),
        "PyTorch copy": (1_342_177_280, 268_495_104, 269_071_616),
    }
    plain = run.counters.iloc[[0]].assign(global_store_bytes=268_435_456.0)
    for bound, part in (("dram", 0.572), ("latency", 0.307)):
        frame = pd.concat(
            [
                plain.assign(
                    kernel_id=ids[name],
                    bound_by=bound,
                    global_load_bytes=float(loaded),
                    dram_read_bytes=float(read),
                    dram_write_bytes=float(written),
                )
                for name, (loaded, read, written) in counted.items()
            ],
            ignore_index=True,
        )
        tables.write(frame, "counters", run.directory.tables)
        found = of_cause(load_run(run.path), "elementwise_chain")
        assert found.gain_ns == pytest.approx(100 * 100 * US * part, rel=0.01)


@pytest.mark.parametrize(("growth", "found"), [(1, True), (0, False)])
def test_a_norm_of_a_few_rows_more_in_each_step_computes_all_of_them_again(
    run: Run, growth: int, found: bool
) -> None:
    names = list(run.kernels["short_name"])
    grids = {name: f"{100 + growth * at}x1x1" for at, name in enumerate(names)}
    run = kernels(run, {n: {"category": "norm", "grid": grids[n], "name": n} for n in names})
    frame = run.kernels.assign(short_name="norm of rows")
    tables.write(frame, "kernels", run.directory.tables)
    run, ids = load_run(run.path), list(run.kernels["kernel_id"])
    rows = [{"kernel_id": key, "index": at, "start_ns": at * US, "duration_ns": US, "device": 0,
             "pid": 1, "context": 1, "stream": 7, "stage": "decode"}
            for at, key in enumerate(ids)]  # fmt: skip
    run = write(run, "launches", rows)
    assert bool(of_rule(run, "growing_steps")) == (found and len(ids) >= 6)


def test_fills_of_memory_gain_their_time_of_kernels_and_memsets(run: Run) -> None:
    first = run.kernels.iloc[0]
    run = kernels(run, {first["short_name"]: {"category": "fill"}})
    memset = {"kind": "memset", "calls": 9, "bytes": 1 << 30, "total_ns": 5e6}
    found = of_cause(write(run, "memory_operations", [memset]), "fills")
    assert found.gain_ns == pytest.approx(float(first["total_ns"]) + 5e6)
    assert "torch.empty" in english(found.action)


@pytest.mark.parametrize(("median_us", "told"), [(30, True), (8, False)])
def test_launches_that_wait_for_their_kernel_are_told(run: Run, median_us: int, told: bool) -> None:
    launches = 2 * int(run.kernels["calls"].sum())
    mean = run.kernels["total_ns"].sum() / run.kernels["calls"].sum()
    call = {"name": "cudaLaunchKernel", "calls": launches, "max_ns": round(9 * mean),
            "median_ns": mean * median_us / 20, "total_ns": round(launches * mean)}  # fmt: skip
    gaps = {"stage": "", "cause": "launches", "waited": "", "call": "", "nvtx_range": "",
            "gaps": launches, "late_calls": launches, "idle_ns": 1_010_000,
            "longest_ns": 1_000_000}  # fmt: skip
    run = write(write(run, "api_calls", [call]), "idle_gaps", [gaps])
    assert bool(of_rule(run, "blocking_launches")) == told


@pytest.mark.parametrize(
    ("shared", "loaded", "told"), [(0.0, 2e6, True), (1e6, 2e6, False), (0.0, 9e6, False)]
)
def test_own_kernels_that_stream_make_a_chain_of_low_confidence(
    run: Run, shared: float, loaded: float, told: bool
) -> None:
    run = chained(kernels(run, {name: {"category": "other", "library": "other"} for name in CHAIN}))
    ids = [k for k, n in zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True)
           if n in CHAIN]  # fmt: skip
    plain = run.counters.iloc[[0]].assign(
        global_load_bytes=1e6, global_store_bytes=1e6, global_load_efficiency_pct=100.0,
        global_store_efficiency_pct=100.0, shared_memory_bytes=0.0, atomic_instructions=0.0,
        bound_by="dram",
    )  # fmt: skip
    frame = pd.concat([plain.assign(kernel_id=key) for key in ids], ignore_index=True)
    second = frame["kernel_id"] == dict(zip(run.kernels["short_name"], run.kernels["kernel_id"],
                                            strict=True))["PyTorch softmax"]  # fmt: skip
    frame.loc[second, ["shared_memory_bytes", "global_load_bytes"]] = shared, loaded
    tables.write(frame, "counters", run.directory.tables)
    found = of_rule(load_run(run.path), "elementwise_chain")
    assert len(found) == told
    assert all(f.confidence == "low" for f in found)


@pytest.mark.parametrize(("mb", "told"), [(100.0, True), (10.0, False)])
def test_bytes_of_dram_tell_of_chains_that_caches_do_not_hold(
    run: Run, mb: float, told: bool
) -> None:
    run = chained(run)
    ids = dict(zip(run.kernels["short_name"], run.kernels["kernel_id"], strict=True))
    frame = run.counters.assign(global_load_bytes=math.nan, global_store_bytes=math.nan)
    copy = frame.iloc[[0]].assign(kernel_id=ids["PyTorch copy"])
    frame = pd.concat([frame, copy], ignore_index=True)
    mine = frame["kernel_id"].isin([ids[name] for name in CHAIN])
    frame.loc[mine, ["dram_read_bytes", "dram_write_bytes"]] = mb * 1e6, mb * 1e6
    tables.write(frame, "counters", run.directory.tables)
    tables.write(run.gpus.assign(l2_bytes=62.9e6), "gpus", run.directory.tables)
    found = of_cause(load_run(run.path), "elementwise_chain")
    # 2 x 2 of 6 parts pass between them; else all but the longest, which is half.
    part = 4 / 6 if told else 1 / 2
    assert found.gain_ns == pytest.approx(100 * 100 * US * part)
    assert ("Their bytes were not counted" in english(found.verdict)) is not told


def test_a_kernel_that_repeats_is_no_chain(run: Run) -> None:
    run = kernels(run, CHAIN)
    assert "elementwise_chain" not in causes(
        launch_table(run, [("PyTorch softmax", 40 * at, 30) for at in range(100)])
    )


def test_a_chain_that_repeats_is_told_once() -> None:
    frame = pd.DataFrame(
        {"kernel_id": list("abcabcabc"), "queue": 0, "stage": "", "duration_ns": 5}
    )
    table = chains(frame, np.full(9, True), lambda a, b: True, 3)
    assert table["kernels"].tolist() == [("a", "b", "c")]
    assert (table["times"].iloc[0], table["saved_ns"].iloc[0]) == (3, 30)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        # x * x * x + ...: steps of a chain may be one kernel, and come again later.
        ("aabcb" * 4, {"aabcb": 4}),
        ("aaab", {"aaab": 1}),
        # More than three of one kernel go over the items of a loop, as each step over a list does.
        ("aaaab", {"ab": 1}),
        ("aabb" * 3, {"ab": 3}),
        ("aaa", {}),
        ("aaaaaa", {}),
    ],
)
def test_a_kernel_may_come_again_in_a_chain_and_loops_are_none(
    ids: str, told: dict[str, int]
) -> None:
    frame = pd.DataFrame({"kernel_id": list(ids), "queue": 0, "stage": "", "duration_ns": 5})
    table = chains(frame, np.full(len(ids), True), lambda a, b: True, 3)
    found = {"".join(row["kernels"]): row["times"] for row in records(table)}
    assert found == told


@pytest.mark.parametrize(("name", "sure"), [("PyTorch copy, bf16", 0), ("copy, with cast", 1)])
def test_copies_inside_the_gpu_gain_what_no_program_needs(run: Run, name: str, sure: int) -> None:
    found = of_cause(kernels(run, {"PyTorch copy": {"short_name": name}}), "casts_and_copies")
    row = run.kernels[run.kernels["category"] == "copy"].iloc[0]
    assert found.gain_ns == sure * row["total_ns"]
    assert found.gain_program == pytest.approx(sure * row["share"])
    assert math.isnan(found.most_ns) if sure else found.most_ns == row["total_ns"]


@pytest.mark.parametrize(
    ("name", "said", "sure"),
    [
        ("PyTorch copy, fp32, with cast", "", "medium"),
        ("PyTorch bfloat16_copy_kernel_cuda", "", "medium"),
        ("PyTorch index", "copies by index, needed where", "low"),
        ("PyTorch cat, 2-byte", "concatenations, needed as far as", "low"),
        ("PyTorch copy, bf16, strided", "copies to or from a strided layout, needed", "low"),
        ("PyTorch copy, bf16", "other copies, needed where both", "low"),
    ],
)
def test_copies_that_may_be_needed_are_told_apart_from_casts(
    run: Run, name: str, said: str, sure: str
) -> None:
    found = of_cause(kernels(run, {"PyTorch copy": {"short_name": name}}), "casts_and_copies")
    labels = [english(item.label) for item in found.evidence]
    (kind,) = (label.removeprefix("of it ") for label in labels if label.startswith("of it "))
    assert kind.startswith(said)
    assert ("needed" in kind) is bool(said)
    assert (found.because is None) is (sure != "low")  # the first screen says why it is unsure
    assert f": {kind.partition(',')[0]} " in english(found.verdict)
    assert found.confidence == sure


@pytest.mark.parametrize(
    ("source", "inner", "saved"),
    [
        ("y = F.conv2d(x, w)", "", 1),
        ("y = F.conv1d(x, w)", "", 0),
        ("y = self.first(x)", "/v/site-packages/torch/nn/modules/conv.py:370 _conv_forward", 0),
        ("y = self.first(x)", "/v/site-packages/torch/nn/modules/conv.py:548 _conv_forward", 1),
    ],
)
def test_no_layout_spares_the_conversions_of_convolutions_of_sequences(
    run: Run, source: str, inner: str, saved: int
) -> None:
    name = "cuDNN layout nchwToNhwc, bf16"
    names = {"short_name": name, "name": "nchwToNhwcKernel", "library": "cuDNN"}
    run = kernels(run, {"PyTorch copy": names})
    row = run.kernels[run.kernels["short_name"] == name].iloc[0]
    at: dict[str, Any] = {"file": "/a/net.py", "line": 7, "function": "forward"}
    launched = at | {"call": "", "inner": "", "callers": "", "samples": 5, "time_ns": MS}
    run = write(run, "launch_lines", [launched | {"kernel_id": row["kernel_id"]}])
    run = write(run, "host_lines", [line("", 5, **at, source=source, inner=inner)])
    found = of_cause(run, "casts_and_copies")
    assert found.gain_ns == saved * row["total_ns"]
    assert ("channels_last" in english(found.action)) == bool(saved)


# --- communication --------------------------------------------------------------------------------


INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 9), st.booleans(), st.integers(0, 1)), min_size=1
)


@given(INTERVALS)
def test_exposed_communication_is_that_of_each_nanosecond(
    rows: list[tuple[int, int, bool, int]],
) -> None:
    frame = pd.DataFrame(
        [{"start_ns": s, "end_ns": s + n, "gpu": device} for s, n, _, device in rows]
    )
    mask = np.array([collective for _, _, collective, _ in rows])
    found = {one.gpu: one.exposed_ns for one in exposed(frame, mask)}
    for device in {device for *_, device in rows}:
        ticks = {
            kind: {t for s, n, c, d in rows if d == device and c == kind for t in range(s, s + n)}
            for kind in (True, False)
        }
        if any(c and d == device for _, _, c, d in rows):
            assert found[device] == len(ticks[True] - ticks[False])
    ends = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    assert union(*ends) == len({t for s, n, *_ in rows for t in range(s, s + n)})


def test_communication_that_runs_alone_is_told_with_its_share_of_the_wall_time(run: Run) -> None:
    run = kernels(run, {"PyTorch softmax": {"category": "collective", "short_name": "NCCL sum"}})
    ours = [("NCCL sum", 0, 900), ("cuBLAS GEMM 64x8", 100, 300)]
    found = of_cause(launch_table(run, ours), "collectives_exposed")
    assert found.gain_ns == 600 * US
    assert found.gain_program == pytest.approx(600 * US / wall_time(run)[0])
    assert "Part of it may be waiting for a GPU that comes late." in english(found.verdict)
    steps = [{"step": at, "device": 0, "collective_wait_ns": 150 * US} for at in range(3)]
    found = of_cause(write(run, "engine_steps", steps), "collectives_exposed")
    assert "50 % of it is waiting for a GPU that comes late." in english(found.verdict)


# --- clocks ---------------------------------------------------------------------------------------


def test_a_low_clock_may_gain_something_only_with_a_reason(run: Run) -> None:
    found = of_cause(run, "throttling")
    assert math.isnan(found.gain_ns)
    assert math.isnan(found.most_ns)
    hot = write(run, "telemetry", [{"source": "trace", "process": 1, "t_s": 0.0, "device": 0,
                                    "throttle": "hw thermal slowdown"}])  # fmt: skip
    found = of_cause(hot, "throttling")
    assert "hw thermal slowdown" in english(found.verdict)
    # 1.755 of 1.98 GHz, for what DRAM does not limit.
    rows = run.counters.merge(run.kernels[["kernel_id", "share", "mean_ns", "std_ns"]])
    rest = rows[rows["bound_by"] != "dram"]
    # What arithmetic limits ran in the trace at the clock that its time there tells.
    same = rest["bound_by"].isin(ARITHMETIC) & (rest["std_ns"] <= 0.25 * rest["mean_ns"])
    clock = 1.755 * (rest["duration_ns"] / rest["mean_ns"]).where(same, 1.0)
    gain = (rest["share"] * (1 - clock.clip(upper=1.98) / 1.98)).sum()
    assert found.most_ns == pytest.approx(gain * run.kernels["total_ns"].sum())
    assert math.isnan(found.gain_ns)  # no launch was seen to be faster


def test_a_clock_that_ncu_set_says_nothing(run: Run) -> None:
    manifest = read_manifest(RunDir(run.path))
    manifest.recipe["counters"]["clock_control"] = "base"
    write_manifest(RunDir(run.path), manifest)
    assert not of_rule(load_run(run.path), "throttling")


# --- shares of limits -----------------------------------------------------------------------------


def test_shares_of_limits_add_up_and_never_gain_beyond_the_roof(run: Run) -> None:
    rows = bound_shares(run)
    for stage in ("(all)", "prefill", "decode"):
        mine = [row for row in rows if row.stage == stage]
        assert sum(row.share or 0.0 for row in mine) == pytest.approx(1.0)
        walls = run.stages.set_index("stage").loc[stage]
        assert sum(row.of_wall or 0.0 for row in mine) == pytest.approx(1.0, abs=1e-6)
        assert mine[-1].bound == "launch"
        assert mine[-1].of_wall == pytest.approx(walls["idle_ns"] / walls["wall_ns"])
        assert all(0 <= (row.gain or 0.0) <= (row.share or 0.0) for row in mine)
    whole = {(r.bound, r.dtype): r for r in rows if r.stage == "(all)"}
    assert {("tensor", "bf16"), ("dram", "")} <= set(whole)
    assert whole["unmeasured", ""].reached is None


# --- all rules ------------------------------------------------------------------------------------


def test_every_rule_says_all_that_a_reader_needs() -> None:
    for rule in RULES:
        assert rule.question.endswith("?"), rule.key
        for limit in rule.thresholds.values():
            assert english(limit.source), rule.key
            assert math.isfinite(limit.value), rule.key
        for one in (rule,) if rule.action else BACKENDS.values():
            for text in (one.action, one.advice, one.disproof):
                assert english(text), rule.key
                for sentence in re.split(r"(?<=[.:]) ", english(text)):
                    assert len(sentence.split()) <= 45, sentence


def test_sentences_of_a_recorded_run_are_short_and_name_their_evidence(recorded: Run) -> None:
    found = program_findings(recorded)
    assert {"launch_bound", "casts_and_copies"} <= {f.rule for f in found}
    for one in (f for f in found if f.rule):
        assert all((one.evidence, english(one.disproof)))
        assert all(where(row) or row.source for row in one.evidence), english(one.title)
        for place in (place for row in one.evidence for place in where(row)):
            table, dot, column = place.rpartition(".")
            assert column in tables.empty(table if dot else "counters").columns, place
        assert one.confidence in ("high", "medium", "low")
        assert math.isnan(one.gain_program) or 0 <= one.gain_program <= 1
        assert all(len(s.split()) <= 45 for s in re.split(r"(?<=[.;:]) ", english(one.verdict)))
    assert timeline(recorded) is not None


@pytest.fixture
def recorded(recorded_run_of: Callable[[str], Run]) -> Run:
    return recorded_run_of("h200-top-kernels")


def test_kernels_without_a_duration_have_no_part_of_their_stage(run: Run) -> None:
    rows = [
        {"kernel_id": run.kernels["kernel_id"].iloc[at % 2], "index": at, "start_ns": at * US,
         "duration_ns": 0, "device": 0, "pid": 1, "context": 1, "stream": 7, "stage": "decode",
         "nvtx_path": "decode/head"}
        for at in range(20)
    ]  # fmt: skip
    (found,) = [f for f in program_findings(write(run, "launches", rows)) if f.key == "time"]
    assert "NVTX ranges" not in english(found.verdict)
