import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.directory import RunDir, read_manifest, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import thresholds
from nsight_prof.reports.analysis.gpu_times import gpu_count
from nsight_prof.reports.analysis.stages import ALL, wall_time
from nsight_prof.reports.findings.kernels.findings import kernel_findings
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.open_questions import open_questions, profiled_share
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.summary.summary import summarise
from nsight_prof.reports.verdicts.ranking import findings, headline
from tests.reports.programs import amount, english, kernels, where, write


def named(run: Run, name: str) -> Finding:
    return next(f for f in kernel_findings(run) if english(f.title).startswith(name))


def said(run: Run) -> list[str]:
    return [english(question.text) for question in open_questions(run)]


def named_bounds(run: Run) -> Finding:
    return next(f for f in findings(run) if f.key == "bounds")


def edit(run: Run, table: str, name: str, **values: Any) -> Run:
    """Change columns of one kernel, found by its readable name, in a table of the run."""
    frame = getattr(run, table).copy()
    names = run.kernels.set_index("kernel_id")["short_name"]
    mine = frame["kernel_id"].map(names) == name
    for column, value in values.items():
        frame.loc[mine, column] = value
    tables.write(frame, table, run.directory.tables)
    return load_run(run.path)


def set_capture(run: Run, **values: float) -> Run:
    """Change the row of the whole capture in table `stages`."""
    frame = run.stages.copy()
    for column, value in values.items():
        frame.loc[frame["stage"] == ALL, column] = round(value)
    tables.write(frame, "stages", run.directory.tables)
    return load_run(run.path)


def test_what_takes_the_time_comes_first_then_what_bounds_it(run: Run) -> None:
    found = findings(run)
    assert [f.key for f in found[:2]] == ["time", "bounds"]
    assert "81 %" in english(found[0].title)
    assert "56 % is limited by DRAM bandwidth" in english(found[1].verdict)


def test_the_rest_is_ranked_by_the_time_it_could_save(run: Run) -> None:
    gains = [f.gain_ns for f in findings(run)[2:]]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) > 5


def test_no_gain_is_beyond_the_roof_or_amdahl(run: Run) -> None:
    for finding in (f for f in findings(run) if f.key == "kernel"):
        assert 0 <= finding.gain_kernel <= 1
        assert finding.gain_program == pytest.approx(finding.share * finding.gain_kernel)
        rows = run.counters[run.counters["kernel_id"].isin(finding.kernel_ids)]
        assert finding.gain_kernel <= 1 - rows["roof_share"].min() + 1e-9


def test_the_distance_of_a_kernel_to_its_roof_is_a_bound_and_no_gain(run: Run) -> None:
    finding = named(run, "cuBLAS GEMM 256x128")
    assert finding.gain_ns == finding.gain_program == 0
    assert finding.most_ns == pytest.approx(1.264e6, rel=1e-2)
    assert "No kernel of its kind and size came nearer" in english(finding.verdict)


def test_a_kernel_gains_what_takes_it_as_near_to_the_roof_as_the_best_of_its_kind(run: Run) -> None:
    other = run.kernels.loc[run.kernels["short_name"].str.contains("GEMM")]["short_name"].iloc[-1]
    flops = float(run.counters["flops"].max())
    small = edit(run, "counters", other, bound_by="tensor", roof_share=0.95, bound_unit="",
                 flops=flops / 8)  # fmt: skip
    assert named(small, "cuBLAS GEMM 256x128").gain_kernel == 0
    best = edit(small, "counters", other, flops=flops)
    finding = named(best, "cuBLAS GEMM 256x128")
    assert finding.gain_kernel == pytest.approx(1 - 0.7605 / 0.95, abs=1e-4)
    assert finding.most_ns == pytest.approx(1.264e6, rel=1e-2)


def test_a_kernel_near_its_roof_is_not_told_to_be_faster(run: Run) -> None:
    finding = named(run, "cuBLAS GEMM 64x8:")
    assert english(finding.action).startswith("A better kernel hardly helps; only less data does")


def test_a_small_grid_is_named_as_the_cause_of_waiting(run: Run) -> None:
    finding = named(run, "FlashAttention decode")
    assert "64 blocks on 132 SMs" in english(finding.verdict)
    (mean,) = run.kernels.loc[run.kernels["kernel_id"].isin(finding.kernel_ids), "mean_ns"]
    # What the shortest launch takes is no work that more blocks could share.
    start = run.kernels["min_ns"].min() / mean
    assert finding.gain_kernel == pytest.approx((132 - 64) / 132 * (1 - start))
    assert any(english(seen.label) == "blocks" for seen in finding.evidence)


@pytest.mark.parametrize(
    ("library", "change", "rule", "promised"),
    [
        ("other", {"theoretical_occupancy_pct": 25.0}, "register_limited", True),
        ("PyTorch", {"theoretical_occupancy_pct": 25.0}, "register_limited", False),
        ("other", {"achieved_occupancy_pct": 25.0}, "achieved_occupancy", False),
        ("other", {"atomic_instructions": 1e9, "atomic_pct": 9.0}, "atomics", True),
        ("PyTorch", {"atomic_instructions": 1e9, "atomic_pct": 9.0}, "atomics", False),
        ("PyTorch", {"atomic_instructions": 1e9, "atomic_pct": 33.3}, "atomics", True),
        ("other", {"waves": 0.4, "achieved_occupancy_pct": 25.0}, "few_blocks", True),
        ("PyTorch", {"waves": 0.4, "achieved_occupancy_pct": 25.0}, "few_blocks", False),
        ("PyTorch copy", {"global_load_efficiency_pct": 25.0}, "uncoalesced_loads", True),
        ("PyTorch embedding", {"global_load_efficiency_pct": 25.0}, "uncoalesced_loads", False),
        ("cuBLAS gemm", {"global_load_efficiency_pct": 25.0}, "uncoalesced_loads", False),
    ],
)
def test_what_the_program_cannot_do_or_nothing_shows_is_a_bound_and_no_gain(
    run: Run, library: str, change: dict[str, float], rule: str, promised: bool
) -> None:
    plain = dict.fromkeys(("theoretical_occupancy_pct", "achieved_occupancy_pct"), 50.0)
    plain |= {"waves": 9.0, "sm_balance_pct": 99.0, "sm_active_pct": 99.0, "roof_share": 0.2}
    plain |= {f"{level}_pct": 10.0 for level in ("dram", "l2", "l1")}
    same = {"global_load_efficiency_pct": 100.0, "global_store_efficiency_pct": 100.0,
            "global_load_bytes": 1e9, "global_store_bytes": 0.0}  # fmt: skip
    name = "FlashAttention decode split-KV"
    library, _, category = library.partition(" ")
    run = edit(run, "kernels", name, library=library, category=category or "other",
               grid="13200x1x1")  # fmt: skip
    run = edit(run, "counters", name, bound_by="latency", top_stall="long_scoreboard",
               occupancy_limiter="registers", **plain | same | change)  # fmt: skip
    rows = run.stalls[run.stalls["kernel_id"].map(dict(zip(run.kernels["kernel_id"],
                      run.kernels["short_name"], strict=True))) == name]  # fmt: skip
    frame = run.stalls.drop(rows.index)
    waits = rows.head(1).assign(reason="long_scoreboard", share=0.8)
    tables.write(pd.concat([frame, waits], ignore_index=True), "stalls", run.directory.tables)
    finding = named(load_run(run.path), "FlashAttention decode")
    assert finding.rule == rule
    assert (finding.gain_ns > 0) == promised
    assert promised or finding.most_ns > 0
    assert ("how much of that can be had is not known" in english(finding.verdict)) != promised


@pytest.mark.parametrize(("waits", "promised"), [(0.8, False), (0.3, True)])
def test_fewer_instructions_promise_nothing_where_warps_wait_for_dram(
    run: Run, waits: float, promised: bool
) -> None:
    """A gather of an H200 with 14 threads of 32 at work, at 79 % of the bandwidth."""
    name = "FlashAttention decode split-KV"
    run = edit(run, "kernels", name, library="other", category="other", grid="13200x1x1")
    whole = {f"global_{kind}_efficiency_pct": 100.0 for kind in ("load", "store")}
    run = edit(run, "counters", name, bound_by="dram", roof_share=0.79, dram_pct=79.0, l2_pct=30.0,
               l1_pct=30.0, threads_per_instruction=14.0, issue_active_pct=60.0,
               sm_active_pct=99.0, sm_balance_pct=99.0, **whole)  # fmt: skip
    rows = run.stalls[run.stalls["kernel_id"].map(dict(zip(run.kernels["kernel_id"],
                      run.kernels["short_name"], strict=True))) == name]  # fmt: skip
    frame = run.stalls.drop(rows.index)
    of_memory = rows.head(1).assign(reason="long_scoreboard", share=waits)
    tables.write(pd.concat([frame, of_memory], ignore_index=True), "stalls", run.directory.tables)
    finding = named(load_run(run.path), "FlashAttention decode")
    assert finding.rule == "divergence"
    assert (finding.gain_ns > 0) == promised
    assert promised or finding.most_ns > 0


def test_no_kernel_gets_shorter_than_the_shortest_launch(run: Run) -> None:
    finding = named(run, "PyTorch RMSNorm")
    floor = run.kernels["min_ns"].min()
    (grid,) = run.kernels.loc[run.kernels["kernel_id"].isin(finding.kernel_ids), "grid"]
    idle = 1 - int(grid.split("x")[0]) / 132
    assert finding.gain_kernel == pytest.approx(idle * (1 - floor / 4900))


def test_a_trace_of_long_kernels_tells_no_shortest_launch(run: Run) -> None:
    only = run.kernels[run.kernels["short_name"] == "FlashAttention decode split-KV"]
    tables.write(only, "kernels", run.directory.tables)
    mine = run.counters["kernel_id"].isin(only["kernel_id"])
    tables.write(run.counters[mine], "counters", run.directory.tables)
    finding = next(f for f in kernel_findings(load_run(run.path)) if f.rule == "small_grid")
    assert only["min_ns"].min() > 5000
    assert finding.gain_kernel == pytest.approx((132 - 64) / 132)


def test_full_schedulers_are_a_bound_and_no_waiting(run: Run) -> None:
    issue = {"bound_by": "issue", "roof_share": 0.9, "issue_active_pct": 90.0}
    busy = edit(run, "counters", "cuBLAS GEMM 256x128", **issue)
    finding = named(busy, "cuBLAS GEMM 256x128")
    assert english(finding.title).endswith("instruction issue, 90 % of its slots")
    assert "limited by the issue of instructions" in english(finding.verdict)
    assert finding.gain_kernel == 0
    assert "fewer instructions" in english(finding.action)
    (slots,) = [
        seen for seen in finding.evidence if english(seen.label).startswith("issue slots busy")
    ]
    assert english(slots.label) == "issue slots busy, of all cycles"
    assert amount(slots) == pytest.approx(90.0), "the number that the bound compares"
    assert where(slots)[0] == "counters.roof_share"


def test_scattered_accesses_gain_what_useful_sectors_leave(run: Run) -> None:
    scattered = {"global_sector_efficiency_pct": 20.0, "bound_by": "l2", "roof_share": 0.95}
    run = edit(run, "kernels", "FlashAttention forward", category="other")
    finding = named(
        edit(run, "counters", "FlashAttention forward", **scattered, dram_pct=30.0, l2_pct=95.0,
             flops=0.0, flops_tensor=0.0, tensor_pct=0.0),
        "FlashAttention forward",
    )  # fmt: skip
    assert finding.rule == "uncoalesced"
    assert finding.gain_kernel == pytest.approx(1 - 0.3 / 0.9)  # of the roof that copies reach
    assert "since its global loads or stores are uncoalesced" in english(finding.verdict)
    assert "a library's" in english(finding.action), "its user does not write it"
    assert "near" not in english(finding.verdict).split("; ")[1].split(".")[0]
    assert "it could save about" in english(finding.verdict)


def test_launches_of_mixed_work_are_told_and_lower_the_confidence(run: Run) -> None:
    mixed = edit(run, "kernels", "cuBLAS GEMM 256x128", std_ns=9e5)
    finding = named(mixed, "cuBLAS GEMM 256x128")
    assert "one launch does not stand for all: only if they were all" in english(finding.verdict)
    assert "At the full roof" not in english(finding.verdict)
    assert finding.confidence == "low"
    assert "stand for all" not in english(named(run, "cuBLAS GEMM 256x128").verdict)


def only(run: Run, count: int) -> Run:
    kept = run.kernels.head(count).assign(
        category="other", library="other", short_name=[f"mine_{i}" for i in range(count)]
    )
    tables.write(kept, "kernels", run.directory.tables)
    mine = run.counters["kernel_id"].isin(kept["kernel_id"])
    tables.write(run.counters[mine], "counters", run.directory.tables)
    return load_run(run.path)


def test_kernels_of_no_known_kind_are_named(run: Run) -> None:
    found = findings(only(run, 3))[0]
    assert "mine_0" in english(found.title)
    assert all(f"mine_{i}" in english(found.verdict) for i in range(3))
    assert "unknown" not in english(found.verdict)


def test_kernels_of_one_name_are_added_up_and_keep_their_name(run: Run) -> None:
    three = only(run, 3)
    twice = three.kernels.assign(short_name=["mine", "yours", "mine"])
    tables.write(twice, "kernels", run.directory.tables)
    found = findings(load_run(run.path))[0]
    assert english(found.title).endswith(" goes to mine")
    assert english(found.verdict).count("mine") == 1
    assert found.share == pytest.approx(twice["share"].iloc[[0, 2]].sum())


def test_one_kernel_is_told_once(run: Run) -> None:
    alone = only(run, 1)
    assert english(findings(alone)[0].verdict).startswith("The GPU runs one kernel, mine_0, for ")
    assert "bounds" not in {f.key for f in findings(alone)}


def test_one_launch_is_no_plural(run: Run) -> None:
    once = edit(run, "kernels", "cuBLAS GEMM 256x128", calls=1)
    assert "in 1 call," in english(named(once, "cuBLAS GEMM 256x128").verdict)


def test_kernels_of_one_name_and_bound_are_one_finding(run: Run) -> None:
    same = edit(run, "kernels", "cuBLAS GEMM 128x192", short_name="cuBLAS GEMM 128x256")
    finding = named(same, "cuBLAS GEMM 128x256")
    assert len(finding.kernel_ids) == 2
    assert "(2 kernels of this name, counters of the largest)" in english(finding.verdict)
    assert finding.gain_kernel == pytest.approx(finding.gain_program / finding.share)


def test_launch_shapes_are_those_of_one_kernel(run: Run) -> None:
    rows = run.kernels
    both = rows["short_name"].isin(["cuBLAS GEMM 128x192", "cuBLAS GEMM 128x256"])
    one = {key: rows[key].mask(both, "cuBLAS GEMM 128x256") for key in ("short_name", "name")}
    tables.write(rows.assign(**one), "kernels", run.directory.tables)
    sentence = english(named(load_run(run.path), "cuBLAS GEMM 128x256").verdict)
    assert "(2 launch shapes, counters of the largest)" in sentence


def test_idle_time_is_told_for_the_stage_that_has_it(run: Run) -> None:
    (idle,) = [f for f in findings(run) if f.key == "idle"]
    assert "in decode" in english(idle.title)
    assert idle.gain_of == "wall time"
    assert idle.gain_ns == pytest.approx(24.2504e6 * 0.31)


def test_idle_time_is_told_as_time_of_the_stage(run: Run) -> None:
    (idle,) = [f for f in findings(run) if f.key == "idle"]
    assert re.match(r"The GPU is idle for [\d.]+ ms of [\d.]+ ms in decode \(",
                    english(idle.verdict))  # fmt: skip


def test_copies_over_the_bus_are_told_where_they_cost(run: Run) -> None:
    rows = [
        ("host to device", 10, 10**9, 4_000_000, 0, 0),
        ("device to device", 5, 10**9, 9_000_000, 0, 0),
    ]
    frame = pd.DataFrame(rows, columns=list(tables.empty("memory_operations").columns))
    tables.write(frame, "memory_operations", run.directory.tables)
    (copies,) = [f for f in findings(load_run(run.path)) if f.key == "copies"]
    assert copies.gain_ns == 4_000_000
    wall, idle = wall_time(run)
    assert copies.gain_program == pytest.approx(4_000_000 / wall)
    # Two GPUs copy at once: together no more than the time in which they are busy.
    frame["total_ns"] *= 100
    tables.write(frame, "memory_operations", run.directory.tables)
    (copies,) = [f for f in findings(load_run(run.path)) if f.key == "copies"]
    assert copies.gain_ns == pytest.approx(wall - idle)


def host_copies(run: Run, size: int, time: int, pageable: int, startup: int) -> Any:
    """Return the finding about ten copies of host to device."""
    rows = [("host to device", 10, size, time, pageable, startup)]
    frame = pd.DataFrame(rows, columns=list(tables.empty("memory_operations").columns))
    tables.write(frame, "memory_operations", run.directory.tables)
    (found,) = [f for f in findings(load_run(run.path)) if f.key == "copies"]
    return found


def test_numbers_that_a_cast_makes_shorter_are_copied_half_as_long(run: Run) -> None:
    name, millions = str(run.kernels["short_name"].iloc[0]), 1_000_000
    cast = {"calls": 10, "dtype": "fp32", "grid": "1000x1x1", "block": "128x1x1",
            "total_ns": millions, "short_name": "PyTorch copy, fp32, with cast"}  # fmt: skip
    run = kernels(run, {name: cast})
    found = host_copies(run, 10 * 1000 * 128 * 4 * 8, 4 * millions, 0, 0)
    assert english(found.title).startswith("Numbers of 8 bytes are copied to the GPU")
    assert found.gain_ns == pytest.approx(0.5 * 4 * millions + millions / gpu_count(run))
    found = host_copies(run, 10 * 1000 * 128 * 4, 4 * millions, 0, 0)  # of bytes it makes floats
    assert found.gain_ns == 4 * millions


def test_what_is_copied_before_the_loop_is_not_in_the_gain(run: Run) -> None:
    found = host_copies(run, 10**9, 4_000_000, 0, 3_990_000)
    assert math.isnan(found.gain_ns)
    assert "4.0 ms before all kernels that repeat: start-up" in english(found.verdict)
    found = host_copies(run, 10**9, 8_000_000, 0, 5_000_000)
    assert found.gain_ns == 3_000_000
    assert "5.0 ms of this come before all kernels that repeat" in english(found.verdict)
    # A loop that copies in every step copies some of it before its first kernel.
    assert host_copies(run, 10**9, 4_000_000, 0, 400_000).gain_ns == 4_000_000


def test_kernels_hide_no_more_copies_than_they_last(run: Run) -> None:
    words = english(host_copies(run, 10**9, 4_000_000, 0, 0).verdict)
    assert "Behind kernels, or avoided, they would cost nothing" in words
    key = run.kernels["kernel_id"].iloc[0]
    launch = {"kernel_id": key, "start_ns": 0, "duration_ns": 1_000_000, "device": 0, "pid": 1}
    run = write(run, "launches", [launch])
    found = host_copies(run, 10**9, 4_000_000, 0, 0)
    assert "Kernels run for only 1.0 ms" in english(found.verdict)
    assert "copies behind them save no more than that" in english(found.verdict)
    # The action is to overlap them: what else may be done with them is a bound.
    assert (found.gain_ns, found.most_ns) == (1_000_000, 4_000_000)


@pytest.mark.parametrize(("busy", "copied"), [(0.4, 0.6), (0.6, 0.9)])
def test_results_that_are_copied_beside_kernels_can_hide_no_further(
    run: Run, busy: float, copied: float
) -> None:
    """The longer of kernels and copies stays: herds of an H200 copied for 97 % of the time."""
    wall, idle = wall_time(run)
    working = wall - idle
    key = run.kernels["kernel_id"].iloc[0]
    launch = {"kernel_id": key, "start_ns": 0, "duration_ns": round(busy * working), "device": 0,
              "pid": 1}  # fmt: skip
    run = write(run, "launches", [launch])
    rows = [("device to host", 10, 10**9, round(copied * working), 0, 0)]
    frame = pd.DataFrame(rows, columns=list(tables.empty("memory_operations").columns))
    tables.write(frame, "memory_operations", run.directory.tables)
    (found,) = [f for f in findings(load_run(run.path)) if f.key == "copies"]
    assert found.gain_ns == pytest.approx((1 - max(busy, copied)) * working, rel=0.01)


def test_copies_of_a_few_bytes_are_not_slow_for_pageable_memory(run: Run) -> None:
    found = host_copies(run, 80, 4_000_000, 4_000_000, 0)
    assert "They move 8 B each" in english(found.verdict)
    assert "pageable" not in english(found.title)
    assert "pageable" in english(host_copies(run, 10**9, 4_000_000, 4_000_000, 0).title)


def test_a_program_without_pytorch_is_advised_in_words_of_cuda(run: Run) -> None:
    def action() -> str:
        return english(host_copies(run, 10**9, 4_000_000, 4_000_000, 0).action)

    assert "DataLoader" in action()
    tables.write(run.kernels.assign(library="other"), "kernels", run.directory.tables)
    assert "cudaMemcpyAsync" in action()
    assert "DataLoader" not in action()


def test_copies_of_pageable_memory_are_held_to_those_of_pinned_memory(run: Run) -> None:
    rows = [("host to device", 10, 10**9, 100_000_000, 90_000_000, 0)]  # 10 GB/s
    frame = pd.DataFrame(rows, columns=list(tables.empty("memory_operations").columns))
    tables.write(frame, "memory_operations", run.directory.tables)
    roofs = tables.empty("measured_roofs")
    named = {"level_or_pipe": "host", "kind": "h2d-pinned", "value": 50e9, "unit": "B/s"}
    for rate, said in ((50e9, True), (11e9, False)):
        roof = pd.DataFrame([named | {"value": rate}], columns=list(roofs.columns))
        tables.write(tables.check(roof, "measured_roofs"), "measured_roofs", run.directory.tables)
        (copies,) = [f for f in findings(load_run(run.path)) if f.key == "copies"]
        words = english(copies.verdict)
        assert english(copies.title).startswith("Copies of pageable memory take")
        assert "pin_memory=True" in english(copies.action)
        assert ("pinned memory alone would save 80 % of their time" in words) is said
        busy = next(r for r in copies.evidence if english(r.label).startswith("busy time"))
        wall, idle = wall_time(run)
        assert amount(busy) <= wall - idle + 1


def test_a_stage_loses_no_more_than_the_whole_capture(run: Run) -> None:
    run = set_capture(run, wall_ns=26e6, idle_ns=5e6)
    (idle,) = [f for f in findings(run) if f.key == "idle"]
    assert idle.gain_ns == 5e6
    assert idle.gain_program == pytest.approx(5 / 26)
    assert "save at most 19 % of its wall time" in english(idle.verdict)


def test_idle_time_outside_of_the_stages_is_told(run: Run) -> None:
    assert not [f for f in findings(run) if f.key == "idle_outside"]
    stages = run.stages[run.stages["stage"] != ALL]
    wall, idle = stages["wall_ns"].sum() + 90e6, stages["idle_ns"].sum() + 80e6
    run = set_capture(run, wall_ns=wall, idle_ns=idle)
    (outside,) = [f for f in findings(run) if f.key == "idle_outside"]
    assert amount(outside.evidence[0]) == pytest.approx(80e6)
    assert math.isnan(outside.gain_program), "it may come once only"
    assert "80 ms outside of the stages" in english(outside.title)


def test_a_gemm_without_tensor_cores_gains_what_they_would_give(run: Run) -> None:
    counters = {"tensor_pct": 0.0, "flops_tensor": 0.0, "flops_fp32": 1e9, "bound_by": "fp32"}
    slow = edit(run, "counters", "cuBLAS GEMM 256x128", **counters, roof_share=0.9)
    finding = named(slow, "cuBLAS GEMM 256x128")
    assert "TF32" in english(finding.action)
    # The Tensor Cores would take 76 % of the time for its FLOPs, DRAM 14 %.
    assert finding.gain_kernel == pytest.approx(1 - 0.7605, abs=1e-3)


def test_doubtful_durations_lower_the_confidence(run: Run) -> None:
    assert named(run, "cuBLAS GEMM 256x128").confidence == "high"
    doubtful = edit(run, "counters", "cuBLAS GEMM 256x128", duration_difference=-0.3)
    assert named(doubtful, "cuBLAS GEMM 256x128").confidence == "medium"
    uneven = edit(doubtful, "kernels", "cuBLAS GEMM 256x128", std_ns=9e5)
    assert named(uneven, "cuBLAS GEMM 256x128").confidence == "low"


def test_without_counters_the_limits_stay_open_with_the_reason(trace_only_run: Run) -> None:
    keys = {f.key for f in findings(trace_only_run)}
    assert keys == {"time", "idle", "casts_and_copies", "older_attention"}
    (reason,) = said(trace_only_run)
    assert reason == (
        "What limits the kernels is not known: "
        "the driver refuses access to the GPU performance counters."
    )


def test_without_a_trace_findings_speak_of_the_launch_only(run: Run) -> None:
    columns = ("calls", "share", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns")
    frame = run.kernels.drop(columns=list(columns)).reindex(columns=run.kernels.columns)
    tables.write(frame, "kernels", run.directory.tables)
    alone = load_run(run.path)
    found = findings(alone)
    assert {f.key for f in found} == {"kernel"}
    assert all("in the launch that was profiled" in english(f.verdict) for f in found)
    assert all(math.isnan(f.gain_program) for f in found)
    assert math.isnan(profiled_share(alone))
    assert not any("n/a" in english(f.verdict) or "nan" in english(f.verdict) for f in found)


def test_an_unknown_bound_is_abstained_from(run: Run) -> None:
    unknown = edit(run, "counters", "cuBLAS GEMM 64x8", bound_by="", roof_share=math.nan)
    assert "What limits cuBLAS GEMM 64x8 is not known" in " ".join(said(unknown))
    assert not [f for f in findings(unknown) if english(f.title).startswith("cuBLAS GEMM 64x8:")]


def test_the_share_without_counters_is_named_where_it_matters(run: Run) -> None:
    assert profiled_share(run) == pytest.approx(0.9725, abs=1e-4)
    assert said(run) == []
    fewer = run.counters.iloc[:3]
    tables.write(fewer, "counters", run.directory.tables)
    assert "other kernels" in said(load_run(run.path))[0]
    assert "the measured kernels could save" in english(named_bounds(load_run(run.path)).verdict)
    assert "the measured kernels could save" in english(named_bounds(run).verdict)


def test_the_terminal_gets_three_short_sentences(run: Run, trace_only_run: Run) -> None:
    assert len(headline(run)) == 3
    assert all(len(line) < 160 and line.endswith(".") for line in headline(run))
    assert "not known" in headline(trace_only_run)[-1]


def test_the_terminal_gets_what_the_first_screen_says(run: Run) -> None:
    first = summarise(report_view(run)).first
    verdict, *actions = headline(run, first.in_short)
    assert verdict == english(first.verdict)
    assert first.actions
    for line, action in zip(actions, first.actions, strict=False):
        assert line == english(action.in_short)


def test_an_empty_run_has_no_findings_but_says_why(make_run: Callable[..., Path]) -> None:
    path = make_run(counters=False)
    for table in tables.tables():
        tables.write(tables.empty(table), table, path / "tables")
    manifest = read_manifest(RunDir(path))
    manifest.steps = []
    write_manifest(RunDir(path), manifest)
    run = load_run(path)
    assert findings(run) == []
    assert headline(run) == [
        "How much of the time each kernel takes is not known: this run has no trace.",
        "What limits the kernels is not known: this run has no counters.",
    ]


def test_every_threshold_says_where_it_comes_from() -> None:
    for facts in thresholds().values():
        assert facts["source"].startswith(("Nsight Compute rule", "prof"))
