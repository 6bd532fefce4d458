"""The table of targets that have no study of their own, on made-up cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Interval, Number, Section
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.studies.any_target import FOLD_FROM, section
from nsight_prof.reports.studies.registry import sections

Row = dict[str, Any]
ROOF: Row = {"roof_used": "dram", "roof_unit": "B/s", "roof_value": 4e12, "roof_source": "measured"}
MakeRow = Callable[..., Row]
MakeRun = Callable[..., Run]


def made(run: Run) -> Section:
    found = section(run)
    assert found is not None
    return found


def test_the_case_that_is_farthest_from_its_roof_is_named(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    rows = [
        bench_row("saxpy/torch", target="saxpy", operation="SAXPY", median_s=1e-3, bytes=3.6e9,
                  roof_fraction=0.9, **ROOF),
        bench_row("saxpy/slow", target="saxpy", operation="slow SAXPY", median_s=4e-3, bytes=3.6e9,
                  roof_fraction=0.25, **ROOF),
    ]  # fmt: skip
    (finding,) = made(make_bench_run(rows, target="saxpy")).findings
    assert Writer().text(finding.verdict) == (
        "Slow SAXPY is farthest from its roof (25 % of DRAM); SAXPY reaches 90 % of DRAM."
    )
    assert finding.gain is not None
    assert finding.gain.value == pytest.approx(3e-3)


def test_without_roofs_the_time_is_said_and_how_to_measure_roofs(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    (finding,) = made(make_bench_run([bench_row("a", target="mine", median_s=2e-6)])).findings
    assert "2.0 us" in Writer().text(finding.verdict)
    assert finding.action is not None
    assert "prof run roofline" in Writer().text(finding.action)


def test_the_table_has_every_case_with_its_interval(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    row = bench_row("a", target="mine", median_s=2e-6)
    run = make_bench_run([row, bench_row("lost", target="mine", status="failed", median_s=None)])
    (table,) = made(run).tables
    (cells,) = table.cells
    assert isinstance(cells[1], Number)
    assert cells[1].value == 2e-6
    assert cells[2] == Interval(row["ci_low_s"], row["ci_high_s"], "s")
    assert made(run).numbers == {"mine": {"cases": 1}}


def test_a_long_table_is_folded(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    rows = [bench_row(f"a/{n}", target="mine", median_s=1e-6) for n in range(FOLD_FROM + 1)]
    found = made(make_bench_run(rows))
    assert found.tables[0].folded
    assert "<details><summary>Cases of mine</summary>" in section_markdown(found)


def test_targets_with_a_study_are_left_to_it(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    run = make_bench_run([bench_row("a", target="mine", median_s=1e-6)])
    assert section(run, covered=["mine"]) is None
    assert [one.key for one in sections(run)] == ["generic"]
