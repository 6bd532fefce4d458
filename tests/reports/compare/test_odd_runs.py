"""Runs that lack something: what can be compared of them, and what is refused."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.reports.compare.answer import findings
from nsight_prof.reports.compare.cases import geometric_mean
from nsight_prof.reports.compare.changes import Change
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.sides import Side, open_side
from tests.reports.compare.conftest import Launch

Maker = Callable[..., Side]
KERNEL = Launch("decode", "gemm_kernel", "8x1x1", 1000.0)
TIMES = ["calls", "total_ns", "share", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns"]
UNTRACED = ("launches", "stages", "memory_operations", "stage_kernels", "idle_gaps")


@pytest.fixture
def without(recorded_run: Path, tmp_path: Path) -> Callable[..., Side]:
    """The recorded run without some of its tables; without launches kernels have no times."""

    def make(*gone: str) -> Side:
        shutil.copytree(recorded_run, tmp_path / "bare")
        for table in gone:
            (tmp_path / "bare" / "tables" / f"{table}.parquet").unlink()
        if "launches" in gone:
            kernels = load_run(tmp_path / "bare").kernels
            kernels[TIMES] = math.nan
            tables.write(kernels, "kernels", tmp_path / "bare" / "tables")
        return open_side("B", tmp_path / "bare")

    return make


def test_a_trace_is_not_held_against_single_launches(
    without: Callable[..., Side], recorded_run: Path
) -> None:
    """A kernel of 128 launches would be 128 times as fast."""
    counted = without(*UNTRACED)
    with pytest.raises(UsageError, match="all launches of a trace against one launch"):
        compare(open_side("A", recorded_run), counted)
    same = compare(counted, counted)
    assert {row.match for row in same.kernels} == {"identical"}


def test_a_run_without_times_is_no_program_whose_kernels_are_gone(
    without: Callable[..., Side], recorded_run: Path
) -> None:
    bare, whole = without(*UNTRACED, "counters"), open_side("A", recorded_run)
    for pair in ((whole, bare), (bare, whole)):
        with pytest.raises(ArtifactUnreadable, match="no times in common"):
            compare(*pair)


def test_counts_that_one_run_does_not_tell_are_unknown(
    without: Callable[..., Side], recorded_run: Path
) -> None:
    view = compare(open_side("A", recorded_run), without(*UNTRACED), force=True)
    launches = next(change for change in view.totals if change.key == "launches")
    assert (launches.b, launches.verdict) == (None, "unknown")


def test_a_trace_without_copies_copied_nothing(
    without: Callable[..., Side], recorded_run: Path
) -> None:
    view = compare(open_side("A", recorded_run), without("memory_operations"))
    copied = {change.key: change.b for change in view.totals}
    assert (copied["copied_bytes"], copied["copy_time"]) == (0, 0)


@pytest.mark.parametrize(
    ("recipes", "work"),
    [
        ([{"args": {"batch": "8"}}, {"args": {"batch": "64"}}], 8.0),
        ([{"args": {"batch": 8}}, {"args": {"batch": "auto"}}], None),
        ([{"env": {"batch": 8}}, {"env": {"batch": 64}}], None),
    ],
)
def test_units_are_read_from_numbers_and_from_text(
    make_run: Maker, recipes: list[dict[str, Any]], work: float | None
) -> None:
    a, b = (
        make_run(label, [KERNEL] * 9, recipe={"target": {"file": "block.py", **target}})
        for label, target in zip("AB", recipes, strict=True)
    )
    view = compare(a, b)
    assert view.work == work
    assert not any(f.action for f in findings(view) if f.rule == "settings")


def test_arguments_of_the_step_trace_count(make_run: Maker) -> None:
    """They are those of the program whose launches are compared."""
    target = {"file": "block.py", "args": {"steps": 100}}
    a, b = (
        make_run(str(n), [KERNEL] * n, recipe={"target": target, "trace": {"args": {"steps": n}}})
        for n in (3, 6)
    )
    assert compare(a, b).work == 2


def test_more_launches_in_less_time_are_less_time(make_run: Maker) -> None:
    view = compare(make_run("A", [KERNEL] * 4), make_run("B", [KERNEL.lasting(100.0)] * 8))
    assert view.kernels[0].total.verdict == "less"
    assert "more_time" not in {finding.rule for finding in findings(view)}


def test_launches_on_another_gpu_need_a_larger_difference(make_run: Maker) -> None:
    """4 % more a launch is noise between two GPUs, however often it runs."""
    a = make_run("A", [KERNEL, KERNEL.lasting(1001.0)] * 20)
    b = make_run(
        "B",
        [KERNEL.lasting(1040.0), KERNEL.lasting(1041.0)] * 21,
        gpus=[{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-2", "mig": False}],
    )
    launch = compare(a, b).kernels[0].launch
    assert launch is not None
    assert launch.ratio == pytest.approx(1.04, rel=1e-3)
    assert launch.verdict == "same"


def test_a_mean_of_cases_without_intervals_has_none() -> None:
    case = Change("x", "x", "s", 1.0, 1.1, 1.1, None, None, "unknown", None, 0.02)
    mean = geometric_mean([case, case])
    assert mean is not None
    assert (mean.low, mean.verdict) == (None, "unknown")
    sure = geometric_mean([replace(case, low=1.09, high=1.11), case])
    assert sure is not None
    assert sure.low is not None
    assert sure.low < 1.1 / 1.07  # as unsure as single runs, of which it has one


def test_a_repeat_ran_the_same_program(make_run: Maker) -> None:
    """Another batch would pass for noise."""

    def side(label: str, batch: int) -> Side:
        recipe = {"target": {"file": "block.py", "args": {"batch": batch}}}
        return make_run(label, [KERNEL] * 9, recipe=recipe)

    a, b = side("A", 8), side("B", 8)
    assert compare(replace(a, repeats=(side("A", 8).run,)), b).a.runs == 2
    mixed = replace(a, repeats=(side("A", 64).run,))
    with pytest.raises(UsageError, match="is no repeat of .*: batch: 8 against 64"):
        compare(mixed, b)
    assert compare(mixed, b, force=True).a.runs == 2
