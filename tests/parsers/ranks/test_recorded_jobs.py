"""Jobs on two H100 as users start them: a recipe that starts torchrun, engines of vLLM, groups.

What is expected comes from what was started (models, batches, messages), from CUDA events of a
process without a profiler, or from the traces by SQL.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.orchestrator.report.reporting import job_tables
from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.stages.nccl import WHOLE
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.reports.engine.ranks import job_section, job_view
from nsight_prof.reports.page.markdown import section_markdown

MIB = 1 << 20
REPEATS, CALLS = 4, 10
"""Of each known message: so often, so many calls between two CUDA events."""


def reported(root: Path, folder: Path, name: str) -> RunDir:
    shutil.copytree(root / "tests/fixtures/ranks" / name, folder / name)
    job = RunDir(folder / name)
    job_tables(job)
    return job


def page(job: RunDir) -> str:
    return section_markdown(job_section(job_view(job.path)))


@pytest.fixture(scope="module")
def known(root: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return reported(root, tmp_path_factory.mktemp("known"), "known")


def messages(folder: Path, name: str = "traced") -> pd.DataFrame:
    """Return what the program sent, with the samples of CUDA events of each rank (ns a call)."""
    rows = [json.loads((folder / f"{name}.{r}.json").read_text())["known"] for r in (0, 1)]
    columns = ["communicator", "operation", "bytes"]
    found = pd.DataFrame([row[:3] for row in rows[0]], columns=columns)
    for rank in (0, 1):
        found[f"samples{rank}"] = pd.Series([np.array(row[3]) * 1e6 for row in rows[rank]])
    return found[found["operation"] != "send-receive"]


def fastest(sent: pd.DataFrame) -> pd.Series:
    """Return the fastest sample of each message, of the rank that waited less (ns a call)."""
    return sent[["samples0", "samples1"]].map(min).min(axis=1)


def calls(job: RunDir, rank: int, sent: pd.DataFrame) -> pd.DataFrame:
    """Return the known calls of a rank in order, numbered by message and by sample."""
    frame = tables.read(job.rank(rank).tables, "collectives").sort_values("start_ns")
    frame = frame[(frame["stage"] == "known") & (frame["calls"] == 1)].reset_index(drop=True)
    number = np.arange(len(sent) * REPEATS * CALLS) // CALLS
    return frame.assign(message=number // REPEATS, sample=number % REPEATS)


def against_events(job: RunDir, sent: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Return messages as the trace and as CUDA events time the same calls, ns for each call.

    `call` is from the start of the first to the end of the last, by the trace; `events` is what the
    two events around them measured, less what they take themselves: the same for any message, so
    that those up to 64 KiB tell it (the second value, ns). Of each message the fastest repeat
    counts: others hold delays of the host, too. `transfer` is the mean of the kernels alone.
    """
    frames, overheads = [], []
    for rank in (0, 1):
        of_rank = calls(job, rank, sent)
        groups = of_rank.assign(end_ns=of_rank["start_ns"] + of_rank["duration_ns"]).groupby(
            ["message", "sample"]
        )
        span = (groups["end_ns"].max() - groups["start_ns"].min()).to_numpy(float)
        samples = np.stack(sent[f"samples{rank}"].to_list())
        at = np.arange(len(sent)), samples.argmin(axis=1)
        span = span.reshape(samples.shape)[at]
        between = samples[at] * CALLS
        small = sent["bytes"].to_numpy() < MIB
        overheads.append(float(np.median((between - span)[small])))
        transfer = groups["duration_ns"].mean().to_numpy(float).reshape(samples.shape)[at]
        frames.append(
            sent[["communicator", "operation", "bytes"]].assign(
                rank=rank, call=span / CALLS, events=(between - overheads[-1]) / CALLS,
                transfer=transfer,
            )
        )  # fmt: skip
    found = pd.concat(frames, ignore_index=True)
    return found[found["bytes"] >= MIB], float(np.mean(overheads))


@pytest.fixture(scope="module")
def sent(root: Path) -> pd.DataFrame:
    return messages(root / "tests/fixtures/ranks/known")


@pytest.mark.parametrize("rank", [0, 1])
def test_payloads_are_the_bytes_of_the_tensors(
    known: RunDir, sent: pd.DataFrame, rank: int
) -> None:
    for number, of_message in calls(known, rank, sent).groupby("message"):
        message = sent.iloc[int(str(number))]
        parts = 2 if message["operation"] in WHOLE else 1
        assert set(of_message["operation"]) == {message["operation"]}
        assert set(of_message["message_bytes"] * parts) == {message["bytes"]}


def test_times_of_calls_agree_with_cuda_events_of_the_same_calls(
    known: RunDir, sent: pd.DataFrame
) -> None:
    found, overhead = against_events(known, sent)
    assert len(found) == 5 * 4 * 2 * 2  # sizes, operations, communicators, ranks
    assert 3_000 < overhead < 6_000
    assert (found["call"] / found["events"] - 1).abs().max() < 0.01


def test_the_profiler_hardly_slows_large_collectives(root: Path, sent: pd.DataFrame) -> None:
    alone = messages(root / "tests/fixtures/ranks/known", "untraced")
    large = sent["bytes"] >= MIB
    assert (fastest(sent)[large] / fastest(alone)[large] - 1).abs().max() < 0.03


def test_a_recipe_that_starts_torchrun_and_counts_one_rank(root: Path, tmp_path: Path) -> None:
    job = reported(root, tmp_path, "torchrun")
    manifest = read_manifest(job)
    assert manifest.recipe["ranks"]["launcher"] == "torchrun"
    assert [record.reason for record in manifest.ranks] == ["", ""]
    steps = tables.read(job.tables, "rank_steps")
    assert steps.groupby("rank").size().tolist() == [16, 16]
    counted = tables.read(job.tables, "rank_counters")
    assert set(counted["rank"]) == {0}
    assert len(counted) == 4  # select.top_k
    assert "collective" not in set(counted["category"])
    assert set(counted["passes"]) == {11}
    text = page(job)
    assert "No rank surely makes the others wait: rank 1 is late by" in text
    assert "Rank 1 needed longest itself in 16 of 16 steps" in text


def test_groups_of_two_among_four_ranks_of_two_gpus(root: Path, tmp_path: Path) -> None:
    job = reported(root, tmp_path, "groups")
    program = json.loads((job.path / "program.json").read_text())
    collectives = tables.read(job.tables, "rank_collectives")
    assert collectives["communicator"].nunique() == 4
    assert set(collectives["gpus"]) == {2}
    assert set(collectives["bytes"]) == {program["bytes"]}
    of_group = [program["calls"]["data"], program["calls"]["tensor"]]
    assert sorted(collectives["instances"]) == sorted(2 * of_group)
    rows = tables.read(job.tables, "rank_times")
    assert rows["collectives"].tolist() == [sum(of_group)] * 4
    # Ranks 0 and 3 have no collective in common.
    assert (rows["clock_residual_ns"][1:] < 10_000).all()
    assert rows.index[rows["late_low_ns"] > 0].tolist() == [program["rank"]]
    slept_ns = sum(program["slept_s"]) * 1e9
    assert rows["late_ns"][program["rank"]] == pytest.approx(slept_ns, rel=0.05)
    text = page(job)
    assert "Rank 2 is late: the others wait" in text
    assert "Its host is late" in text
    assert "4 ranks gave work to 2 GPUs" in text


@pytest.mark.parametrize("name", ["vllm-tp2", "vllm-own"])
def test_two_ranks_of_vllm(root: Path, tmp_path: Path, name: str) -> None:
    # By torchrun, each under nsys; by vLLM itself, one trace that was split by its processes.
    job = reported(root, tmp_path, name)
    # One all-reduce after attention, MLP and embedding; in decode vLLM's own, in a CUDA graph.
    layers, decode, hidden, vocabulary = 28, 15, 3584, 152_064
    reductions = 2 * layers + 1
    collectives = tables.read(job.tables, "rank_collectives").set_index("short_name")
    assert collectives["instances"].to_dict() == {
        "NCCL all-reduce, bf16": reductions,
        "vLLM all-reduce, bf16, 1-stage": reductions * decode,
        "NCCL all-gather": 1 + decode,
    }
    assert collectives["bytes"]["NCCL all-reduce, bf16"] == 8 * 512 * hidden * 2
    assert collectives["bytes"]["NCCL all-gather"] == 8 * vocabulary * 2
    rows = tables.read(job.tables, "rank_times")
    assert rows["clock_residual_ns"][1] < 1_000
    steps = tables.read(job.tables, "rank_steps")
    assert steps.groupby("rank").size().tolist() == [decode, decode]
    text = page(job)
    assert "No rank makes the others wait" in text
    assert "is compute: the kernels bound the job" in text


def test_two_engines_of_vllm_that_share_their_experts(root: Path, tmp_path: Path) -> None:
    job = reported(root, tmp_path, "vllm-dp2")
    assert "VLLM_DP_RANK" in read_manifest(job).rank_basis
    rows = tables.read(job.tables, "rank_times")
    layers, steps, hidden, chosen = 8, 8, 2048, 8
    assert rows["collectives"].tolist() == [2 * layers * steps] * 2
    assert rows["clock_residual_ns"][1] < 1_000
    collectives = tables.read(job.tables, "rank_collectives")
    # Both engines have 8 requests: of 512 tokens in the prefill, of one in each decode step. With
    # the bf16 activations go the weights (fp32) and numbers (int32) of the chosen experts.
    expected: dict[tuple[str, int], int] = {}
    for tokens, count in ((2 * 8 * 512, 1), (2 * 8, steps - 1)):
        expected["reduce-scatter", tokens * hidden * 2] = layers * count
        expected["all-gather", tokens * (hidden * 2 + chosen * (4 + 4))] = layers * count
    found: dict[Any, Any] = collectives.set_index(["operation", "bytes"])["instances"].to_dict()
    assert found == expected
    text = page(job)
    assert "is idle GPUs, start-up included: the hosts bound the job" in text
    assert "Rank 0 needed longest itself in 5 of 7 steps" in text
