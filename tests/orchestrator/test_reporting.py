"""A report that a second process makes is the one made here, also where that process dies."""

import multiprocessing
import os
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.report import reporting as module
from nsight_prof.orchestrator.report.reporting import make_report, reporting
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.reports.render import second_process as second_process_module
from nsight_prof.reports.render.drawing import draw_here
from nsight_prof.reports.render.second_process import second_process

HEADLINE = (("made here",), Path("report.md"))


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(second_process_module, "second_process", second_process)


def texts(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.report.iterdir() if path.is_file()}


@pytest.mark.parametrize("names", [("points", "steps", "operators"), ("points",), ()], ids=repr)
def test_both_make_the_same(tmp_path: Path, names: tuple[str, ...]) -> None:
    words = ["predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "8"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    run = RunDir(tmp_path / "run")
    here, written, loaded = make_report(run), texts(run), load_run(run.path)
    found = {f"predicted_{name}": getattr(loaded, f"predicted_{name}") for name in names}
    with reporting(draw_here, loaded.manifest.recipe, found) as report:
        assert report(run) == here
    assert texts(run) == written


def _dies(run: RunDir) -> tuple[tuple[str, ...], Path]:
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return HEADLINE


def test_what_a_dead_process_leaves_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make_report", lambda run, **_: _dies(run))
    with reporting(draw_here, {}, {}) as report:
        assert report(RunDir(tmp_path)) == HEADLINE


def test_an_error_is_that_of_the_report(tmp_path: Path) -> None:
    with (
        reporting(draw_here, {}, {}) as report,
        pytest.raises(UsageError, match="is not a run directory"),
    ):
        report(RunDir(tmp_path))
