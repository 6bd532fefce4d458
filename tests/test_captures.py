"""The recorded runs of captures/ through the whole pipeline, and the known answers they hold.

What is known of a GPU before anything is measured bounds what a benchmark may say of it: the
datasheet, the width of its units a clock, sizes of tiles and sectors. No measured value stands
here. A capture that is not there is skipped.
"""

import itertools
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from nsight_prof import load_run
from nsight_prof.reports.serving.timeline import step_timeline
from tests.recorded import REPLAYED, whole_report

CAPTURES = Path(__file__).resolve().parent.parent / "captures"
BENCHMARKS = ("roofline", "memory-patterns", "gemm-staircase", "llm-kernels")
# FLOP per clock and SM of an H100 or H200 (GH100 whitepaper): two per multiply-add, and a lane
# takes two halves.
PIPES = {"fp64": 128, "fp32": 256, "fp16": 512}
# The same of its Tensor Cores, dense: 989 TFLOP/s bf16 = 4096 x 132 SMs x 1.83 GHz, and so on.
TENSOR = {"bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192, "tf32": 2048, "fp64": 256}
# 32 banks of 4 B, and an L1 of the same width.
BYTES_PER_CLOCK_SM = 128
# DRAM is read two sectors of 32 B at a time.
DRAM_GRANULE = 64
# Of the SM clock as the kernels themselves read it.
CLOCK_ERROR = 0.002

Replay = Callable[[str], Path]


def table(run: Path, name: str) -> Any:
    """A table with plain floats and NaN, and of `bench` the parameters as columns."""
    frame = pd.read_parquet(run / "tables" / f"{name}.parquet")
    for column in frame.select_dtypes("number"):
        frame[column] = frame[column].astype(float)
    if name == "bench":
        params = pd.DataFrame([json.loads(text) for text in frame["params"]], index=frame.index)
        # `n` is the number of samples already, and so on.
        params = params.rename(columns={c: f"size_{c}" for c in ("m", "n", "k", "bytes")})
        frame = frame.join(params).set_index("case_id", drop=False)
    return frame


def metrics(run: Path) -> Any:
    return json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))


def numbers(run: Path, section: str) -> Any:
    (found,) = [s["numbers"] for s in metrics(run)["sections"] if s["key"] == section]
    return found


@pytest.mark.parametrize("recorded", REPLAYED)
def test_every_recorded_run_becomes_a_report_without_a_gpu(replay: Replay, recorded: str) -> None:
    run = replay(recorded.removeprefix("h200-"))
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert metrics(run)["answer"]
    summary = (run / "report" / "stakeholder_summary.md").read_text(encoding="utf-8")
    assert "n/a" not in summary.split('<a id="more-terms">')[0]
    for link in re.findall(r"\]\(([^)#:]+)\)", report):
        assert (run / "report" / link).exists(), link


def test_answers_of_a_model_are_replayed_with_the_pages_that_it_drew(replay: Replay) -> None:
    run = replay("ocr-pages")
    assert "## Predictions" in whole_report(run / "report")
    told = table(run, "predictions")
    for name in ("file", "picture"):
        assert all((run / path).is_file() for path in told[name]), name


def test_samples_beside_the_trace_are_drawn_with_the_time_that_was_profiled(replay: Replay) -> None:
    run = load_run(replay("ocr-pages"))
    figure = step_timeline(run, "trace")
    assert figure is not None
    wall = run.stages.set_index("stage").loc["(all)", "wall_ns"]
    (profiled,) = figure.spans  # nothing held the clocks down
    assert (profiled.end - profiled.begin) * 1e9 == pytest.approx(wall, rel=0.01)
    (memory,) = next(p for p in figure.panels if p.y_label == "Memory in use, GB").series
    samples = run.telemetry[run.telemetry["source"] == "trace"]
    assert max(memory.y) == pytest.approx(samples["memory_used_bytes"].max() * 1e-9)


@cache
def schema_of(path: Path) -> Draft202012Validator:
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("recorded", REPLAYED)
def test_what_every_recorded_run_publishes_fits_its_schema(
    root: Path, replay: Replay, recorded: str
) -> None:
    report = replay(recorded.removeprefix("h200-")) / "report"
    published = {path.name for path in report.glob("*.json")}
    assert "metrics.json" in published
    for name in published & {"metrics.json", "results.json"}:
        data = json.loads((report / name).read_text(encoding="utf-8"))
        schema_of(root / "reports" / name.replace(".json", ".schema.json")).validate(data)


@pytest.mark.parametrize("language", ["ko", "zh"])
@pytest.mark.parametrize("recorded", REPLAYED)
def test_every_summary_says_the_same_in_every_language(
    replay: Replay, recorded: str, language: str
) -> None:
    folder = replay(recorded.removeprefix("h200-")) / "report"
    told = [folder / f"stakeholder_summary{name}.md" for name in ("", f".{language}")]
    ours, theirs = (path.read_text(encoding="utf-8") for path in told)
    # A sentence that is new in English stands there with a mark until its language has it.
    # Brackets are escaped on the page.
    assert "영어 원문" not in theirs
    assert "英文原文" not in theirs
    assert sorted(re.findall(r"\d[\d.,]*\d|\d", theirs)) == sorted(
        re.findall(r"\d[\d.,]*\d|\d", ours)
    )


def test_the_report_says_that_the_gemm_does_the_padding_of_its_tile(replay: Replay) -> None:
    folder = replay("known-gemm")
    # 26 tiles of 320 columns cover 8192: 8320 / 8192 = 1.0156 times 2 x 8192^3 operations.
    (row,) = [
        line
        for line in whole_report(folder / "report").splitlines()
        if line.startswith("| gemm | case:gemm/8192x8192x8192/bf16")
    ]
    assert "8192 x 8192 x 8192" in row
    assert "320x128x64" in row
    assert "1.0156" in row
    counters = pd.read_parquet(folder / "tables" / "counters.parquet")
    assert counters["flops_tensor"].iloc[0] / (2 * 8192**3) == pytest.approx(8320 / 8192, rel=1e-6)


def test_a_kernel_near_its_roof_is_told_with_its_limit_and_what_would_help(replay: Replay) -> None:
    summary = (replay("known-gemm") / "report" / "stakeholder_summary.md").read_text("utf-8")
    assert "Fixes save little: less than 1.0 % of the run. 99 % of it is matrix" in summary
    assert 'A choice below gains more: "matrix products in fp8' in summary


def test_a_replay_leaves_all_that_others_rely_on(replay: Replay) -> None:
    folder = replay("top-kernels")
    found = {path.stem for path in (folder / "tables").glob("*.parquet")}
    assert {"launches", "kernels", "metrics", "counters", "roofs"} <= found
    assert found - {"launches"} <= {path.stem for path in (folder / "tables").glob("*.csv")}
    assert metrics(folder)["replayed_from"] == "h200-top-kernels"
    kernels = pd.read_parquet(folder / "tables" / "kernels.parquet")
    assert kernels["share"].sum() == pytest.approx(1)
    stages = pd.read_parquet(folder / "tables" / "stages.parquet").set_index("stage")
    assert {"prefill", "decode"} <= set(stages.index)


@pytest.mark.parametrize("recipe", BENCHMARKS)
def test_a_benchmark_ran_in_three_processes_and_measured_nearly_all(
    replay: Replay, recipe: str
) -> None:
    bench = table(replay(recipe), "bench")
    measured = bench[bench["status"] == "ok"]
    assert (measured["processes"] >= 3).mean() > 0.95
    assert (measured["n"] >= 3).all()
    # What did not run says why, and is the exception.
    rest = bench[bench["status"] != "ok"]
    assert (rest["reason"].str.len() > 0).all()
    assert len(rest) < 0.1 * len(bench)
    # The median lies in its interval.
    assert (measured["ci_low_s"] <= measured["median_s"]).all()
    assert (measured["median_s"] <= measured["ci_high_s"]).all()


def roofs(run: Path) -> Any:
    """Measured roofs that counters do not contradict, by (level or pipe, dtype, kind, unit)."""
    frame = table(run, "measured_roofs")
    kept = frame[frame["accepted"].fillna(True).astype(bool)]
    return kept.set_index(["level_or_pipe", "dtype", "kind", "unit"]).sort_index()


def value(run: Path, level: str, kind: str, unit: str = "B/s", dtype: str = "") -> float:
    return float(roofs(run).loc[(level, dtype, kind, unit), "value"])


def test_no_memory_level_gives_more_than_it_can(replay: Replay) -> None:
    run = replay("roofline")
    can = table(run, "roofs").query("source != 'measured'")
    for level in ("dram", "l2", "l1", "shared"):
        rows = roofs(run).loc[level].query("unit == 'B/s'")
        assert len(rows) >= 1
        most = can.loc[can["level_or_pipe"] == level, "value"].max()
        assert (rows["value"] <= most * (1 + CLOCK_ERROR)).all(), level


def test_streams_of_one_direction_come_near_the_datasheet_of_dram(replay: Replay) -> None:
    run = replay("roofline")
    given = table(run, "roofs").query("source == 'datasheet' and level_or_pipe == 'dram'")
    sheet = float(given["value"].iloc[0])
    # Refresh and rows that open cost some per cent; what loses 15 % does not fill the memory.
    for kind in ("read", "write"):
        assert 0.85 < value(run, "dram", kind) / sheet <= 1, kind
    # Turns between reading and writing cost time on top.
    for kind in ("copy", "scale", "triad"):
        assert value(run, "dram", kind) < value(run, "dram", "read"), kind


@pytest.mark.parametrize("pipe", PIPES)
def test_multiply_adds_fill_their_pipe(replay: Replay, pipe: str) -> None:
    # Chains in registers wait for nothing: only start and end of the kernel are lost.
    (row,) = roofs(replay("roofline")).loc[pipe].query("is_ceiling").to_dict("records")
    assert 0.97 < row["per_clock_sm"] / PIPES[pipe] <= 1 + CLOCK_ERROR


@pytest.mark.parametrize("level", ["l1", "shared"])
def test_l1_and_shared_memory_give_a_line_a_clock(replay: Replay, level: str) -> None:
    rows = roofs(replay("roofline")).loc[level].query("is_ceiling")
    assert 0.95 < rows["per_clock_sm"].iloc[0] / BYTES_PER_CLOCK_SM <= 1 + CLOCK_ERROR


@pytest.mark.parametrize("dtype", TENSOR)
def test_tensor_cores_do_no_more_than_they_can_and_less_when_it_lasts(
    replay: Replay, dtype: str
) -> None:
    rows = roofs(replay("roofline")).loc[("tensor", dtype)].droplevel("unit")
    share = rows.loc["burst", "per_clock_sm"] / TENSOR[dtype]
    # A product of thousands of rows hides its loads. How near int8 comes is the library's doing.
    assert (0.4 if dtype == "int8" else 0.75) < share <= 1 + CLOCK_ERROR
    # Power holds the clock down, never up.
    assert rows.loc["steady", "value"] <= rows.loc["burst", "value"] * (1 + CLOCK_ERROR)
    assert rows.loc["steady", "clock_hz"] <= rows.loc["burst", "clock_hz"] * (1 + CLOCK_ERROR)


def test_a_ridge_point_is_peak_over_bandwidth(replay: Replay) -> None:
    run = replay("roofline")
    ridges = table(run, "ridge_points").query("source == 'measured'")
    assert (ridges["intensity"] * ridges["bandwidth"] / ridges["peak"]).to_numpy() == pytest.approx(
        1
    )
    pairs = set(zip(ridges["pipe"] + " " + ridges["dtype"], ridges["level"], strict=True))
    pipes = {f"{pipe} {pipe}" for pipe in PIPES} | {f"tensor {dtype}" for dtype in TENSOR}
    assert pairs >= set(itertools.product(pipes, ("dram", "l2", "l1")))


def test_what_is_farther_away_takes_longer(replay: Replay) -> None:
    run = replay("roofline")
    every = table(run, "measured_roofs").query("kind == 'latency' and unit == 'cycles'")
    cycles = every.set_index("level_or_pipe")["value"]
    assert cycles["shared"] < cycles["l1"] < cycles["l2"] < cycles["dram"]
    # Pageable memory is copied by the host first; a graph is launched once for all of its kernels.
    for way in ("h2d", "d2h"):
        assert value(run, "host", f"{way}-pageable") < value(run, "host", f"{way}-pinned")
    assert value(run, "host", "launch-graph", "s") < value(run, "host", "launch", "s")


def test_the_roofs_were_measured_three_times_and_agree(replay: Replay) -> None:
    run = replay("roofline")
    found = table(run, "measured_roofs").query("level_or_pipe != 'host'")
    assert (found["repeats"] == 3).all()
    assert found["repeatability"].notna().all()
    told = numbers(run, "repeatability")
    assert {"DRAM read", "L2 read", "Tensor bf16, burst"} <= set(told)
    # At a clock that is held by no limit, nothing but the memory's refresh varies.
    for level, kind in (("dram", "read"), ("l1", "read"), ("fp32", "fma")):
        rows = found.query(f"level_or_pipe == '{level}' and kind == '{kind}'")
        assert rows["repeatability"].iloc[0] < 0.02, level


def test_reading_alone_beats_every_mix_of_reads_and_writes(replay: Replay) -> None:
    bench = table(replay("memory-patterns"), "bench").query("pattern == 'mix'")
    alone = bench.loc["mix/1-0/alone|cold|normal", "bytes_per_s"]
    mixed = bench[(bench["ratio"] == "1:1") & (bench["way"] == "runs")]
    assert len(mixed) >= 3
    assert (mixed["bytes_per_s"] < alone).all()


def test_dram_moves_whole_granules_for_strides_and_gathers(replay: Replay) -> None:
    bench = table(replay("memory-patterns"), "bench").query("dram_bytes.notna()")
    reads = bench.query("pattern == 'stride' and access == 'read'").set_index("stride_sectors")
    moved = reads["dram_bytes"] / reads["useful_bytes"]
    assert moved[1] == pytest.approx(1, rel=0.02)
    assert moved[moved.index > 1].to_numpy() == pytest.approx(2, rel=0.02)
    # A table larger than L2, in any order: each item costs a granule, small ones share no other's.
    gathers = bench.query("pattern == 'gather' and order == 'random'")
    for _, row in gathers.iterrows():
        granules = math.ceil(row["item_bytes"] / DRAM_GRANULE) * DRAM_GRANULE * row["items"]
        assert row["dram_bytes"] == pytest.approx(granules + row["index_bytes"], rel=0.06)


def test_waves_explain_the_staircase_and_their_absence_does_not(replay: Replay) -> None:
    fits: Any = pd.DataFrame(numbers(replay("gemm-staircase"), "gemm_staircase")["fits"])
    for dtype, of_dtype in fits.groupby("dtype"):
        by_model = of_dtype.set_index("model")
        assert by_model.loc["waves", "r_squared"] > 0.99, dtype
        controls = by_model.drop("waves")
        assert len(controls) >= 2
        assert (controls["r_squared"] < by_model.loc["waves", "r_squared"]).all()
        assert (controls["median_error"] > 2 * by_model.loc["waves", "median_error"]).all()
    assert set(fits["dtype"]) == {"bf16", "fp8"}


def test_a_pinned_tile_computes_whole_tiles_and_pays_for_a_wave(replay: Replay) -> None:
    bench = table(replay("gemm-staircase"), "bench").query("variant == 'triton'")
    counted = bench.query("counted_flops.notna()")
    assert len(counted) > 20
    for _, row in counted.iterrows():
        rows = math.ceil(row["size_m"] / row["tile_m"]) * row["tile_m"]
        columns = math.ceil(row["size_n"] / row["tile_n"]) * row["tile_n"]
        assert row["counted_flops"] == pytest.approx(2 * rows * columns * row["size_k"], rel=1e-3)
    # 2 x 64 tiles fit on 132 SMs at once, 3 x 64 do not: a second wave, but no third.
    for dtype in ("bf16", "fp8"):
        of_dtype = bench[bench["dtype"] == dtype].set_index("size_m")["median_s"]
        assert 1.3 < of_dtype[257] / of_dtype[256] < 2, dtype


def test_weights_are_read_once_for_a_small_batch(replay: Replay) -> None:
    batches: Any = pd.DataFrame(numbers(replay("gemm-staircase"), "gemm_staircase")["batches"])
    for dtype, of_dtype in batches.groupby("dtype"):
        seconds = of_dtype.groupby("m")["s"].min()
        # 64 rows more of 8192 + 4096 elements beside weights of 8192 x 4096: 2 % more bytes.
        assert seconds[64] < 1.25 * seconds[1], dtype


def padded(row: Any) -> list[float]:
    """Elements of C that whole clusters of tiles cover, over those it has: both orientations."""
    found = re.search(r"tile (\d+)x(\d+).* cluster (\d+)x(\d+)", row["kernel_names"])
    assert found is not None
    tile_a, tile_b, cluster_a, cluster_b = map(int, found.groups())
    covered = []
    for m, n in ((row["tokens"], row["size_n"]), (row["size_n"], row["tokens"])):
        for a, b in ((cluster_a, cluster_b), (1, 1)):
            rows = math.ceil(math.ceil(m / tile_a) / a) * a * tile_a
            columns = math.ceil(math.ceil(n / tile_b) / b) * b * tile_b
            covered.append(rows * columns / (m * n))
    return covered


def test_large_linear_layers_compute_their_tiles(replay: Replay) -> None:
    bench = table(replay("llm-kernels"), "bench")
    linear = bench[bench["operation"].str.startswith("linear").to_numpy(dtype=bool)]
    large = linear.query("tokens >= 1024 and counted_flops.notna()")
    large = large[large["kernel_names"].str.contains(r"tile \d+x\d+.* cluster").to_numpy(bool)]
    assert len(large) >= 10
    for case, row in large.iterrows():
        work = 2 * row["tokens"] * row["size_n"] * row["size_k"]
        assert row["flops"] == work
        done = row["counted_flops"] / work
        assert any(done == pytest.approx(times, rel=0.02) for times in padded(row)), case


def test_no_product_beats_the_tensor_cores(replay: Replay) -> None:
    for recipe in ("gemm-staircase", "llm-kernels"):
        bench = table(replay(recipe), "bench").query("level == 'tensor'")
        most = bench["dtype"].map(TENSOR)
        measured = bench["flop_per_clock_sm"].notna() & most.notna()
        assert measured.sum() > 50
        fastest = (bench["flop_per_clock_sm"] / most)[measured]
        assert (fastest <= 1 + CLOCK_ERROR).all(), fastest.idxmax()


def test_fused_attention_beats_the_one_that_writes_its_scores(replay: Replay) -> None:
    bench = table(replay("llm-kernels"), "bench").query("median_s.notna()")
    names = bench["name"].str.extract(r"(attention/.*)/(flash|cudnn|math)/(graph)$")
    times = bench.assign(shape=names[0], backend=names[1]).dropna(subset="shape")
    by_backend = times.pivot_table(index="shape", columns="backend", values="median_s")
    by_backend = by_backend.dropna(subset="math")
    assert len(by_backend) >= 4
    assert (by_backend[["flash", "cudnn"]].max(axis=1) < by_backend["math"]).all()
