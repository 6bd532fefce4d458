"""How long ncu will take is said before it starts, where it waits at each launch."""

import pandas as pd
import pytest

from nsight_prof.orchestrator.plan.counting_time import CountingTime, counting_time, warnings
from nsight_prof.parsers.run.selection import SelectedKernel, Selection

KERNELS = pd.DataFrame({"kernel_id": ["a4", "a8", "b4"], "mangled_name": ["a", "a", "b"]})
SELECTION = Selection([SelectedKernel("a4", "a", "a", "a", "4x1x1", "32x1x1", 0.9, 0)])


def launches(pids: list[int], each: int = 1000) -> pd.DataFrame:
    """In each process `each` launches of every kernel, 1 ms apart."""
    rows = [(kernel, pid) for pid in pids for kernel in KERNELS["kernel_id"] for _ in range(each)]
    frame = pd.DataFrame(rows, columns=["kernel_id", "pid"])
    frame["start_ns"] = range(0, len(frame) * 1_000_000, 1_000_000)
    frame["duration_ns"] = 1_000_000
    return frame


def estimate(pids: list[int], names: dict[int, str], command: str) -> CountingTime:
    return counting_time(SELECTION, KERNELS, launches(pids), names, command)


def test_a_program_that_nsys_starts_itself_does_not_wait() -> None:
    time = estimate([7], {7: "my_app"}, "./my_app")
    assert (time.waiting, time.counted, time.processes) == (0, 1, 1)
    assert time.wall_s == 3.0
    assert warnings(time) == []


@pytest.mark.parametrize(
    ("pids", "names", "command", "waiting"),
    [
        ([7], {7: "my_app"}, "bash", 2000),  # launches of both shapes of the kernel
        ([7], {}, "python3", 0),  # a slimmed trace names no process
        ([7], {7: "/opt/venv/bin/python3"}, "/opt/venv/bin/python3", 0),  # as nsys 2025.3 names it
        ([7], {7: "a_name_of_more_"}, "/opt/a_name_of_more_than_15", 0),
        ([7, 8, 9], {7: "python3", 8: "python3", 9: "python3"}, "python3", 4000),
        ([7, 8, 9], {7: "my_app", 8: "my_app", 9: "my_app"}, "sh", 6000),
    ],
)
def test_launches_of_processes_that_another_one_started_wait(
    pids: list[int], names: dict[int, str], command: str, waiting: int
) -> None:
    time = estimate(pids, names, command)
    assert (time.waiting, time.counted, time.processes) == (waiting, len(pids), len(pids))


def test_the_warning_tells_the_minutes_the_cause_and_what_shortens_it() -> None:
    (sentence,) = warnings(estimate([7, 8, 9], {7: "my_app"}, "bash"))
    assert sentence.startswith("ncu will take about 10 min: another process starts")
    for words in ("6,000 launches", "exec", "capture: {nvtx: NAME}", "select.top_k"):
        assert words in sentence
