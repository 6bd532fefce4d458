"""A part of a trace: what one NVTX range issued, held to the tables of the whole trace."""

import lzma
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.rows.cut import (
    Cutter,
    keep_process,
    keep_steps,
    open_cutter,
    processes,
)
from nsight_prof.parsers.nsys.trace import open_trace

STAGES = ("prefill", "decode")


@pytest.fixture(scope="module")
def trace(root: Path) -> Path:
    return root / "captures" / "h200-top-kernels" / "steps" / "1-trace" / "trace.sqlite.xz"


@pytest.fixture(scope="module")
def cutter(trace: Path) -> Iterator[Cutter]:
    with open_cutter(trace) as opened:
        yield opened


@pytest.mark.parametrize("stage", STAGES)
def test_a_part_has_the_kernels_that_the_whole_trace_has_in_that_stage(
    trace: Path, cutter: Cutter, stage: str, tmp_path: Path
) -> None:
    cutter.cut([stage], tmp_path / "part.sqlite")
    with open_trace(trace, STAGES) as whole, open_trace(tmp_path / "part.sqlite") as part:
        expected = whole.stage_kernels().query("stage == @stage")
        found = part.kernels()
    columns = ["kernel_id", "calls", "total_ns"]
    pd.testing.assert_frame_equal(
        found[columns].sort_values("kernel_id", ignore_index=True),
        expected[columns].sort_values("kernel_id", ignore_index=True),
    )


def test_the_parts_share_out_launches_copies_and_calls(
    trace: Path, cutter: Cutter, tmp_path: Path
) -> None:
    sums = {"launches": 0, "memory": 0, "calls": 0}
    for stage in STAGES:
        cutter.cut([stage], tmp_path / "part.sqlite")
        with open_trace(tmp_path / "part.sqlite") as part:
            sums["launches"] += len(part.launches())
            sums["memory"] += int(part.memory_operations()["calls"].sum())
            sums["calls"] += int(part.api_calls()["calls"].sum())
    with open_trace(trace, STAGES) as whole:
        assert sums["launches"] == len(whole.launches())
        assert sums["memory"] == whole.memory_operations()["calls"].sum()
        # Calls outside of both ranges (the profiler is started and stopped there) are in neither.
        assert 0 < sums["calls"] <= whole.api_calls()["calls"].sum()


def test_a_part_of_a_part_is_that_part(cutter: Cutter, tmp_path: Path) -> None:
    cutter.cut(["decode"], tmp_path / "once.sqlite")
    with open_cutter(tmp_path / "once.sqlite") as again:
        again.cut(["decode"], tmp_path / "twice.sqlite")
    with (
        open_trace(tmp_path / "once.sqlite") as once,
        open_trace(tmp_path / "twice.sqlite") as twice,
    ):
        pd.testing.assert_frame_equal(once.launches(), twice.launches())
        pd.testing.assert_frame_equal(once.api_calls(), twice.api_calls())


def test_ranges_of_one_name_are_cut_together(cutter: Cutter, tmp_path: Path, trace: Path) -> None:
    cutter.cut(["step"], tmp_path / "part.sqlite")  # one for each of the 16 tokens
    with open_trace(tmp_path / "part.sqlite", ("step",)) as part:
        (row,) = part.stages().query("stage == 'step'").to_dict("records")
    assert row["instances"] == 16
    with open_trace(trace, ("step",)) as whole:
        (same,) = whole.stages().query("stage == 'step'").to_dict("records")
    assert (row["launches"], row["kernel_ns"]) == (same["launches"], same["kernel_ns"])


def test_several_names_and_one_occurrence_are_cut(
    cutter: Cutter, tmp_path: Path, trace: Path
) -> None:
    with open_trace(trace, STAGES) as whole:
        launches = whole.launches()
    cutter.cut(STAGES, tmp_path / "both.sqlite")
    with open_trace(tmp_path / "both.sqlite") as both:
        assert len(both.launches()) == len(launches)
    steps = []
    # One prefill, one decode, and in it 16 steps: as ncu counts ranges of several names.
    assert cutter.cut(["decode", "step"], tmp_path / "one.sqlite", 1) == [1, 2]
    for occurrence in (1, 16):
        assert cutter.cut(["step"], tmp_path / "one.sqlite", occurrence) == [occurrence]
        with open_trace(tmp_path / "one.sqlite", ("step",)) as one:
            steps.append(one.launches())
    inside = launches[launches["nvtx_path"].astype(str).str.contains("step")]
    assert steps[0]["start_ns"].min() == inside["start_ns"].min()
    assert steps[1]["start_ns"].max() == inside["start_ns"].max()
    assert len(steps[0]) == len(inside) / 16
    with pytest.raises(ArtifactUnreadable, match="no closed NVTX range 'step' number 17"):
        cutter.cut(["step"], tmp_path / "one.sqlite", 17)


def test_an_absent_range_is_named(cutter: Cutter, tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match="no closed NVTX range 'warm-up'"):
        cutter.cut(["warm-up"], tmp_path / "part.sqlite")


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_text("nothing")
    with pytest.raises(ArtifactUnreadable, match="not an SQLite file"), open_cutter(path):
        pass


@pytest.fixture
def ddp(root: Path, tmp_path: Path) -> Path:
    """16 steps of a rank of data-parallel training, whose backward pass runs in another thread."""
    packed = root / "tests/fixtures/ranks/balanced/ranks/0000/steps/1-trace/trace.sqlite.xz"
    path = tmp_path / "trace.sqlite"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def kernels_by_range(path: Path, name: str) -> list[int]:
    """Kernels whose launch, of whichever thread, began within each range of a name."""
    with closing(sqlite3.connect(path)) as database:
        ranges = database.execute(
            "SELECT start, end FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId"
            " WHERE coalesce(text, value) = ? ORDER BY start",
            (name,),
        ).fetchall()
        starts = database.execute(
            "SELECT r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r"
            " ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24"
        ).fetchall()
    return [sum(a <= start < b for (start,) in starts) for a, b in ranges]


def test_a_window_keeps_the_steps_with_what_all_threads_launched_in_them(ddp: Path) -> None:
    before = kernels_by_range(ddp, "step")
    assert len(before) == 16
    with closing(sqlite3.connect(ddp)) as database:
        threads = "SELECT count(DISTINCT globalTid) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        assert database.execute(threads).fetchone() > (1,)
    keep_steps(ddp, "step", 5, 8)
    assert kernels_by_range(ddp, "step") == before[4:8]
    with closing(sqlite3.connect(ddp)) as database:
        count = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        assert database.execute(count).fetchone() >= (sum(before[4:8]),)
    with pytest.raises(ArtifactUnreadable, match="has 4 closed NVTX ranges 'step'"):
        keep_steps(ddp, "step", 4, 5)


def test_each_process_of_a_trace_keeps_what_it_did(root: Path, tmp_path: Path) -> None:
    packed = root / "captures/h200-vllm-tensor-parallel/steps/1-trace/trace.sqlite.xz"
    whole = tmp_path / "trace.sqlite"
    whole.write_bytes(lzma.decompress(packed.read_bytes()))
    pids = processes(whole)
    count = "SELECT globalPid >> 24 & 0xFFFFFF, deviceId, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(whole)) as database:
        before = database.execute(f"{count} GROUP BY 1, 2 ORDER BY 2").fetchall()
    assert pids == [pid for pid, _, _ in before]
    for pid, device, launches in before:
        path = tmp_path / f"{pid}.sqlite"
        shutil.copyfile(whole, path)
        keep_process(path, pid)
        with closing(sqlite3.connect(path)) as database:
            assert database.execute(f"{count} GROUP BY 1, 2").fetchall() == [
                (pid, device, launches)
            ]
            threads = "SELECT DISTINCT globalTid >> 24 & 0xFFFFFF FROM NVTX_EVENTS"
            assert database.execute(threads).fetchall() == [(pid,)]
