"""The recorded runs of vLLM: what one tool says of a step against what another one says.

The trace, the host's clock, vLLM's own counters, the torch profiler and the model's configuration
tell of the same steps independently of each other. No measured value stands here.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.reports.page.catalogue import file_in
from nsight_prof.reports.render.report import SUMMARY

Replay = Callable[[str], Path]
# What the measures must agree within: time of a step, and MFU, MBU and throughput.
STEP, RATE = 0.02, 0.03


def table(run: Path, name: str) -> Any:
    return pd.read_parquet(run / "tables" / f"{name}.parquet")


def traced(run: Path, name: str) -> Any:
    """What the target of the trace told of the batch that ran under it."""
    frame = table(run, name)
    return frame[(frame["source"] == "trace") & frame["traced"].astype(bool)]


def numbers(run: Path, section: str) -> Any:
    metrics = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    (found,) = [s["numbers"] for s in metrics["sections"] if s["key"] == section]
    return found


@pytest.mark.parametrize("recipe", ["vllm-kernels", "vllm-tensor-parallel"])
def test_busy_and_idle_time_are_the_step_that_the_host_measured(
    replay: Replay, recipe: str
) -> None:
    run = replay(recipe)
    steps = table(run, "engine_steps")
    whole = steps.dropna(subset=["period_ns"])
    assert (whole["busy_ns"] + whole["idle_ns"]).tolist() == whole["period_ns"].tolist()
    decode = whole[whole["kind"] == "decode"]
    host = traced(run, "host_steps").sort_values("index")
    # The first tokens come with prefill; each later step of the host gives every request one more.
    asked = int(decode["decode_requests"].iloc[0])
    measured = host["seconds"][host["outputs"] == asked].iloc[1:].median()
    by_trace = (decode["busy_ns"] + decode["idle_ns"]).median() / 1e9
    assert by_trace == pytest.approx(measured, rel=STEP)
    agreement = numbers(run, "engine-steps")["agreement"]
    assert {"batch", "decode step"} == set(agreement)
    assert max(map(abs, agreement.values())) < STEP


@pytest.mark.parametrize("recipe", ["vllm-kernels", "vllm-tensor-parallel"])
def test_utilization_by_the_trace_is_that_by_vllms_own_throughput(
    replay: Replay, recipe: str
) -> None:
    run = replay(recipe)
    requests = traced(run, "requests")
    steps = table(run, "engine_steps")
    decode = steps[(steps["kind"] == "decode") & steps["period_ns"].notna()]
    # vLLM's time per output token is the time of a decode step; MFU and MBU go with its inverse.
    assert decode["period_ns"].mean() / 1e9 == pytest.approx(
        requests["engine_tpot_s"].mean(), rel=RATE
    )
    totals = traced(run, "vllm_totals")
    tokens = requests["prompt_tokens"].sum() + requests["output_tokens"].sum()
    counted = totals["prompt_tokens"].sum() + totals["generation_tokens"].sum()
    assert tokens == counted


def test_the_model_needs_the_flops_that_vllm_estimates(replay: Replay) -> None:
    run = replay("vllm-kernels")
    kinds = numbers(run, "stages")["kinds"].values()
    ours = sum(kind["flops"] for kind in kinds)
    theirs = traced(run, "vllm_totals")["estimated_flops"].sum()
    # vLLM leaves the causal half of attention in: a few per cent at these lengths.
    assert ours == pytest.approx(theirs, rel=RATE)
    assert ours < theirs


def test_operators_multiply_the_matrices_of_the_configuration(replay: Replay) -> None:
    run = replay("vllm-kernels")
    parts = {part["path"].split(".")[-1]: part for part in numbers(run, "model")["parts"]}
    gemms = table(run, "gemms")
    steps = table(run, "engine_steps")["kind"].value_counts()
    for stage, tokens in (("prefill", 8 * 1024), ("decode", 8)):
        found = gemms[gemms["stage"] == stage]
        for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"):
            (row,) = found[found["module"].fillna("").str.endswith(name)].to_dict("records")
            part = parts[name]
            assert (row["m"], row["n"], row["k"]) == (tokens, part["outputs"], part["inputs"])
            assert row["calls"] == part["layers"] * steps[stage]
            assert 0 < row["roof_fraction"] <= 1.05


def test_decode_is_slower_than_its_floor_and_a_larger_batch_costs_less_than_its_tokens(
    replay: Replay,
) -> None:
    run = replay("vllm-kernels")
    for kind in numbers(run, "stages")["kinds"].values():
        assert kind["floor_s"] < kind["time_ns"] / kind["steps"] / 1e9
    host = table(run, "host_steps")
    alone = host[host["source"] == "untraced"].groupby("case")["seconds"].median()
    small, large = (alone[[f"/b{n}/" in case for case in alone.index]].iloc[0] for n in (1, 64))
    assert small < large < 64 * small


def test_both_ranks_have_their_steps_and_wait_for_each_other_in_collectives(
    replay: Replay,
) -> None:
    run = replay("vllm-tensor-parallel")
    steps = table(run, "engine_steps")
    first, second = (part.reset_index() for _, part in steps.groupby("device"))
    assert first["kind"].tolist() == second["kind"].tolist()
    assert first["pid"].iloc[0] != second["pid"].iloc[0]
    both = pd.concat([first, second])
    both = both[both["kind"] != "empty"]
    assert (both["collective_ns"] > 0).all()
    assert (both["collective_exposed_ns"] <= both["collective_ns"]).all()
    assert (both["collective_wait_ns"] <= both["collective_ns"]).all()
    kernels = table(run, "kernels")
    collectives = kernels[kernels["category"] == "collective"]
    assert collectives["total_ns"].sum() == pytest.approx(both["collective_ns"].sum())
    assert "NCCL" in set(collectives["library"])


def test_a_larger_batch_gives_more_tokens_as_vllm_counts_them(replay: Replay) -> None:
    points = table(replay("vllm-baseline"), "serving_points")
    assert set(points["status"]) == {"ok"}
    ours, theirs = points["output_tokens_per_s"], points["vllm_output_tokens_per_s"]
    # Ours is the median repeat, vLLM's the mean: the noise of a point's repeats is between them.
    assert ((ours / theirs - 1).abs() < RATE).mean() > 0.9
    batches = points[points["experiment"] == "batch"].sort_values("batch")
    assert len(batches) == 7
    assert batches["output_tokens_per_s"].is_monotonic_increasing
    assert (batches["output_tokens_per_s"] / batches["batch"]).is_monotonic_decreasing
    graphs, eager = (
        points[points["engine"] == mode].set_index("batch")["tpot_p50_s"]
        for mode in ("cuda-graphs", "eager")
    )
    assert (graphs[graphs.index.isin(eager.index)].groupby("batch").median() < eager).all()


def test_the_load_test_and_the_server_agree(replay: Replay) -> None:
    run = replay("vllm-serve")
    for point in numbers(run, "serving_load")["points"].values():
        apart = point["client_over_server"]
        assert abs(apart["tokens"]) < RATE
        assert abs(apart["e2e"]) < RATE
        # Where requests pile up, tokens wait in the server's front end after vLLM timed them.
        assert abs(apart["tpot"]) < RATE or point["keeps_up"] == "no"
    requests = table(run, "requests")
    assert set(requests["status"]) == {"ok"}
    assert (requests["first_token_s"] > requests["arrival_s"]).all()
    telemetry = table(run, "telemetry")
    assert telemetry["power_w"].max() > telemetry["power_w"].min() > 0


@pytest.mark.parametrize("recipe", ["vllm-kernels", "vllm-baseline", "vllm-serve"])
@pytest.mark.parametrize("language", ["en", "ko", "zh"])
def test_the_summary_names_the_model(replay: Replay, recipe: str, language: str) -> None:
    run = replay(recipe)
    (model,) = set(table(run, "engines")["model"])
    text = (run / "report" / file_in(SUMMARY, language)).read_text(encoding="utf-8")
    assert f" | {model} |" in text
