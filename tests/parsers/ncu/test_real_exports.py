"""Real outputs of many versions of ncu are read whole; published numbers come out right."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.errors import PermissionRefused
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import evaluate
from nsight_prof.parsers.ncu import NcuCapture, read_csv, read_ncu

RTX5090 = "CodeGandee+llm-perf-opt"


def find(exports: Path, name: str) -> Path:
    return next((exports / "ncu").glob(name))


def value(capture: NcuCapture, metric: str, profile: int = 0) -> float:
    rows = capture.metrics
    found = rows[(rows["metric"] == metric) & (rows["profile"] == profile)]
    return float(found["value"].item())


# Floating-point operations are those of the Tensor Cores; the other pipes were not counted. The
# bytes of one file are in Mbyte, Kbyte and byte, with 2 decimals: the answer is as exact as they.
@pytest.mark.parametrize(
    ("number", "intensity"),
    [(3, 380.6), (5, 716.2), (9, 96.5), (13, 70.8), (16, 717.6)],
)
def test_published_intensities_are_right_once_the_units_are_read(
    number: int, intensity: float, real_exports: Path
) -> None:
    capture = read_csv(find(real_exports, f"{RTX5090}/kernel_{number:04}_*/ncu.metrics.csv"))
    flops = value(capture, "sm__ops_path_tensor_src_bf16_dst_fp32.sum")
    read, write = (value(capture, f"dram__bytes_{way}.sum") for way in ("read", "write"))
    rounding = 0.05 + intensity * 0.005e6 / read
    assert flops / (read + write) == pytest.approx(intensity, abs=rounding)


def test_the_roofline_page_gives_the_same_bandwidth_as_bytes_over_time(real_exports: Path) -> None:
    folder = find(real_exports, f"{RTX5090}/kernel_0003_*")
    chart = read_csv(folder / "ncu.section_SpeedOfLight_RooflineChart.csv")
    page = read_csv(folder / "ncu.details.csv")
    bandwidth = value(page, "dram__bytes_read.sum") / value(page, "gpu__time_duration.sum") * 1e9
    assert value(chart, "dram__bytes.sum.per_second") == pytest.approx(bandwidth, rel=0.01)
    assert value(chart, "dram__bytes.sum.peak_sustained") == 128
    assert value(chart, "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2") == 43520


@pytest.mark.parametrize(
    ("name", "launches", "metrics", "grid"),
    [
        ("Olajide-Badejo+GPU-Roofline-Profiler/gemm_naive.csv", 1, 12, "64x64x1"),
        ("brycelelbach+ncu2markdown/copy_blocked.csv", 1, 71, "1024x1x1"),
        ("junstar92+cuda-kernel-study/gemm_ncu_*_a6000.csv", 13, 15275, "504x1x1"),
        ("leleucas*/bert_flashattn_nsight.csv", 10, 600, None),
        ("leleucas*/conv2d_result_l1.csv", 1, 139, None),
        ("leleucas*/pooling_nsight16.csv", 240, 9120, "1x1x1"),
        ("microsoft+superbenchmark/cublaslt_ncu.log", 1, 49, "9x32x1"),
        ("AveryClapp+ESMM-Research/profile_multi3.txt", 1, 28, "32x32x1"),
        ("BobbyAl+cuda-kmer-counting/*.txt", 1, 74, "1024x1x1"),
        ("Olajide-Badejo+CUDA-Kernel-Library/naive_2048.txt", 1, 70, "128x128x1"),
        ("gpu-mode+lectures/ncu_logs", 17, 476, "864x1x1"),
    ],
)
def test_every_launch_and_metric_of_a_real_output_is_there(
    name: str, launches: int, metrics: int, grid: str | None, real_exports: Path
) -> None:
    capture = read_csv(find(real_exports, name))
    assert len(capture.launches) == launches
    assert len(capture.metrics) == metrics
    first = capture.launches["grid"].dropna()
    assert (first.iloc[0] if len(first) else None) == grid
    assert not capture.warnings
    known = capture.metrics["value"].notna() | capture.metrics["text"].notna()
    assert known.mean() > 0.9


def test_known_values_of_real_outputs(real_exports: Path) -> None:
    text = read_ncu(find(real_exports, "AveryClapp+ESMM-Research/profile_multi3.txt"))
    assert value(text, "gpu__time_duration.sum") == pytest.approx(1.73e6)
    assert value(text, "launch__shared_mem_config_size") == pytest.approx(102400)
    assert value(text, "dram__cycles_elapsed.avg.per_second") == pytest.approx(6.21e9)
    assert value(text, "sm__cycles_active.avg") == 2047666.39
    assert text.launches["passes"].tolist() == [9]
    assert text.launches["pid"].tolist() == [8821]
    page = read_ncu(find(real_exports, "brycelelbach+ncu2markdown/copy_blocked.csv"))
    assert value(page, "dram__cycles_elapsed.avg.per_second") == 4963609951.19
    windows = read_ncu(find(real_exports, "Olajide*/gemm_naive.csv"))
    assert value(windows, "gpu__time_duration.sum") == 9589248
    assert windows.launches["name"][0].startswith("unnamed>::gemm_naive_kernel")


def test_a_real_refusal_of_the_counters_is_told(real_exports: Path) -> None:
    with pytest.raises(PermissionRefused, match="ERR_NVGPUCTRPERM"):
        read_csv(find(real_exports, "Mlightsnow+DD2360-llm.c/fp32_ncu.txt"))


def test_the_same_metric_on_two_pages_of_one_kernel_is_one_number(real_exports: Path) -> None:
    """The labels are mapped to the metric that the tool names elsewhere, not to a near one."""
    for folder in sorted((real_exports / "ncu" / RTX5090).glob("kernel_*")):
        pages = [read_csv(path).metrics for path in sorted(folder.glob("*.csv"))]
        both = pd.concat(pages).dropna(subset="value")
        for metric, rows in both.groupby("metric"):
            low, high = rows["value"].min(), rows["value"].max()
            # Each page is a replay of its own; 2 decimals of Ghz are half a per cent.
            assert high <= low * 1.02 + 0.01 or "throughput" in str(metric), (folder, rows)


SCHEDULERS = "smsp__issue_active.avg"


def test_issue_slots_of_real_outputs_agree_whichever_counter_tells_them(real_exports: Path) -> None:
    """The schedulers' own counter against those of the SM, as reports of other sets have them."""
    capture = read_csv(find(real_exports, "junstar92+cuda-kernel-study/gemm_ncu_*_a6000.csv"))
    wide = capture.metrics.pivot_table(index="profile", columns="metric", values="value")
    wide.index = wide.index.map(str)
    schedulers = [name for name in map(str, wide) if name.startswith(SCHEDULERS)]
    issued = [name for name in map(str, wide) if name.startswith("sm__inst_issued.avg")]
    known = evaluate(wide, "GA102", catalogue()).values
    for left_out, tolerance in ((schedulers, 0.02), (schedulers + issued, 0.12)):
        found = evaluate(wide.drop(columns=left_out), "GA102", catalogue()).values
        assert found["issue_active_pct"].tolist() == pytest.approx(
            known["issue_active_pct"].tolist(), rel=tolerance
        )


def test_waves_of_real_outputs_are_those_of_their_launches(real_exports: Path) -> None:
    capture = read_csv(find(real_exports, "junstar92+cuda-kernel-study/gemm_ncu_*_a6000.csv"))
    wide = capture.metrics.pivot_table(index="profile", columns="metric", values="value")
    wide.index = wide.index.map(str)
    printed = evaluate(wide, "GA102", catalogue()).values["waves"]
    rounded = wide.assign(launch__waves_per_multiprocessor=0.0)
    made = evaluate(rounded, "GA102", catalogue()).values["waves"]
    assert made.tolist() == pytest.approx(printed.tolist(), abs=0.0051)
