"""The steps of GPUs that one trace has, against interval arithmetic on its raw kernels."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.run.directory import decompress

Intervals = list[tuple[int, int]]
KERNELS = (
    "SELECT start, end, value LIKE '%nccl%' FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds"
    " ON id = demangledName WHERE deviceId = ?"
)


def covered(intervals: Intervals) -> int:
    """Length of the union of intervals."""
    total, until = 0, 0
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def within(intervals: Intervals, begin: int, end: int) -> Intervals:
    return [(max(a, begin), min(b, end)) for a, b in intervals if a < end and b > begin]


def test_communication_of_each_step_is_that_of_the_raw_kernels(
    replay: Callable[[str], Path], root: Path, tmp_path: Path
) -> None:
    run = replay("data-parallel")
    found = pd.read_parquet(run / "tables/rank_steps.parquet").drop(columns="stage")
    found = found.set_index(["device", "step"])
    instances = pd.read_parquet(run / "tables/stage_instances.parquet")
    trace = tmp_path / "trace.sqlite"
    decompress(root / "captures/h200-data-parallel/steps/1-trace/trace.sqlite.xz", trace)
    exposed = {0: 0, 1: 0}
    with closing(sqlite3.connect(trace)) as db:
        for gpu in (0, 1):
            rows = db.execute(KERNELS, (gpu,)).fetchall()
            of_gpu = instances[instances["gpu"] == gpu].groupby("stage", observed=True)
            begins = of_gpu.get_group("forward")["gpu_start_ns"].tolist()
            ends = [*begins[1:], of_gpu.get_group("optimizer")["gpu_end_ns"].max()]
            assert len(begins) == 5
            for step, (begin, end) in enumerate(zip(begins, ends, strict=True)):
                every = within([row[:2] for row in rows], begin, end)
                computing = covered(within([row[:2] for row in rows if not row[2]], begin, end))
                sent = covered(within([row[:2] for row in rows if row[2]], begin, end))
                alone = covered(every) - computing
                row = found.loc[(gpu, step), :].astype(int)
                assert row["wall_ns"] == end - begin
                assert row["compute_ns"] == computing
                assert row["wait_ns"] + row["transfer_ns"] == alone
                assert row["overlapped_ns"] == sent - alone
                exposed[gpu] += alone
    assert exposed[0] / 1e6 == pytest.approx(1.31, abs=0.01)
    assert exposed[1] / 1e6 == pytest.approx(1.09, abs=0.01)
