"""Jobs of two ranks on two H100 with something planted in one, sampled and counted: what is said.

What was planted was timed by the program itself; of planted kernels their time on the GPU is read
from the trace by SQL, since CUDA events around them count their own gaps, too.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.build.refresh import refresh_tables
from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.run.directory import RunDir, decompress, read_manifest
from nsight_prof.reports.engine.rank_times import (
    FASTER_HOSTS,
    straggler,
    times_row,
    waiting_findings,
)
from nsight_prof.reports.engine.ranks import communication_findings, job_section, job_view
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer

PLANTED = """
WITH steps AS (
  SELECT start, end FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id
  WHERE coalesce(text, value) = 'step'
), products AS (
  SELECT k.start, k.end, steps.start AS step,
         row_number() OVER (PARTITION BY steps.start ORDER BY k.start) AS n
  FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds ON k.shortName = id
  JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r USING (correlationId)
  JOIN steps ON r.start BETWEEN steps.start AND steps.end
  WHERE value LIKE 'nvjet%'
)
SELECT max(end) - min(start) FROM products WHERE n <= 8 GROUP BY step
"""
"""Time of the eight products that come first in each step."""


def job(root: Path, folder: Path, name: str) -> RunDir:
    shutil.copytree(root / "tests/fixtures/ranks" / name, folder / name)
    run = RunDir(folder / name)
    for record in read_manifest(run).ranks:
        refresh_tables(run.rank(record.rank))
    build_rank_tables(run)
    return run


def planted_ns(run: RunDir, folder: Path, rank: int) -> float:
    path = folder / "trace.sqlite"
    decompress(run.rank(rank).path / "steps/1-trace/trace.sqlite.xz", path)
    with closing(sqlite3.connect(path)) as database:
        return float(sum(time for (time,) in database.execute(PLANTED)))


HOST = """
SELECT max(end) - min(start), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME
"""
"""From the first call of CUDA to the last, and the time in such calls."""
CAUSES = {
    "sleep": "Its host is late: its GPU is idle",
    "kernels": "It has more work: 23 % more kernels",
    "input": "Its input is larger",
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_planted_rank_is_named_with_its_cause_and_time(
    root: Path, tmp_path: Path, name: str
) -> None:
    run = job(root, tmp_path, name)
    program = json.loads((run.path / "program.json").read_text())
    times = [times_row(row) for row in records(tables.read(run.tables, "rank_times"))]
    found = straggler(times)
    assert found is not None
    assert found.rank == program["rank"]
    truth = sum(program["planted_s"]) * 1e9
    if name == "kernels":
        truth = planted_ns(run, tmp_path, found.rank)
    assert found.late_ns == pytest.approx(truth, rel=0.05)
    assert CAUSES[name] in Writer().text(next(iter(waiting_findings(times, None))).verdict)


def test_one_collective_of_its_kind_does_not_draw_the_clock_to_itself(
    root: Path, tmp_path: Path
) -> None:
    run = job(root, tmp_path, "input")
    row = tables.read(run.tables, "rank_times").iloc[1]
    assert abs(row["clock_drift_ppm"]) < 5  # it was 83, "within 2 ns", by one barrier
    assert row["clock_residual_ns"] > 1_000


@pytest.fixture(scope="module")
def balanced(root: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return job(root, tmp_path_factory.mktemp("balanced"), "balanced")


def test_nobody_is_named_where_nothing_is_planted(balanced: RunDir) -> None:
    times = tables.read(balanced.tables, "rank_times")
    # One profiler was ready 50 ms before the other, which made a rank wait in the first collective.
    assert times["wait_ns"].max() > 40e6
    assert straggler([times_row(row) for row in records(times)]) is None
    assert (times["late_ns"].abs() < 0.01 * times["wall_ns"]).all()


def test_the_page_of_a_balanced_job_says_so_and_what_bounds_it(balanced: RunDir) -> None:
    page = section_markdown(job_section(job_view(balanced.path)))
    assert "No rank makes the others wait" in page
    rows = tables.read(balanced.tables, "rank_times")
    own = rows["wall_ns"] - rows["collective_ns"]
    assert f"differs by {100 * (own.max() / own.min() - 1):.2f} %" in page
    # The first all-reduce took one rank 50 ms and the other 0.1: it waited for a profiler.
    first = []
    for rank in (0, 1):
        launches = tables.read(balanced.rank(rank).tables, "launches")
        kernels = tables.read(balanced.rank(rank).tables, "kernels").set_index("kernel_id")
        is_collective = launches["kernel_id"].map(kernels["category"]) == "collective"
        first.append(launches[is_collective].sort_values("start_ns")["duration_ns"].iloc[0])
    waited = max(first) - min(first)
    # Collectives share what other kernels hide of them in proportion: 14 % here.
    assert rows["first_wait_ns"].max() == pytest.approx(waited, rel=0.15)
    share = rows["compute_ns"].sum() / (rows["wall_ns"] - rows["first_wait_ns"]).sum()
    assert f"{100 * share:.0f} %](#evidence-ranks-1-3), is compute: the kernels bound" in page
    assert "from [rank 0](#rank_times-0+0) and [rank 1](#rank_times-1+1)" in page


def test_one_pass_counts_collectives_on_both_ranks(balanced: RunDir) -> None:
    found = tables.read(balanced.tables, "rank_counters")
    assert found.groupby("rank").size().tolist() == [12, 12]
    assert set(found["passes"]) == {1}
    assert set(found["mode"]) == {"one-pass"}
    collectives = found[found["category"] == "collective"]
    assert collectives["rank"].tolist() == [0, 1]
    # 24 of 132 SMs have a block of it.
    assert collectives["sm_active_pct"].between(15, 100 * 24 / 132).all()
    products = found[found["category"] == "gemm"]
    kernels = tables.read(balanced.rank(0).tables, "kernels").set_index("kernel_id")
    traced = kernels.loc[products["kernel_id"], "min_ns"].to_numpy(float)
    assert (products["duration_ns"].to_numpy(float) / traced - 1 < 0.1).all()


@pytest.fixture(scope="module")
def sampled(root: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    run = job(root, tmp_path_factory.mktemp("sampled"), "sampled")
    return tables.read(run.tables, "rank_counters")


def test_samples_agree_with_the_counters_of_the_same_kernels(sampled: pd.DataFrame) -> None:
    mine = sampled[sampled["rank"] == 0]
    counted = mine[mine["source"] == "counters"].set_index("kernel_id")
    samples = mine[(mine["source"] == "samples") & (mine["category"] == "gemm")]
    assert set(counted["mode"]) == {"one-rank"}
    assert counted["passes"].min() > 1
    assert "collective" not in set(counted["category"])
    assert len(samples) == 3
    for row in records(samples):
        ncu = counted.loc[row["kernel_id"]]
        assert row["samples"] >= 10
        # Samples lie within the launches, without their first and last microseconds.
        assert row["tensor_pct"] == pytest.approx(ncu["tensor_pct"] + 5, abs=5)
        assert row["sm_active_pct"] == pytest.approx(ncu["sm_active_pct"], abs=6)
        assert row["dram_pct"] == pytest.approx(ncu["dram_pct"], abs=5)


def test_both_ranks_sample_their_own_gpu(sampled: pd.DataFrame) -> None:
    samples = sampled[(sampled["source"] == "samples") & (sampled["category"] == "gemm")]
    use = samples.pivot_table(index="kernel_id", columns="rank", values="tensor_pct")
    assert (use[0] - use[1]).abs().max() < 5


def test_a_slow_host_saves_no_more_than_the_next_one_leaves(root: Path, tmp_path: Path) -> None:
    """Both hosts take about 30 ms for a step, of which a GPU computes 9: one of them is mended."""
    run = job(root, tmp_path, "slow-host")
    rows = [times_row(row) for row in records(tables.read(run.tables, "rank_times"))]
    view = job_view(run.path)
    late = next(waiting_findings(rows, view.steps))
    (communication,) = communication_findings(view)
    path, spans = tmp_path / "trace.sqlite", {}
    for rank in (0, 2):
        decompress(run.rank(rank).path / "steps/1-trace/trace.sqlite.xz", path)
        with closing(sqlite3.connect(path)) as database:
            spans[rank], launching = database.execute(HOST).fetchone()
        assert launching < 0.3 * spans[rank]  # no full queue: the host is in its own code
    slow = straggler(rows)
    assert slow is not None
    assert late.gain is not None
    assert slow.rank == 2
    gain = number(late.gain.value)
    assert gain == pytest.approx(spans[2] - spans[0], rel=0.5)
    assert gain < 0.2 * number(slow.late_ns)  # the others wait for it ten times as long
    assert Writer().text(late.verdict).startswith("The hosts bound the job: that of rank 0")
    for found in (late, communication):
        assert found.action == FASTER_HOSTS


@pytest.mark.parametrize("name", ["sleep", "input", "kernels"])
def test_a_late_rank_among_fast_hosts_saves_what_it_is_late(
    root: Path, tmp_path: Path, name: str
) -> None:
    run = job(root, tmp_path, name)
    rows = [times_row(row) for row in records(tables.read(run.tables, "rank_times"))]
    late = next(waiting_findings(rows, job_view(run.path).steps))
    slow = straggler(rows)
    assert slow is not None
    assert late.gain == slow.number("late_ns")
