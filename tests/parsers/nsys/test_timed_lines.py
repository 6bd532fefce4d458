"""Timed lines joined with calls of CUDA: a program that notes itself when it made which call."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.nsys.stages.timed_lines import read_timed_lines
from nsight_prof.parsers.nsys.trace import open_trace

LATE = 123_456_789
LIBRARY = """
import threading, time
noted = []
def mark(text):
    noted.append(["mark", text, 0, time.perf_counter_ns(), 0])
def call(name, us=100):
    begin = time.perf_counter_ns()
    while time.perf_counter_ns() < begin + us * 1000:
        pass
    noted.append(["call", name, threading.get_native_id(), begin, time.perf_counter_ns()])
def on_thread_without_lines(name):
    import _thread
    done = _thread.allocate_lock()
    done.acquire()
    def work():
        call(name)
        done.release()
    _thread.start_new_thread(work, ())
    done.acquire()
"""
PROGRAM = """
import atexit, json, sys, threading, time
import nvtx


def launch(count):
    for _ in range(count):
        nvtx.call("cudaLaunchKernel")


class Model:
    def forward(self):
        launch(3)
        nvtx.call("cudaMemcpyAsync", 300)


def main():
    for _ in range(10):
        Model().forward()
        sum(number for number in range(20000))
        nvtx.call("cudaStreamSynchronize"); time.sleep(0.001)
    nvtx.on_thread_without_lines("cudaLaunchKernel")
    other = threading.Thread(target=launch, args=(2,))
    other.start()
    other.join()


main()
json.dump(nvtx.noted, open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, root: Path, new_export: Callable[[], Any]
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("timed")
    packages = folder / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (packages / "nvtx.py").write_text(LIBRARY)
    (folder / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join((str(root / "targets/line_timer"), str(packages)))
    environment = os.environ | {"PROF_LINES": str(folder), "PYTHONPATH": paths}
    command = [sys.executable, str(folder / "program.py"), str(folder / "noted.json")]
    subprocess.run(command, check=True, env=environment)
    (process,) = read_timed_lines(folder)
    export = new_export()
    for number, (kind, name, thread, begin, end) in enumerate(
        json.loads((folder / "noted.json").read_text()), 1
    ):
        if kind == "mark":
            inline = bool(number % 2)
            export.range(begin + LATE, None, name, kind=34, inline=inline, process=process.pid)
            continue
        place = {"process": process.pid, "correlation": number}
        export.call(begin + LATE, end - begin, thread=thread, name=name, **place)
        if name == "cudaMemcpyAsync":
            export.copy(begin + LATE, 5000, number, process=process.pid)
        elif name == "cudaLaunchKernel":
            export.kernel(begin + LATE + 1000, 2000, **place)
    return export.write(folder / "trace.sqlite"), folder


@pytest.fixture(scope="module")
def found(recorded: tuple[Path, Path]) -> dict[str, pd.DataFrame]:
    with open_trace(recorded[0]) as trace:
        return trace.timed_lines(recorded[1])


AT = {line.strip(): at for at, line in enumerate(PROGRAM.splitlines(), 1)}


def places(rows: pd.DataFrame) -> dict[tuple[int, str], int]:
    callers = rows["callers"].str.replace(r"\S*/", "", regex=True)
    return dict(zip(zip(rows["line"], callers, strict=True), rows["calls"], strict=True))


def test_each_call_is_at_the_line_that_made_it_with_those_around(
    found: dict[str, pd.DataFrame],
) -> None:
    calls = found["timed_calls"]
    main, forward = f"program.py:{AT['main()']} <module>", AT["Model().forward()"]
    around = f"program.py:{AT['launch(3)']} forward < program.py:{forward} main < {main}"
    at_main = f"program.py:{forward} main < {main}"
    launches = places(calls[calls["call"] == "cudaLaunchKernel"])
    at = AT['nvtx.call("cudaLaunchKernel")']
    without = AT['nvtx.on_thread_without_lines("cudaLaunchKernel")']
    # 30 of the loop, 2 of another thread, and one of a thread without lines: where main waits.
    assert launches == {(at, around): 30, (at, ""): 2, (without, main): 1}
    copies = calls[calls["call"] == "cudaMemcpyAsync"]
    assert places(copies) == {(AT['nvtx.call("cudaMemcpyAsync", 300)'], at_main): 10}
    assert (copies["copy"].item(), copies["gpu_ns"].item()) == ("copy host to device", 50_000)
    assert copies["time_ns"].item() >= 10 * 300_000
    assert set(calls["activity"]) == {"launching", "copying", "waiting"}


def test_launches_are_told_by_kernel_with_their_time(found: dict[str, pd.DataFrame]) -> None:
    rows = found["launch_lines"]
    assert rows["kernel_id"].nunique() == 1
    assert rows["time_ns"].sum() == 33 * 2000
    assert rows["samples"].sum() == 66


def test_the_time_of_a_line_is_its_own_and_that_of_what_it_calls(
    found: dict[str, pd.DataFrame],
) -> None:
    rows = found["timed_lines"].set_index("line")
    model = rows.loc[AT["Model().forward()"]]
    assert model["hits"] == 10
    assert model["time_ns"] >= 10 * (3 * 100_000 + 300_000)
    assert model["own_ns"] < model["time_ns"] / 10
    wait = rows.loc[AT['nvtx.call("cudaStreamSynchronize"); time.sleep(0.001)']]
    assert wait["own_ns"] >= 10 * 1_100_000
    assert wait["source"].startswith("nvtx.call(")


def test_without_marks_nothing_is_told(new_export: Callable[[], Any], tmp_path: Path,
                                       recorded: tuple[Path, Path]) -> None:  # fmt: skip
    export = new_export()
    export.kernel()
    export.call()
    with open_trace(export.write(tmp_path / "trace.sqlite")) as trace:
        found = trace.timed_lines(recorded[1])
    assert {name for name, frame in found.items() if len(frame)} == {"line_timers"}
    timer = found["line_timers"].iloc[0]
    assert timer["by"] in {"sys.monitoring", "sys.settrace"}
    assert timer["cost_ns"] > 100 * timer["events"] > 0


@pytest.mark.parametrize("keep", [10, 0.5, 0.9])
def test_a_file_that_was_cut_tells_what_it_has(
    recorded: tuple[Path, Path], tmp_path: Path, keep: float
) -> None:
    (whole,) = recorded[1].glob("lines-*.bin")
    data = whole.read_bytes()
    (tmp_path / whole.name).write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    found = read_timed_lines(tmp_path)
    assert len(found) == (keep < 1)
    assert all(process.reason == "the program was ended" for process in found)
