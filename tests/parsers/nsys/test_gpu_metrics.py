"""Samples of GPU metrics beside a recorded trace: which kernel and stage each is counted to."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import decompress

RECORDED = "tests/fixtures/ranks/job/ranks/0000/steps/1-trace/trace.sqlite.xz"
INTERVAL_NS, LONG_NS = 10_000, 100_000
METRICS = ((1, "SMs Active [Throughput %]"), (2, "DRAM Read Bandwidth [Throughput %]"),
           (3, "GPC Clock Frequency [MHz]"), (4, "Unallocated Warps [Avg]"))  # fmt: skip


@pytest.fixture(scope="module")
def trace(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a rank, sampled as if each sample were the index of the launch it lies in."""
    path = tmp_path_factory.mktemp("sampled") / "trace.sqlite"
    decompress(root / RECORDED, path)
    with open_trace(path) as before:
        launches = before.launches()
    start = launches["start_ns"].to_numpy()
    end = start + launches["duration_ns"].to_numpy()
    times = np.arange(start.min(), end.max(), INTERVAL_NS)
    at = np.searchsorted(start, times, "right") - 1
    inside = times <= end[at]
    long = launches["duration_ns"].to_numpy()[at] > LONG_NS
    rows = [
        (0x100, 1, int(t), 90 if i and big else 20)
        for t, i, big in zip(times, inside, long, strict=True)
    ]
    rows += [
        (0x100, key, int(t), value)
        for key, value in ((2, 50), (3, 1_980_000_000), (4, 7))
        for t in times
    ]
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE GPU_METRICS (typeId INT, metricId INT, timestamp INT, value INT)"
        )
        database.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, sourceId INT, typeName TEXT, "
            "metricId INT, metricName TEXT)"
        )
        database.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", rows)
        database.executemany(
            "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 0, 'gh100', ?, ?)", METRICS
        )
        database.commit()
    return path


def test_a_sample_is_of_the_launch_that_it_lies_in(trace: Path) -> None:
    with open_trace(trace, ("^step$",)) as opened:
        found, kernels = opened.gpu_samples(), records(opened.kernels())
    of_kernels = found[(found["metric"] == "SMs Active") & (found["stage"] == "")]
    active = {row["kernel_id"]: row["mean"] for row in records(of_kernels)}
    long = {active[row["kernel_id"]] for row in kernels
            if row["kernel_id"] in active and row["min_ns"] > LONG_NS}  # fmt: skip
    short = {active[row["kernel_id"]] for row in kernels
             if row["kernel_id"] in active and row["max_ns"] <= LONG_NS}  # fmt: skip
    assert (long, short) == ({90.0}, {20.0})
    # What is shorter than the time between two samples has none.
    shortest = [row["kernel_id"] for row in kernels if row["max_ns"] < INTERVAL_NS]
    assert shortest
    assert not set(shortest) & set(active)


def test_stages_and_units(trace: Path) -> None:
    with open_trace(trace, ("^step$",)) as opened:
        found = opened.gpu_samples()
    steps = {row["metric"]: row for row in records(found[found["stage"] == "step"])}
    read, clock = steps["DRAM Read Bandwidth"], steps["GPC Clock Frequency"]
    assert (read["mean"], read["unit"]) == (50.0, "%")
    assert (clock["mean"], clock["unit"]) == (1.98e9, "Hz")
    assert "Unallocated Warps" not in steps
    assert 20 < steps["SMs Active"]["mean"] < 90


def test_without_samples_the_table_is_empty(root: Path) -> None:
    with open_trace(root / RECORDED) as opened:
        assert opened.gpu_samples().empty
