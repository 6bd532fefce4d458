"""What is said first of recorded runs and of real exports, where an engineer would dispute it."""

import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import runs, timeline
from nsight_prof.reports.engine.stages.section import section as stages_section
from nsight_prof.reports.findings.gain import untraced_wall
from nsight_prof.reports.findings.kernels.judge import judge
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.copies import casts_and_copies
from nsight_prof.reports.page import Number, Table
from nsight_prof.reports.plots.roofline.axes import at_clock
from nsight_prof.reports.profile.figure_views import rooflines
from nsight_prof.reports.profile.kernel_rows import kernel_rows
from nsight_prof.reports.studies.gemm_staircase.section import section as staircase_section
from nsight_prof.reports.studies.memory_patterns.section import section as memory_section
from nsight_prof.reports.verdicts.ranking import findings
from scripts.pages.stage_run import stage_runs
from tests.reports.programs import amount, english, of_cause

Recorded = Callable[[str], Run]


def evidence(found: Finding, label: str) -> float:
    (one,) = [row for row in found.evidence if label in english(row.label)]
    return amount(one)


def test_steps_that_were_queued_are_the_measured_cuda_graph(recorded_run_of: Recorded) -> None:
    found = of_cause(recorded_run_of("h200-top-kernels"), "launch_bound")
    assert "In 4 of 15 steps the host had launched all work before the GPU needed it" in english(
        found.verdict
    )
    assert evidence(found, "median step that was queued") == pytest.approx(0.84e6, rel=0.01)
    assert evidence(found, "median step for which the GPU waits") == pytest.approx(2.66e6, rel=0.01)
    # An independent count: all kernels of a step take 0.74 ms, and no graph takes less.
    run = recorded_run_of("h200-top-kernels")
    (decode,) = records(run.stages[run.stages["stage"] == "decode"])
    kernels = number(decode["kernel_ns"]) / 16
    assert kernels < evidence(found, "median step that was queued") < 1.2 * kernels


def test_idle_time_names_the_range_that_it_lies_before(recorded_run_of: Recorded) -> None:
    found = of_cause(recorded_run_of("h200-top-kernels"), "launch_bound")
    assert "72 % of this time lies before what NVTX range attention launches" in english(
        found.verdict
    )


def test_a_loop_that_waits_in_every_step_has_its_launches_as_a_symptom(imported: Recorded) -> None:
    run = imported("nsys/cestwc+balinski-and-gomory-cuda/report23.sqlite")
    rules = [found.rule for found in findings(run)]
    assert rules.index("sync_stalls") < rules.index("launch_bound")
    found = of_cause(run, "sync_stalls")
    assert found.gain_ns < of_cause(run, "launch_bound").gain_ns
    assert "A host that waits for results cannot run ahead" in english(found.verdict)


def test_without_a_trace_the_launches_that_were_counted_weigh_findings(imported: Recorded) -> None:
    run = imported("ncu/junstar92+cuda-kernel-study/gemm_ncu_results_4096x4096x4096_a6000.csv")
    times = {row["kernel_id"]: number(row["duration_ns"]) for row in records(run.counters)}
    found = [one for one in findings(run) if one.kernel_ids]
    saved = [one.gain_kernel * sum(times[key] for key in one.kernel_ids) for one in found]
    assert saved == sorted(saved, reverse=True)
    bounds = [one.most_ns for one in found if not one.gain_kernel]
    assert len(bounds) > 2
    assert bounds == sorted(bounds, reverse=True)


def test_a_copy_between_short_kernels_ends_their_row(recorded_run_of: Recorded) -> None:
    frame = timeline(recorded_run_of("h200-top-kernels"))
    assert frame is not None
    everything = np.ones(len(frame), np.bool_)
    between = frame["memory_before"].diff().fillna(0) > 0
    assert between.sum() > 50  # memsets of split-K products
    first = set(runs(frame, everything)["first"])
    assert set(np.flatnonzero(between)) <= first
    assert len(runs(frame.assign(memory_before=0), everything)) < len(first)


def test_copies_before_a_launch_are_those_of_the_trace(imported: Recorded) -> None:
    run = imported("nsys/hpcgroup+pipit/perlmutter-cloverleaf-cuda.sqlite")
    before = run.launches["memory_before"]
    assert before.is_monotonic_increasing
    assert 0 < before.max() <= run.memory_operations["calls"].sum()


def test_a_short_product_keeps_what_each_launch_takes(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-top-kernels")
    products = [j for j in judge(run) if j.row["category"] == "gemm" and j.bound == "dram"]
    short = [j for j in products if j.fixed is not None]
    assert short
    for judged in short:
        mean, fixed = number(judged.row["mean_ns"]), judged.fixed
        assert fixed is not None
        assert mean < 20_000
        if judged.peer is None:  # none of its size came nearer to the roof
            assert judged.gain == 0
            continue
        work = _work(judged.row) / (_work(judged.peer) / number(judged.peer["mean_ns"]))
        assert mean * (1 - judged.gain) == pytest.approx(min(mean, work + fixed.ns))


def _work(row: Row) -> float:
    """The ns in which DRAM moves the bytes of a launch at its roof: by ncu's own time of it."""
    return number(row["roof_share"]) * number(row["duration_ns"])


def test_products_that_memory_limits_gain_what_the_best_of_them_shows_in_the_trace(
    recorded_run_of: Recorded,
) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    rows = [j for j in judge(run) if j.row["category"] == "gemm" and j.bound == "dram"]
    long = [j for j in rows if number(j.row["mean_ns"]) > 20_000]
    assert len(long) > 2
    gained = 0
    for judged in long:
        mean, work = number(judged.row["mean_ns"]), _work(judged.row)
        bytes_ = number(judged.row["dram_bytes"])
        alike = [j for j in long if 0.5 <= number(j.row["dram_bytes"]) / bytes_ <= 2]
        best = max(_work(j.row) / number(j.row["mean_ns"]) for j in alike)
        assert judged.at_roof == pytest.approx(1 - work / mean)
        assert judged.gain == pytest.approx(1 - work / best / mean, abs=1e-9)
        gained += judged.gain > 0
    assert 0 < gained < len(long)


def test_attention_gains_no_time_in_which_its_exponentials_run(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    waiting = [j for j in judge(run) if j.row["category"] == "attention" and j.end is not None]
    (prefill,) = waiting
    row = prefill.row
    cycles = number(row["duration_ns"]) / 1e9 * number(row["sm_clock_hz"]) * 132
    # Heads of 128: 2 x 2 x 128 FLOPs and one exponential per score, 16 per cycle and SM.
    exponentials = number(row["flops_tensor"]) / 512 / 16 / cycles
    assert 0.1 < exponentials < 0.3
    assert prefill.at_roof - prefill.gain == pytest.approx(exponentials, abs=1e-6)


def test_convolutions_that_convert_their_layout_name_the_remedy(recorded_run_of: Recorded) -> None:
    recorded = recorded_run_of("h200-planted-defects-second")
    ((_, run),) = stage_runs(recorded, ["defect/fp32_gemm"])
    layouts = run.kernels["name"].str.contains("nchwTo|nhwcTo")
    (found,) = casts_and_copies(run)
    assert "torch.channels_last" in english(found.action)
    label = "of it conversions between channels-first and channels-last"
    assert evidence(found, label) == run.kernels.loc[layouts, "total_ns"].sum()


def test_what_a_cast_makes_wider_costs_those_that_read_it(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("stories/nanogpt")
    (found,) = casts_and_copies(run)
    # Of 6 x 1024 tokens the scores of 50,304 words, 4 bytes each: softmax reads no other tensor.
    scores = 6 * 1024 * 50304 * 4
    of_size = run.counters.loc[run.counters["global_load_bytes"] == 3 * scores, "kernel_id"]
    wide = run.kernels["kernel_id"].isin(of_size)
    lost = run.kernels.loc[wide, "total_ns"].sum() / 2
    casts = evidence(found, "of it casts to another type")
    assert found.gain_ns == pytest.approx(casts + lost)


def test_a_clock_that_fell_has_its_price_in_time(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    found = of_cause(run, "throttling")
    # An independent count of the largest such kernel, from its launches alone.
    named = run.kernels["short_name"].str.contains("320x128x64")
    gemm = run.kernels.loc[named, "kernel_id"].iloc[0]
    times = run.launches.loc[run.launches["kernel_id"] == gemm].sort_values("start_ns")
    first, later = times["duration_ns"].iloc[:11], times["duration_ns"].iloc[11:]
    lost = evidence(found, "time lost since the clock fell")
    assert number((later - first.median()).sum()) <= lost < 12e6
    # Nothing recorded says that anybody can lift the limit: it is told, and is no gain.
    assert math.isnan(found.gain_ns)
    assert found.offers is None
    assert "That is a limit, and no gain" in english(found.verdict)


def test_code_of_a_library_is_no_task_for_its_user(recorded_run_of: Recorded) -> None:
    found = [f for f in findings(recorded_run_of("h200-vllm-kernels")) if f.rule == "imbalance"]
    assert [english(f.action) for f in found]
    assert all("a library's" in english(f.action) for f in found)


def test_what_comes_once_is_no_matter_of_launches(imported: Recorded) -> None:
    run = imported("nsys/morluto+flameox/nsight-2025.5.2.sqlite")
    rules = [found.rule for found in findings(run)]
    assert "launch_bound" not in rules
    found = of_cause(run, "first_use")
    assert "cuLibraryLoadData" in english(found.verdict)
    assert math.isnan(found.gain_ns)
    gaps = run.idle_gaps[run.idle_gaps["call"] != ""]
    assert evidence(found, "of it in calls of first use") == gaps["idle_ns"].sum()


@pytest.mark.parametrize("capability", ["8.7", "9.0"])
def test_a_gpu_that_shares_the_memory_of_its_cpu_has_no_bandwidth_of_a_driver(
    capability: str, real_exports: Path, tmp_path: Path
) -> None:
    """A real export, with the compute capability of an Orin in place of its own."""
    trace = tmp_path / "trace.sqlite"
    source = real_exports / "nsys/openhackathons-org+nways_accelerated_programming"
    shutil.copy(source / "jacobi_report.sqlite", trace)
    trace.chmod(0o644)
    major, minor = capability.split(".")
    with closing(sqlite3.connect(trace)) as db, db:
        db.execute("UPDATE TARGET_INFO_GPU SET computeMajor = ?, computeMinor = ?", (major, minor))
    with open_trace(trace) as opened:
        known = opened.gpus()["memory_bandwidth"].notna()
    assert known.all() == (capability == "9.0")


def test_what_a_launch_costs_without_nsys_is_an_interval(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-top-kernels")
    found = of_cause(run, "launch_bound")
    (row,) = [r for r in found.evidence if english(r.label) == "launch call without a profiler"]
    roofs = run.measured_roofs.set_index("kind").loc["launch"]
    assert isinstance(row.value, Number)
    assert row.value.low == pytest.approx(1e9 * roofs["low"])
    assert "by process" in english(row.threshold)


def test_roofs_are_drawn_at_the_clock_of_the_kernels_on_them(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-top-kernels")
    panels, _ = rooflines(run, kernel_rows(run))
    clocks = {panel.title: number(panel.clock_hz) for panel in panels}
    assert len(clocks) == 2
    tensor, vector = clocks.values()
    assert tensor < 1.75e9 < vector  # the Tensor Cores are held down by the power limit
    for panel in panels:
        drawn = at_clock(panel, panel.clock_hz)
        (own,) = [roof for roof in panel.memory_roofs if roof.key == "l1"]
        (moved,) = [roof for roof in drawn.memory_roofs if roof.key == "l1"]
        assert moved.value / own.value == pytest.approx(
            clocks[panel.title] / number(own.clock_hz), rel=1e-6
        )


def test_norms_whose_data_l2_merges_do_not_scatter(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    norms = set(run.kernels.loc[run.kernels["name"].str.contains("rsqrt"), "kernel_id"])
    told = [f for f in findings(run) if norms & set(f.kernel_ids)]
    assert norms
    assert not [f for f in told if f.rule.startswith("uncoalesced")]


def test_shares_of_prefill_and_decode_say_how_they_move(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    section = stages_section(run)
    assert section is not None
    tables = [part for part in section.blocks if isinstance(part, Table)]
    (note,) = [table.note for table in tables if table.key == "stages-times"]
    assert note is not None
    assert "those of 31 decode steps to 1 of prefill" in english(note)


def test_kernels_of_one_job_are_told_together(recorded_run_of: Recorded) -> None:
    (overview,) = [f for f in findings(recorded_run_of("h200-top-kernels")) if f.key == "time"]
    words = english(overview.verdict)
    # 16 decode steps launch 288 kernels in their range head: the product and the sampling.
    of_head = "head in decode (18 each time; all but the largest take 16 % of the stage's GPU time)"
    assert of_head in words
    assert "mlp" not in words  # seven at a time


def test_what_nsys_adds_to_calls_of_a_late_host_is_part_of_the_idle_time(
    recorded_run_of: Recorded,
) -> None:
    run = recorded_run_of("h200-top-kernels")
    calls = run.api_calls[run.api_calls["name"].str.contains("LaunchKernel")]
    roofs = run.measured_roofs
    launches = roofs[(roofs["level_or_pipe"] == "host") & (roofs["kind"] == "launch")]
    alone = 1e9 * launches["value"].min()
    traced_ns = calls["total_ns"].sum() / calls["calls"].sum()
    often = run.api_calls["calls"].sum()
    assert often < 3 * run.kernels["calls"].sum()
    wall, idle = program_time(run)
    added = number((wall - untraced_wall(run)).value)
    assert added == pytest.approx(often * (traced_ns - alone))
    assert 0 < added < number(idle.value)


def test_mfu_is_of_the_published_rate_too(recorded_run_of: Recorded) -> None:
    section = stages_section(recorded_run_of("h200-vllm-kernels"))
    assert section is not None
    (table,) = [
        part
        for part in section.blocks
        if isinstance(part, Table) and part.key == "stages-utilization"
    ]
    assert "989 TFLOP/s" in english(table.note)
    assert [english(c.heading) for c in table.columns if "MFU, datasheet" in english(c.heading)]


def test_the_floor_of_small_products_is_the_measured_roof(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-gemm-staircase")
    (roof,) = [
        r for r in records(run.roofs) if (r["level_or_pipe"], r["source"]) == ("dram", "measured")
    ]
    section = staircase_section(run)
    assert section is not None
    labels = [
        english(series.label)
        for figure in section.figures
        for series in getattr(figure.chart, "series", ())
    ]
    rate = f"{number(roof['value']) / 1e12:.3g} TB/s"
    assert any(f"bytes at {rate}" in label for label in labels), labels


def test_two_summaries_say_which_loss_of_mixed_access_is_theirs(recorded_run_of: Recorded) -> None:
    section = memory_section(recorded_run_of("h200-memory-patterns"))
    assert section is not None
    (found,) = [f for f in section.findings if f.rule == "mixed_bandwidth"]
    assert "The loss that the recipe roofline states is that of a copy" in english(found.disproof)


def test_adding_by_index_is_no_copy() -> None:
    name = (
        "void at::native::indexFuncLargeIndex<float, long, unsigned int, (int)2, (int)2, (int)-2, "
        "(bool)1, at::native::ReduceAdd>(at::cuda::detail::TensorInfo<T1, T3>)"
    )
    found = classify(name)
    assert (found.category, found.short_name) == ("reduction", "PyTorch index add")


def test_all_kernels_that_slow_down_as_the_clock_falls_are_counted(
    recorded_run_of: Recorded,
) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    (clock,) = [f for f in findings(run) if f.rule == "throttling"]
    slower: dict[str, list[float]] = {}
    for key, launches in run.launch_times.sort_values("start_ns").groupby("kernel_id"):
        times = launches["duration_ns"].to_numpy()
        # Of a prefill of 28 layers: a kernel of two products per layer runs them in turn.
        for shape in [times[::2], times[1::2]] if len(times) == 56 else [times]:
            if len(shape) == 28 and np.median(shape[12:]) > 1.05 * np.median(shape[:11]):
                lost = (shape[11:] - np.median(shape[:11])).clip(0).sum()
                slower.setdefault(str(key), []).append(lost)
    large = set(run.kernels.loc[run.kernels["share"] >= 0.01, "kernel_id"])
    lost = {key: sum(parts) for key, parts in slower.items() if key in large}
    assert len(lost) == 4
    assert "4 kernels show it" in english(clock.verdict)
    lost_ns = evidence(clock, "time lost since the clock fell")
    assert lost_ns == pytest.approx(sum(lost.values()), rel=0.01)
