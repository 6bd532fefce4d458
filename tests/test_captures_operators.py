"""The operator section of the recorded run of vLLM: each sum again, from the launches themselves.

No measured value stands here: the oracle is arithmetic on other tables of the run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.formats import duration, quantity

pytestmark = pytest.mark.xdist_group("captures")

Replay = Callable[[str], Path]
RECIPE = "vllm-kernels"


@pytest.fixture
def run(replay: Replay) -> Path:
    return replay(RECIPE)


def table(run: Path, name: str) -> Any:
    return pd.read_parquet(run / "tables" / f"{name}.parquet")


def section(run: Path, key: str) -> Any:
    metrics = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    (found,) = [s for s in metrics["sections"] if s["key"] == key]
    return found


def sentence(run: Path, words: str) -> str:
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    part = report.partition('<a id="section-operators">')[2].replace("\\", "")
    (found,) = {line for line in part.splitlines() if words in line}
    return found


def products(run: Path, stage: str) -> Any:
    """Products of a stage with the least ns of a call, by FLOPs, bytes and the measured roofs."""
    gemms = table(run, "gemms")
    mine = gemms[gemms["stage"] == stage].copy()
    roofs = table(run, "measured_roofs")
    dram = roofs[(roofs["level_or_pipe"] == "dram") & (roofs["kind"] == "read")]["value"].iloc[0]
    tensor = roofs[(roofs["level_or_pipe"] == "tensor") & (roofs["dtype"] == "bf16")]
    kinds = tensor.set_index("kind")["value"]
    rate = (mine["flops"] * mine["calls"] / mine["total_ns"]).max() * 1e9
    peak = kinds["burst"] if rate > kinds["steady"] else kinds["steady"]
    mine["floor"] = pd.concat([mine["flops"] / peak, mine["bytes"] / dram], axis=1).max(axis=1)
    mine["floor"] *= 1e9
    return mine


@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_time_beyond_the_roofs_is_all_calls_less_calls_times_the_floor(
    run: Path, stage: str
) -> None:
    mine = products(run, stage)
    runs = table(run, "stages").set_index("stage")["instances"][stage]
    lost = (mine["total_ns"] - mine["calls"] * mine["floor"]) / runs
    told = sentence(run, f"At their roofs the matrix products of {stage}")
    assert f"would take {duration(lost.sum())} less a run" in told
    first = mine.loc[lost.idxmax(), "module"].rpartition("*.")[2]
    assert f"{first} {duration(lost.max())}" in told
    views = section(run, "operators")["numbers"]["stages"][stage]["views"]
    (time,) = [v for v in views if v["quantity"] == "time of matrix products"]
    assert time["analytical"] == pytest.approx((mine["calls"] * mine["floor"]).sum() / runs)
    assert time["kernels"] - time["analytical"] == pytest.approx(lost.sum())


@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_calls_and_the_time_of_a_call_make_the_time_of_all(run: Path, stage: str) -> None:
    launches = table(run, "launches")
    mine = products(run, stage)
    largest = mine.loc[mine["total_ns"].idxmax()]
    ours = launches[(launches["kernel_id"] == largest["kernel_id"]) & (launches["stage"] == stage)][
        "duration_ns"
    ]
    assert ours.sum() == pytest.approx(largest["total_ns"])
    runs = table(run, "stages").set_index("stage")["instances"][stage]
    told = sentence(run, f"calls of {duration(ours.mean())}")
    assert f"{len(ours) // runs} calls of" in told
    rates = {"prefill": ("flops", "FLOP/s"), "decode": ("bytes", "B/s")}
    column, unit = rates[stage]
    assert quantity(largest[column] / ours.mean() * 1e9, unit) in told
