"""Where and when a trace was recorded, against what SQLite says of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import decompress

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.mark.parametrize("run", ["h200-vllm-tensor-parallel", "h200-ocr-pages"])
def test_processes_devices_and_times_are_those_of_all_kernels(
    root: Path, tmp_path: Path, run: str
) -> None:
    trace = tmp_path / "trace.sqlite"
    decompress(root / f"captures/{run}/steps/1-trace/trace.sqlite.xz", trace)
    with open_trace(trace) as opened:
        found = opened.identity()
    with closing(sqlite3.connect(trace)) as db:
        ((first, last),) = db.execute(f"SELECT min(start), max(end) FROM {KERNELS}")
        ((began,),) = db.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        query = f"SELECT DISTINCT globalPid >> 24 & 0xFFFFFF, deviceId FROM {KERNELS}"
        pairs = db.execute(query).fetchall()
    assert (found.begin_ns, found.end_ns) == (began + first, began + last)
    assert found.pids == tuple(sorted({process for process, _ in pairs}))
    assert found.devices == tuple(sorted({device for _, device in pairs}))
