"""Reports of several GPUs: what is of one, what is of all, and what the union would say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import gpu_count, idle_range, per_gpu_gaps, working
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.summary.summary import summarise
from tests.recorded import whole_report


def on_gpus(run: Run, idle_ns: dict[int, float]) -> Run:
    """The run as though its kernels ran on these GPUs, each as long, with these idle times."""
    whole = run.stages[run.stages["stage"] == "(all)"].iloc[0]
    stages = [
        row | {"gpu": gpu, "idle_ns": idle, "gpu_busy_ns": row["wall_ns"] - idle}
        for gpu, idle in idle_ns.items()
        for row in [dict(whole.drop("share")) | {"kernel_busy_ns": whole["kernel_ns"]}]
    ]
    devices = [
        {"gpu": gpu, "pid": gpu, "device": 0, "name": "NVIDIA H200", "uuid": f"GPU-{gpu}",
         "known_by": "trace"}
        for gpu in idle_ns
    ]  # fmt: skip
    gaps = [
        {**dict.fromkeys(columns("gpu_idle_gaps"), ""), "gpu": gpu, "stage": "", "cause": "queued",
         "gaps": 3, "idle_ns": idle, "longest_ns": idle, "late_calls": 1, "before_call_ns": 0,
         "in_call_ns": 0}
        for gpu, idle in idle_ns.items()
    ]  # fmt: skip
    for name, rows in (("gpu_stages", stages), ("devices", devices), ("gpu_idle_gaps", gaps)):
        frame = pd.DataFrame(rows)[columns(name)]
        tables.write(tables.check(frame, name), name, run.directory.tables)
    return load_run(run.path)


def columns(name: str) -> list[str]:
    return [column.name for column in tables.tables()[name]]


@pytest.fixture
def several(make_run: Callable[..., Path]) -> Run:
    run = load_run(make_run())
    wall = float(run.stages.loc[run.stages["stage"] == "(all)", "wall_ns"].iloc[0])
    return on_gpus(run, {0: wall // 5, 3: wall // 10})


def test_idle_time_is_that_of_one_gpu_on_average(several: Run) -> None:
    wall, idle = wall_time(several)
    assert idle == pytest.approx(0.15 * wall, rel=1e-6)
    assert list(idle_range(working(several)) or ()) == pytest.approx([0.1, 0.2], rel=1e-6)
    assert gpu_count(several) == 2
    gaps = per_gpu_gaps(several, capture=True)
    assert gaps["idle_ns"].sum() == pytest.approx(0.15 * wall, rel=1e-6)
    assert gaps["gaps"].sum() == 3
    assert run_time(several).waits == "queued"


def test_a_gpu_that_ran_no_kernel_is_shown_and_counts_for_nothing(several: Run) -> None:
    frame = several.gpu_stages.copy()
    frame.loc[frame["gpu"] == 3, ["launches", "kernel_ns", "kernel_busy_ns"]] = 0
    tables.write(frame, "gpu_stages", several.directory.tables)
    run = load_run(several.path)
    assert working(run) == ()
    whole = run.stages[run.stages["stage"] == "(all)"].iloc[0]
    assert wall_time(run) == (whole["wall_ns"], whole["idle_ns"])
    view = report_view(run)
    assert [gpu.gpu for gpu in view.gpus] == [0, 3]
    assert (view.working_gpus, view.idle_range, view.idle_together) == (1, None, None)


def test_the_summary_tells_each_gpu_and_what_they_are_together(several: Run) -> None:
    view = report_view(several)
    each = summarise(view).gpus
    assert [one.label for one in each[:2]] == [Text("GPU {number}", number=n) for n in (0, 3)]
    assert [one.idle_share for one in each[:2]] == pytest.approx([0.2, 0.1], rel=1e-6)
    assert each[2].idle_share == view.idle_together
    assert each[2].label.values == {"n": 2}


def test_which_gpus_worked_is_not_guessed_without_launches(several: Run) -> None:
    for name in ("launches", "gpu_stages", "stages"):
        tables.write(tables.empty(name), name, several.directory.tables)
    gpus = pd.concat([several.gpus.assign(device=number) for number in range(2)])
    tables.write(tables.check(gpus, "gpus"), "gpus", several.directory.tables)
    view = report_view(load_run(several.path))
    assert (view.run_time.gpus, view.run_time.present) == (0, 2)
    assert Writer().text(summarise(view).machine).endswith(", one or more of the 2 in the machine")


def test_the_pages_of_a_recorded_run_on_two_gpus_tell_each(replay: Callable[[str], Path]) -> None:
    folder = replay("vllm-tensor-parallel") / "report"
    page: Any = whole_report(folder)
    assert "| GPU time in kernels (sum of 2 GPUs) | Wall time | GPU idle (each of 2 GPUs) |" in page
    assert "392 ms | 209 ms | 5.7 % to 6.2 % |" in page
    assert "For 2.9 % of the wall time no GPU works at all." in page
    assert "on 2 GPUs in all" in page
    for name in (
        "stakeholder_summary.md",
        "stakeholder_summary.ko.md",
        "stakeholder_summary.zh.md",
    ):
        summary = (folder / name).read_text(encoding="utf-8")
        assert "| GPU 0 | 196 ms | 584 us | 12.8 ms | 6.2 % |" in summary
        assert "| GPU 1 | 197 ms | 584 us | 11.8 ms | 5.7 % |" in summary
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "GPU idle (each of 2 GPUs)" in html
