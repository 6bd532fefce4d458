"""Half a page on a job of several ranks: who holds it up, or what bounds it, and how sure."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.run.directory import read_manifest, write_manifest
from nsight_prof.reports.engine.ranks import JobView, job_view
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.render.report import render_job
from nsight_prof.reports.render.style import Style
from nsight_prof.reports.studies.summary import job_summary
from tests.made_up_ranks import Planted, write_job


def made(folder: Path, planted: dict[int, Planted], ranks: int = 4) -> JobView:
    job = write_job(folder, ranks, planted)
    build_rank_tables(job)
    return job_view(job.path)


def test_the_late_rank_is_named_with_its_cause_and_interval(tmp_path: Path) -> None:
    view = made(tmp_path / "job", {2: Planted(matrix=1.2)})
    summary = job_summary(view)
    answer, exchange = map(Writer().text, summary.answer)
    assert answer.startswith("Rank 2 is late: the others wait")
    assert "matrix products take 20" in answer
    # Three of four wait 160 us in each step of 1.5 ms, and all send for 200 us.
    assert "waiting for another GPU (161 us on rank 0) and 200 us" in exchange
    (late,) = [f.value for f in summary.rows if "late by" in Writer().text(f.label)]
    slow = next(row for row in view.times if row.rank == 2)
    assert slow.late_low_ns is not None
    # 8 products of 100 us, a fifth longer, in 100 steps.
    assert slow.late_ns == pytest.approx(100 * 8 * 20_000, rel=0.05)
    assert Writer().value(slow.number("late_ns")) in Writer().value(late)
    other = min(view.times, key=lambda row: row.late_ns or 0.0).rank
    command = f"prof compare RUN/ranks/{other:04} RUN/ranks/0002"
    assert Writer().text(summary.to_do[0]).startswith("Give all ranks the same work")
    assert command in Writer().text(summary.to_do[1])
    assert {"rank", "transfer"} <= {entry.term for entry in summary.terms}


def test_a_late_host_is_to_do_its_work_ahead_and_numbers_of_the_answer_lead_to_rows(
    tmp_path: Path,
) -> None:
    view = made(tmp_path / "job", {2: Planted(sleep_ns=5_000_000)})
    assert "host of the late rank" in Writer().text(job_summary(view).to_do[0])
    page = render_job(view, tmp_path / "report").report.read_text(encoding="utf-8")
    (exchange,) = (line for line in page.split("**What to do**")[0].splitlines()
                   if line.startswith("**Communication"))  # fmt: skip
    assert re.findall(r"[\d.]+ (?:ms|us|%)", re.sub(r"\[[^]]*\]\([^)]*\)", "", exchange)) == []


def test_without_a_late_rank_it_says_what_bounds_the_job(tmp_path: Path) -> None:
    summary = job_summary(made(tmp_path / "job", {}))
    answer, _ = map(Writer().text, summary.answer)
    assert answer.startswith("No rank makes the others wait")
    assert "is compute: the kernels bound the job" in answer
    assert "Make the kernels faster" in Writer().text(summary.to_do[0])
    said = [Writer().text(text) for text in summary.reservations if not isinstance(text, str)]
    assert any("less than 2.0 % of the time" in text for text in said)


def test_missing_ranks_come_first_of_what_to_read_with_care(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 4, {})
    manifest = read_manifest(job)
    manifest.ranks[3] = replace(manifest.ranks[3], reason="nsys left no report")
    write_manifest(job, manifest)
    build_rank_tables(job)
    first = job_summary(job_view(job.path)).reservations[0]
    assert not isinstance(first, str)
    assert Writer().text(first).startswith("3 of 4 ranks have numbers")


def test_it_lies_beside_the_report_in_all_languages(tmp_path: Path) -> None:
    view = made(tmp_path / "job", {1: Planted(sleep_ns=5_000_000)}, ranks=2)
    render_job(view, tmp_path / "report", Style(languages=("ko", "zh")))
    for name in ("stakeholder_summary", "report"):
        texts = {(tmp_path / f"report/{name}{of}.md").read_text() for of in ("", ".ko", ".zh")}
        assert len(texts) == 3
        assert (tmp_path / f"report/{name}.zh.html").is_file()
    text = (tmp_path / "report/stakeholder_summary.md").read_text()
    assert text.count("\n") < 50  # half a page
    before, heading, _ = (tmp_path / "report/report.md").read_text().partition("\n## ")
    assert heading
    assert "**Rank 1 is late: the others wait" in before
    assert "prof compare RUN/ranks/0000 RUN/ranks/0001" in before
