"""Single events of an export: calls, ranges, marks, copies, and the columns that old ones lack."""

from pathlib import Path
from typing import Any

import numpy as np

from nsight_prof.parsers.nsys.events import read_events
from nsight_prof.parsers.nsys.rows.calls import call_key
from nsight_prof.parsers.nsys.rows.nvtx import MARK, PUSH_POP, START_END
from nsight_prof.parsers.nsys.sqlite.schema import OPEN_END


def test_calls_have_thread_name_and_key(export: Any, tmp_path: Path) -> None:
    export.call(start=70, duration=3, correlation=9, process=7, thread=8, name="cuMemAlloc_v2")
    calls = (found := read_events(export.write(tmp_path / "t.sqlite"))).host.calls
    assert calls.start.tolist() == [10, 70]
    assert calls.duration.tolist() == [5, 3]
    assert [calls.names[code] for code in calls.name] == ["cudaLaunchKernel", "cuMemAlloc_v2"]
    threads = [found.host.threads[code] for code in calls.thread]
    assert [(t.pid, t.tid) for t in threads] == [(7, 7), (7, 8)]
    assert calls.call.tolist() == call_key(np.array([7, 7]), np.array([1, 9])).tolist()


def test_ranges_of_all_kinds_with_their_domain(export: Any, tmp_path: Path) -> None:
    export.range(60, None, "open", inline=True)
    export.range(61, 90, "overlapping", kind=60, end_thread=9)
    export.range(62, None, "now", kind=34)
    export.range(0, None, "lib", kind=75, domain=3)
    export.range(63, 64, "inside", domain=3)
    nvtx = read_events(export.write(tmp_path / "t.sqlite")).host.nvtx
    names = [nvtx.labels[code] for code in nvtx.name]
    assert names == ["step", "open", "overlapping", "now", "lib:inside"]
    kinds = [nvtx.kinds[code] for code in nvtx.kind]
    assert kinds == [PUSH_POP, PUSH_POP, START_END, MARK, PUSH_POP]
    assert nvtx.end.tolist() == [50, OPEN_END, 90, OPEN_END, 64]
    assert nvtx.ends_elsewhere.tolist() == [False, False, True, False, False]


def test_copies_without_a_stream_are_read(export: Any, tmp_path: Path) -> None:
    export.copy(200, 10, correlation=2, kind=2)
    export.copy(100, 20, correlation=3, kind=99)
    memory = read_events(export.write(tmp_path / "t.sqlite")).memory
    assert memory.start.tolist() == [100, 200]
    assert [memory.kinds[code][1] for code in memory.kind] == [
        "copy of kind 99",
        "copy device to host",
    ]
    # The only GPU of the process; no context, no stream.
    assert {memory.queues[code] for code in memory.queue} == {(0, -1, -1, 7)}
    assert memory.bytes.tolist() == [1000, 1000]


def test_an_export_without_ranges_and_calls_has_none(new_export: Any, tmp_path: Path) -> None:
    made = new_export()
    made.kernel()
    found = read_events(made.write(tmp_path / "t.sqlite"))
    assert not len(found.host.calls.start)
    assert not len(found.host.nvtx.start)
    assert not len(found.memory.start)
    assert found.host.threads == []


def test_names_of_threads_and_processes(export: Any, tmp_path: Path) -> None:
    export.columns |= {
        "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
        "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    }
    export.add("ThreadNames", export.string("worker"), 20, 1 << 48 | 7 << 24 | 7)
    export.add("PROCESSES", 1 << 48 | 7 << 24, 7, "python3")
    export.add("PROCESSES", 1 << 48 | 8 << 24, 8, "another")
    host = read_events(export.write(tmp_path / "t.sqlite")).host
    assert [thread.name for thread in host.threads] == ["worker"]
    assert host.processes == {7: "python3"}
