"""How the time of a run divides into work of the GPU, copies and idle time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.models import RunTime
from nsight_prof.reports.analysis.run_time import run_time

STARTS = {0: [(0, 40), (30, 30), (90, 10)], 1: [(10, 50), (80, 20)]}
"""Start and duration in ns of launches by device; on device 0 the first two overlap by 10."""


def write(run: Run, **frames: pd.DataFrame) -> Run:
    for table, frame in frames.items():
        tables.write(tables.check(frame, table), table, run.directory.tables)
    return load_run(run.path)


def launched(run: Run, devices: list[int], copies_ns: int, idle_ns: int) -> RunTime:
    """Return the division of a run of 100 ns with the launches above on these devices.

    Of several, each copies for `copies_ns` while no kernel runs there; in `idle_ns` none works.
    """
    rows = [(device, *at) for device in devices for at in STARTS[device]]
    launches = tables.empty("launches").reindex(range(len(rows)))
    launches["kernel_id"] = run.kernels["kernel_id"].iloc[0]
    for column, values in zip(
        ("device", "start_ns", "duration_ns"), zip(*rows, strict=True), strict=True
    ):
        launches[column] = values
    launches["index"] = range(len(rows))
    kernels = run.kernels.head(1).assign(
        calls=len(rows), total_ns=sum(row[2] for row in rows), share=1.0
    )
    stages = run.stages[run.stages["stage"] == "(all)"].assign(
        wall_ns=100.0, idle_ns=idle_ns, memory_ns=copies_ns
    )
    each = pd.DataFrame({"gpu": devices, "stage": "(all)", "instances": 1, "wall_ns": 100.0})
    each = each.assign(kernel_ns=80, kernel_busy_ns=70, gpu_busy_ns=70 + copies_ns, launches=2)
    each = each.assign(idle_ns=30.0 - copies_ns, memory_ns=copies_ns)
    gpus = pd.concat([run.gpus.assign(device=n) for n in range(2)])
    frames = {"launches": launches, "kernels": kernels, "stages": stages, "gpus": gpus}
    return run_time(write(run, **frames, gpu_stages=each))


def test_kernels_that_overlap_count_once_and_the_parts_add_up(run: Run) -> None:
    # Kernels run from 0 to 60 and from 90 to 100; a copy of 15 ns runs alone, 15 ns are idle.
    time = launched(run, [0], 15, 15)
    assert (time.kernels_ns, time.copies_ns, time.idle_ns) == (70, 15, 15)
    assert (time.basis, time.whole_ns) == ("wall", 100)
    assert (time.gpus, time.present) == (1, 2)
    assert time.of_kernels(40) == pytest.approx(40 * 70 / 80)
    assert time.of_whole(1.0) == pytest.approx(0.7)


def test_times_of_several_gpus_are_those_of_one_on_average(run: Run) -> None:
    # Device 1 works from 10 to 60 and from 80 to 100: 70 ns as well.
    time = launched(run, [0, 1], 10, 5)
    assert (time.kernels_ns, time.copies_ns, time.idle_ns) == (70, 10, 20)
    assert (time.gpus, time.present) == (2, 2)
    assert time.of_kernels(150) == pytest.approx(70)


def test_without_a_wall_time_the_time_of_the_kernels_is_the_whole(run: Run) -> None:
    time = run_time(write(run, stages=tables.empty("stages")))
    assert time.basis == "gpu"
    assert time.whole_ns == time.kernels_ns == run.kernels["total_ns"].sum()
    assert time.idle_ns is None
    assert time.of_whole(0.25) == pytest.approx(0.25)


def test_without_a_trace_no_time_is_known(make_run: Callable[..., Path]) -> None:
    run = load_run(make_run())
    time = run_time(write(run, kernels=tables.empty("kernels")))
    assert (time.basis, time.whole_ns, time.kernels_ns) == ("", None, None)
    assert time.of_kernels(1.0) is None
    assert time.of_whole(0.5) is None


def test_idle_time_is_parted_by_its_largest_cause(run: Run) -> None:
    gaps = tables.empty("idle_gaps").reindex(range(3))
    for column in gaps.select_dtypes("number"):
        gaps[column] = 1
    gaps = gaps.assign(stage="", waited="", call="", nvtx_range="")
    gaps["cause"] = ["queued", "launches", "launches"]
    gaps["idle_ns"] = np.array([50, 30, 40])
    time = run_time(write(run, idle_gaps=gaps))
    assert (time.queued_ns, time.waits, time.waits_also) == (50, "launches", "")
    assert run_time(write(run, idle_gaps=gaps.assign(cause="unknown"))).waits == ""
    gaps["cause"] = ["queued", "launches", "host"]
    time = run_time(write(run, idle_gaps=gaps))
    assert (time.waits, time.waits_also) == ("queued", "host")
