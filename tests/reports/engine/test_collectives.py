"""What reports say of collectives: bytes and bandwidth, or why there are none."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.recorded import whole_report


def test_a_report_has_bytes_ranks_and_bandwidth_of_each_operation_and_size(
    replay: Callable[[str], Path],
) -> None:
    run = replay("data-parallel")
    page = whole_report(run / "report")
    assert "| Collective | Bytes | Ranks | Calls | Time | Of it waiting |" in page
    assert "| all-reduce, sum, bf16 | 268 MB | 2 | 5 |" in page
    assert "| all-gather | 268 MB | 2 | 5 |" in page
    assert "The number of ranks is that of the processes in this trace" in page
    metrics = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    (told,) = [s["numbers"]["calls"] for s in metrics["sections"] if s["key"] == "collectives"]
    assert sum(row["rows"] for row in told) == 250
    launches = pd.read_parquet(run / "tables" / "launches.parquet")
    kernels = pd.read_parquet(run / "tables" / "kernels.parquet").set_index("kernel_id")
    reduces = kernels[kernels["short_name"].str.contains("all-gather")].index
    ours = launches[launches["kernel_id"].isin(reduces)].sort_values("start_ns")
    # The last five of each GPU are those of the largest size; the n-th of both are one call.
    by_gpu = [part["duration_ns"].to_numpy()[-5:] for _, part in ours.groupby("device")]
    shortest = sum(map(min, zip(*by_gpu, strict=True)))
    (largest,) = [r for r in told if (r["operation"], r["bytes"]) == ("all-gather", 1 << 28)]
    assert largest["algorithm_bandwidth"] == pytest.approx(5 * (1 << 28) / shortest * 1e9)
    assert largest["bus_bandwidth"] == pytest.approx(largest["algorithm_bandwidth"] / 2)


def test_a_trace_without_payloads_says_how_to_have_them(replay: Callable[[str], Path]) -> None:
    page = whole_report(replay("vllm-tensor-parallel") / "report")
    assert "Bytes, ranks and bandwidth are not available:" in page
    assert "nsys export --type=sqlite --include-blobs=true" in page


def test_the_first_screen_says_what_communication_costs_a_step(
    replay: Callable[[str], Path],
) -> None:
    run = replay("data-parallel")
    steps = pd.read_parquet(run / "tables/rank_steps.parquet")
    exposed = (steps["wait_ns"] + steps["transfer_ns"]).mean()
    first = (run / "report/report.md").read_text().partition("\n## ")[0]
    assert exposed / steps["wall_ns"].mean() == pytest.approx(0.0113, abs=0.0001)
    assert "**Communication between GPUs costs only 1.1 % of a step of 21.2 ms; " in first
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first)
    said = f"Of a step (`forward`, `backward` and `optimizer`) of 21.2 ms, {exposed / 1e3:.0f} us"
    assert f"{said} (1.1 %) is communication" in plain
    shortest, longest = sorted(steps.groupby("device")["wait_ns"].mean() / 1e3)
    assert f"({shortest:.1f} us on GPU 1, {longest:.1f} us on GPU 0)" in plain
    assert f"{steps['overlapped_ns'].mean() / 1e6:.2f} ms more runs beside" in plain
    # The test of the links that follows the steps is in none of them.
    assert "Outside of the steps lie 18.6 ms of the run (15 %)" in first
    page = whole_report(run / "report")
    assert "Means of 5 steps and of 2 GPUs" in page


def test_kernels_beside_communication_are_compared_with_the_same_alone(
    replay: Callable[[str], Path],
) -> None:
    run = replay("data-parallel")
    launches = pd.read_parquet(run / "tables/launches.parquet")
    kernels = pd.read_parquet(run / "tables/kernels.parquet").set_index("kernel_id")
    sends = launches["kernel_id"].map(kernels["category"]) == "collective"
    launches["end_ns"] = launches["start_ns"] + launches["duration_ns"]
    # Of all kernels in backward, the launches of one grid of this one alone last alike.
    names = launches["kernel_id"].map(kernels["short_name"])
    adds = (names == "PyTorch add, bf16, vectorized") & (launches["grid"] == "16384x1x1")
    columns = ["start_ns", "end_ns", "duration_ns", "device"]
    of_kernel = launches[adds & (launches["stage"] == "backward")][columns].to_numpy(int)
    beside, alone = list[int](), list[int]()
    for start, end, duration, device in of_kernel:
        others = launches[sends & (launches["device"] == device)]
        both = others["end_ns"].clip(upper=end) - others["start_ns"].clip(lower=start)
        overlap = both.clip(lower=0).sum() / duration
        if not overlap:
            alone.append(duration)
        elif overlap > 0.5:
            beside.append(duration)
    longer = sum(beside) / (len(beside) * float(pd.Series(alone).median())) - 1
    assert len(beside) == 70
    assert longer == pytest.approx(0.12, abs=0.005)
    page = whole_report(run / "report")
    assert f"70 launches that can be compared take {100 * longer:.0f} %" in page
    assert f"({sum(beside) / 1e6:.2f} ms of " in page
