"""Two ranks under torchrun on two H100, traced by `prof rank`: what is known of them otherwise.

The program wrote down what it sent; nsys wrote down when each capture began, by one clock; the
roofs were timed by CUDA events in other processes, without a profiler.
"""

import json
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.directory import RunDir, decompress
from nsight_prof.reports.engine.rank_times import straggler, times_row

MIB = 1 << 20


@pytest.fixture(scope="module")
def fixture(root: Path) -> Path:
    return root / "tests/fixtures/ranks"


@pytest.fixture(scope="module")
def job(fixture: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("job", "comm-roofs"):
        shutil.copytree(fixture / name, folder / name)
    assert main(["report", str(folder / "comm-roofs"), "--format", "md", "--quiet"]) == 0
    roofs = ["--roofs", str(folder / "comm-roofs")]
    assert main(["report", str(folder / "job"), "--format", "md", "--quiet", *roofs]) == 0
    return RunDir(folder / "job")


def program(fixture: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture / f"program.{rank}.json").read_text())
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_payloads_are_what_the_program_sent(fixture: Path, job: RunDir, rank: int) -> None:
    frame = tables.read(job.rank(rank).tables, "collectives")
    known = frame[frame["stage"] == "known"]
    sent = [(n, size) for _, n, size, times in program(fixture, rank)["known"] for _ in times]
    collectives = known[known["calls"] == 1]
    recorded = Counter((str(row["operation"]), int(row["bytes"])) for row in records(collectives))
    assert recorded == Counter((n, size) for n, size in sent if n != "send-receive")
    # The two communicators of the same ranks: half of the calls are of each.
    assert collectives.groupby("communicator").size().tolist() == [28 * 4, 28 * 4]
    assert set(known["ranks"].dropna()) == {2}
    assert set(known["rank"].dropna()) == {rank}


def test_clocks_agree_with_the_begins_of_the_captures(job: RunDir, tmp_path: Path) -> None:
    began = []
    for rank in (0, 1):
        trace = tmp_path / f"{rank}.sqlite"
        decompress(job.rank(rank).path / "steps/1-trace/trace.sqlite.xz", trace)
        with closing(sqlite3.connect(trace)) as database:
            ((when,),) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
            began.append(when)
    row = tables.read(job.tables, "rank_times").iloc[1]
    assert row["clock_offset_ns"] == pytest.approx(began[0] - began[1], abs=500)
    assert abs(row["clock_drift_ppm"]) < 1
    assert row["clock_residual_ns"] < 5_000


def test_transfers_are_as_long_as_cuda_events_say_without_a_profiler(job: RunDir) -> None:
    frame = tables.read(job.tables, "rank_collectives")
    alone = frame[(frame["bytes"] >= 64 * MIB) & (frame["instances"] < 10)]
    assert len(alone) == 3 * 2 * 2 + 1  # operations, communicators, sizes; and DDP's first bucket
    share = alone["bus_bandwidth"] / alone["roof"]
    assert share.between(0.97, 1.03).all(), share
    # Gradients are reduced beside the backward pass.
    beside = frame[(frame["instances"] == 256)].iloc[0]
    assert 0.7 < beside["bus_bandwidth"] / beside["roof"] < 0.9
    assert frame.loc[frame["bytes"] < 4 * MIB, "roof"].isna().all()


def test_a_balanced_job_has_no_straggler_and_all_its_steps(job: RunDir) -> None:
    times = tables.read(job.tables, "rank_times")
    assert straggler([times_row(row) for row in records(times)]) is None
    parts = times[["compute_ns", "wait_ns", "transfer_ns", "copies_ns", "idle_ns"]].sum(axis=1)
    assert (parts == times["wall_ns"]).all()
    steps = tables.read(job.tables, "rank_steps")
    assert steps.groupby("rank").size().tolist() == [65, 65]  # five to warm up, sixty
    assert set(steps["stage"]) == {"step"}


def test_tracing_costs_a_step_little(fixture: Path) -> None:
    for rank in (0, 1):
        found = program(fixture, rank)
        traced = pd.Series(found["steps_s"]).median()
        untraced = [pd.Series(run).median() for run in found["untraced_steps_s"]]
        assert traced / min(untraced) < 1.01


def test_the_page_sets_collectives_against_the_roofs(job: RunDir) -> None:
    page = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", (job.report / "report.md").read_text())
    assert "of 33.6 MB reaches 199 GB/s, 82 % of the 243 GB/s" in page
    assert "Measured roof | Of the roof" in page


def test_roofs_of_other_gpus_are_refused(
    root: Path, job: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "run"
    shutil.copytree(root / "captures/h200-data-parallel", other)
    roofs = str(job.path.parent / "comm-roofs")
    assert main(["report", str(other), "--roofs", roofs]) == 2
    assert "are those of NVIDIA H100 80GB HBM3, and the run is of NVIDIA H200" in (
        capsys.readouterr().err
    )
    assert not (other / "comm-roofs.json").exists()
