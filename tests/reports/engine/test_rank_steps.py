"""The steps of a job on its page: which rank was slow when, by picture and sentence."""

from pathlib import Path

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.reports.engine.rank_steps import MOST_COLUMNS, steps_view
from nsight_prof.reports.engine.ranks import JobView, job_view
from nsight_prof.reports.page.units import significant
from nsight_prof.reports.plots.words import say
from nsight_prof.reports.render.report import render_job
from tests.made_up_ranks import Planted, write_job


def view(folder: Path, planted: dict[int, Planted], steps: int = 40) -> JobView:
    job = write_job(folder, 4, planted, steps=steps)
    build_rank_tables(job)
    return job_view(job.path)


def test_the_page_shows_the_slow_rank_step_by_step(tmp_path: Path) -> None:
    made = view(tmp_path / "job", {2: Planted(matrix=1.2)})
    assert made.steps is not None
    assert made.steps.slowest_of(2, 0) == made.steps.count == 40
    own, longer = made.steps.charts
    assert [say(row.label) for row in own.rows] == [f"rank {n}" for n in range(4)]
    # 20 us on each of 8 products; at each step the fastest rank is at zero.
    assert sum(longer.rows[2].values) / 40 == pytest.approx(0.16, rel=0.1)
    assert all(
        min(column) == 0 for column in zip(*(row.values for row in longer.rows), strict=True)
    )
    paths = render_job(made, tmp_path / "report")
    page = paths.report.read_text()
    assert "needed longest itself in 40 of 40 steps (`step`)" in page
    assert "](rank-steps.svg)" in page
    assert {path.name for path in paths.pictures} >= {"rank-steps.svg", "rank-steps-longer.svg"}
    assert "Longer by (ms)" in paths.page.read_text()


def test_one_long_step_does_not_hide_the_others(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 4, {2: Planted(matrix=1.2)}, steps=40)
    build_rank_tables(job)
    steps = tables.read(job.tables, "rank_steps")
    steps.loc[steps["step"] == 0, "own_ns"] *= 50
    drawn = steps_view(steps)
    assert drawn is not None
    own = drawn.charts[0]
    longest = max(max(row.values) for row in own.rows)
    typical = own.rows[2].values[20]
    assert typical > longest / 4
    assert f"What is over {significant(longest, 3)} ms is drawn as that" in say(own.subtitle)


def test_long_jobs_show_some_steps_and_say_so(tmp_path: Path) -> None:
    made = view(tmp_path / "job", {}, steps=300)
    assert made.steps is not None
    own, _ = made.steps.charts
    assert len(own.columns) == MOST_COLUMNS
    assert own.columns[-1] == 299
    assert f"{MOST_COLUMNS} of 300 steps" in say(own.subtitle)


def test_the_work_of_a_stage_is_compared_over_the_ranks(tmp_path: Path) -> None:
    made = view(tmp_path / "job", {2: Planted(matrix=1.2)})
    (balance,) = made.stages
    assert (balance.stage, balance.ranks, balance.max_rank) == ("step", 4, 2)
    # Of 40 steps with 8 products of 100 us and 12 others of 25 us; products of rank 2 take 120 us.
    own, more = 40 * (8 * 100_000 + 12 * 25_000), 40 * 8 * 20_000
    assert balance.max_ns == pytest.approx(own + more, rel=0.01)
    assert balance.gain_ns == pytest.approx(0.75 * more, rel=0.1)
    assert balance.imbalance == pytest.approx(0.75 * more / (own + more), rel=0.1)
    render_job(made, tmp_path / "report")
    page = (tmp_path / "report/report.md").read_text()
    assert "Load imbalance by stage" in page
    assert view(tmp_path / "balanced", {}).stages[0].imbalance < 0.01


def test_one_rank_is_called_one_rank(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 1, {}, steps=20)
    build_rank_tables(job)
    render_job(job_view(job.path), job.report)
    page = (job.report / "report.md").read_text()
    assert page.startswith("# job: 1 rank\n")
    assert "1 ranks" not in page


def test_ranks_without_common_steps_are_shown_over_time(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2, {1: Planted(sleep_ns=5_000_000)}, steps=40)
    folder = job.rank(1).tables
    instances = tables.read(folder, "stage_instances")
    tables.write(instances[:-1], "stage_instances", folder, csv=False)
    build_rank_tables(job)
    made = job_view(job.path)
    assert made.steps is None
    assert made.over_time is not None
    assert [say(row.label) for row in made.over_time.rows] == ["rank 0", "rank 1"]
    # 1.1 ms of kernels in each step of 6.4 ms, of which the last also waits 5 ms.
    for row in made.over_time.rows:
        assert sum(row.values) / len(row.values) == pytest.approx(100 * 1.1 / 6.35, rel=0.05)
    render_job(made, tmp_path / "report")
    assert "](ranks-over-time.svg)" in (tmp_path / "report/report.md").read_text()
    assert view(tmp_path / "steps", {}).over_time is None
