"""The operator section of the recorded run of vLLM: each sum again, from the launches themselves.

No measured value stands here: the oracle is arithmetic on other tables of the run.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.reports.page.formats import listed
from nsight_prof.reports.page.units import quantity
from tests.recorded import whole_report

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


def finding(run: Path, rule: str, stage: str = "", key: str = "operators") -> Any:
    """The finding of a rule in metrics.json, of a stage where it names one."""
    found = [f for f in section(run, key)["findings"] if f["rule"] == rule]
    (one,) = [f for f in found if f["values"].get("stage", stage) == stage]
    return one


def evidence(run: Path, rule: str, stage: str) -> str:
    return "; ".join(e["label"] for e in finding(run, rule, stage)["evidence"])


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
    found = finding(run, "products_beyond_roofs", stage)
    assert found["values"]["lost"]["value"] == pytest.approx(lost.sum())
    first = mine.loc[lost.idxmax(), "module"].rpartition("*.")[2]
    assert f"{first} {quantity(lost.max(), 'ns', 2)}" in found["verdict"]
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
    told = evidence(run, "matrix_products", stage)
    assert f"{len(ours) // runs} calls of {quantity(ours.mean(), 'ns', 2)}" in told
    rates = {"prefill": ("flops", "FLOP/s"), "decode": ("bytes", "B/s")}
    column, unit = rates[stage]
    assert quantity(largest[column] / ours.mean() * 1e9, unit, 2) in told


def saved(run: Path) -> dict[int, tuple[str, float]]:
    """What each kernel could save, by its number: id and ns, as the page's table tells."""
    metrics = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    return {k["number"]: (k["kernel_id"], k["gain_ns"]) for k in metrics["kernels"] if k["gain_ns"]}


def test_attention_beside_what_its_kernels_could_save(run: Path) -> None:
    stage = "decode"
    views = section(run, "operators")["numbers"]["stages"][stage]["views"]
    (attention,) = [v for v in views if v["quantity"] == "time of attention"]
    runs = table(run, "stages").set_index("stage")["instances"][stage]
    kernels = table(run, "kernels").set_index("kernel_id")
    lost = (attention["kernels"] - attention["analytical"]) * runs
    told, found = (
        evidence(run, "attention_beyond_roof", stage),
        finding(run, "attention_beyond_roof", stage),
    )
    part = lost / kernels["total_ns"].sum()
    whole = f"{quantity(lost, 'ns', 2)} ({quantity(part, 'fraction', 2)} of the GPU time)"
    assert f"in all runs: {whole}" in told
    ran = table(run, "stage_kernels")
    here = set(ran[ran["stage"] == stage]["kernel_id"])
    ours = {
        number: ns
        for number, (key, ns) in saved(run).items()
        if key in here and kernels["category"][key] == "attention"
    }
    names = listed([f"kernel {number}" for number in ours])
    assert f"could save: {quantity(sum(ours.values()), 'ns', 2)}" in told
    assert f"has {quantity(sum(ours.values()), 'ns', 2)} of it for {names}" in found["verdict"]
    metrics = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    listed_ones = {n for f in metrics["findings"] if f["key"] == "kernel" for n in f["kernels"]}
    unlisted = set(ours) - listed_ones
    assert ("no finding is about" in told) == bool(unlisted)


def test_the_roofs_of_the_largest_product_differ_by_the_clock(run: Path) -> None:
    told = evidence(run, "matrix_products", "prefill")
    roofs = table(run, "measured_roofs")
    kinds = roofs[(roofs["level_or_pipe"] == "tensor") & (roofs["dtype"] == "bf16")]
    burst, steady = (kinds[kinds["kind"] == kind].iloc[0] for kind in ("burst", "steady"))
    largest = products(run, "prefill").nlargest(1, "total_ns")["kernel_id"].iloc[0]
    launch = table(run, "counters").set_index("kernel_id").loc[largest]
    scaled = burst["value"] * launch["sm_clock_hz"] / burst["clock_hz"]
    reached = launch["flops_tensor"] / launch["duration_ns"] * 1e9
    for value in (burst["value"], scaled, steady["value"]):
        assert quantity(value, "FLOP/s", 2) in told
    assert f"of which that launch reached {quantity(reached / scaled, 'fraction', 2)}" in told
    # By the clock alone: FLOPs a clock of both are the same within the noise of the clock.
    per_clock = [row["value"] / row["clock_hz"] for row in (burst, steady)]
    assert per_clock[0] == pytest.approx(per_clock[1], rel=0.02)


def test_what_the_operator_view_does_more_stands_above_the_modules(run: Path) -> None:
    lines = whole_report(run / "report").splitlines()
    at = lines.index("### GPU time of the model's modules")
    assert lines[at + 2].startswith("Not of the traced steps")
    seen = table(run, "operators")
    seen = seen[seen["stage"] == "decode"]
    steps = seen["instances"].max()
    kernels, ran = table(run, "kernels"), table(run, "stage_kernels")
    named = kernels.set_index("kernel_id")["short_name"]
    ran = ran[ran["stage"] == "decode"]
    runs = table(run, "stages").set_index("stage")["instances"]["decode"]
    traced = (ran["total_ns"] / runs).groupby(ran["kernel_id"].map(named)).sum()
    more = seen["gpu_ns"] / steps - seen["kernel"].map(traced).fillna(0.0)
    first = seen.loc[more.idxmax()]
    assert f"{quantity(more.max(), 'ns', 2)} more per step" in lines[at + 2]
    assert first["operator"] in lines[at + 2].replace("\\", "")
    values = finding(run, "operator_view_excess", "decode")["values"]
    assert values["viewed"]["value"] == pytest.approx(first["gpu_ns"] / steps)
    assert values["traced"]["value"] == pytest.approx(traced[first["kernel"]])


def test_what_a_larger_batch_costs_is_of_one_basis(run: Path) -> None:
    steps = table(run, "engine_steps")
    mean = steps[steps["kind"] == "decode"]["period_ns"].dropna().mean()
    points = table(run, "serving_points")
    timed = points[~points["traced"].astype(bool) & (points["decode_step_s"] > 0)]
    by_batch = timed[timed["source"] == "trace"].set_index("batch")["decode_step_s"]
    step = finding(run, "memory_bound_step", key="stages")["values"]["time"]["value"]
    assert step == pytest.approx(mean, rel=1e-3), "the last step has no next one"
    larger = finding(run, "larger_batch", key="stages")
    ours = (
        by_batch
        if len(by_batch) > 1
        else timed.drop_duplicates("batch").set_index("batch")["decode_step_s"]
    )
    large, small = ours[ours.index.max()], ours[8]
    values = [e["value"]["value"] for e in larger["evidence"] if e["value"]]
    assert values[:2] == [small, large]
    assert larger["values"]["ratio"]["value"] == pytest.approx(large / small)
    # What the owner chooses by is the whole batch with its prompts, beside decode alone.
    mine = timed[timed["source"] == "untraced"].drop_duplicates("batch").set_index("batch")
    whole = mine["output_tokens_per_s"][64] / mine["output_tokens_per_s"][8]
    page = whole_report(run / "report")
    (row,) = [line for line in page.splitlines() if line.startswith("| Batch 64 instead")]
    assert re.findall(r"\[([\d.]+x)\]", row) == [
        quantity(whole, "x", 2),
        quantity(ours.index.max() * small / (8 * large), "x", 2),
    ]
    assert page.index("|  | Do |") < page.index("| Choose |"), "repairs come first"


def test_the_batch_that_arithmetic_limits_is_told_with_what_contexts_add(run: Path) -> None:
    found = finding(run, "memory_bound_decode", key="model")
    text = "; ".join(e["label"] for e in found["evidence"])
    roofs = table(run, "measured_roofs")
    read = roofs[(roofs["level_or_pipe"] == "dram") & (roofs["kind"] == "read")]["value"].iloc[0]
    steps = section(run, "model")["numbers"]["steps_per_gpu"]
    floors = {
        int(name.split()[2].rstrip(",")): (s["weight_bytes"] + s["kv_read_bytes"]) / read
        for name, s in steps.items()
        if name.startswith("decode")
    }
    small, large = floors[min(floors)], floors[64]
    assert f"floor of batch 64 is {quantity(large, 's', 3)}" in text
    assert f"{quantity(large / small - 1, 'fraction', 2)} more" in text
