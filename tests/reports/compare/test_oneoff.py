"""Work that a loop does once is kept apart, so that the usual steps compare."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.reports.compare.answer import findings
from nsight_prof.reports.compare.changes import Change, Comparison
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.sides import Side, open_side
from nsight_prof.reports.page.writer import Writer
from tests.reports.compare.conftest import Launch

STEPS = 20


def loop(steps: int, seed: int, tuning: int = 0, odd: tuple[int, ...] = (0,)) -> list[Launch]:
    """A loop of forward and backward; `tuning` more launches in the odd steps of forward."""
    rng = random.Random(seed)
    launches = []
    for step in range(steps):
        more = tuning if step in odd else 0
        launches += [Launch("forward", "gelu_kernel", "8x1x1", 1e5 * rng.gauss(1, 0.003))] * (
            1 + more
        )
        launches += [Launch("forward", "matmul_kernel", "8x1x1", 4e5 * rng.gauss(1, 0.003))]
        launches += [Launch("backward", "matmul_grad", "8x1x1", 8e5 * rng.gauss(1, 0.003))] * 2
    return launches


@pytest.fixture
def make_loop(make_run: Callable[..., Side]) -> Callable[..., Side]:
    """Builder of a side whose table of stages counts the steps."""

    def make(label: str, launches: list[Launch], steps: int = STEPS) -> Side:
        side = make_run(label, launches)
        frame = side.run.stages.copy()
        frame["instances"] = [1 if stage == "(all)" else steps for stage in frame["stage"]]
        vars(side.run)["stages"] = frame
        return side

    return make


def total(view: Comparison, key: str) -> Change:
    return {c.key: c for c in view.totals}[key]


def keys(view: Comparison) -> set[str]:
    return {c.key for c in view.totals}


def test_tuning_in_the_first_step_does_not_make_the_others_slower(
    make_loop: Callable[..., Side],
) -> None:
    a, b = loop(STEPS, 1), loop(STEPS, 2, tuning=200)
    view = compare(make_loop("A", a), make_loop("B", b))
    assert total(view, "total_gpu_time").verdict == "slower"
    assert total(view, "steady_gpu_time").verdict == "same"
    (one,) = view.one_off
    assert (one.side, one.stage, one.instances, one.odd, one.launches) == (
        "B",
        "forward",
        STEPS,
        1,
        200,
    )
    assert {s.stage for s in view.stages} == {"forward", "forward, first", "backward"}
    # Every launch of both runs still stands in one row.
    assert sum(m.calls for row in view.kernels for m in row.a) == len(a)
    assert sum(m.calls for row in view.kernels for m in row.b) == len(b)
    assert view.kernels[-1].one_off
    (finding,) = [finding for finding in findings(view) if finding.rule == "one_off"]
    assert "1 of 20 forward" in Writer().text(finding.verdict)


@pytest.mark.parametrize(
    ("tuning", "odd"),
    [(0, ()), (200, tuple(range(0, STEPS, 2))), (1, (0,))],
    ids=["even", "half of the steps", "hardly more"],
)
def test_what_is_just_uneven_stays_together(
    tuning: int, odd: tuple[int, ...], make_loop: Callable[..., Side]
) -> None:
    launches = loop(STEPS, 2, tuning, odd)
    view = compare(make_loop("A", loop(STEPS, 1)), make_loop("B", launches))
    assert view.one_off == ()
    assert {s.stage for s in view.stages} == {"forward", "backward"}
    assert "steady_gpu_time" not in keys(view)


def test_a_step_is_timed_from_start_to_start(make_loop: Callable[..., Side]) -> None:
    """Launches of 0.1, 0.4 and twice 0.8 ms with 1 us before each."""
    view = compare(make_loop("A", loop(STEPS, 1)), make_loop("B", loop(STEPS, 2)))
    step = total(view, "step_time")
    assert step.a == pytest.approx(2.104e6, rel=0.01)
    assert step.verdict == "same"


def test_few_steps_have_no_usual_one(make_loop: Callable[..., Side]) -> None:
    view = compare(make_loop("A", loop(4, 1), 4), make_loop("B", loop(4, 2, tuning=200), 4))
    assert view.one_off == ()
    assert "step_time" not in keys(view)


@pytest.mark.every_run
def test_steps_of_the_recorded_training_loop(root: Path, tmp_path: Path) -> None:
    """Against pandas alone: steps begin where backward begins after another stage."""
    sides = []
    for name in ("eager", "compiled"):
        shutil.copytree(root / "captures" / "compare" / name, tmp_path / name)
        build_tables(RunDir(tmp_path / name))
        sides.append(open_side(name, tmp_path / name))
    view = compare(sides[0], sides[1])
    step = total(view, "step_time")
    for side, value in zip(sides, (step.a, step.b), strict=True):
        frame = side.run.launches.sort_values("start_ns").reset_index(drop=True)
        stage = frame["stage"].fillna("").astype(str)
        begins = frame.loc[(stage == "backward") & (stage.shift() != "backward"), "start_ns"]
        assert value == pytest.approx(float(begins.diff().dropna().median()))
    # The program warmed up before the capture: compiling is in neither run.
    assert view.one_off == ()
