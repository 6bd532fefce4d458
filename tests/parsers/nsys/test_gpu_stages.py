"""Times of single GPUs: against plain unions of intervals, and against each process alone."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import plain_file

ROOT = Path(__file__).resolve().parents[3]
TENSOR_PARALLEL = ROOT / "captures/h200-vllm-tensor-parallel/steps/1-trace/trace.sqlite.xz"
STEPS = ["^execute_context_.*"]
KERNEL, COPIES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
)


def union(intervals: list[tuple[int, int]]) -> int:
    total = reached = 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def by_device(database: Path) -> dict[int, tuple[int, int, int, int]]:
    """Wall time of all, and busy time, that of kernels and the sum of copies of each device."""
    with sqlite3.connect(database) as db:
        rows = [
            (device, start, end, table == KERNEL)
            for table in (KERNEL, *COPIES)
            for device, start, end in db.execute(f"SELECT deviceId, start, end FROM {table}")
        ]
    wall = max(row[2] for row in rows) - min(row[1] for row in rows)
    return {
        device: (
            wall,
            union([(s, e) for d, s, e, _ in rows if d == device]),
            union([(s, e) for d, s, e, kernel in rows if d == device and kernel]),
            sum(e - s for d, s, e, kernel in rows if d == device and not kernel),
        )
        for device in {row[0] for row in rows}
    }


def told(stages: pd.DataFrame) -> dict[int, tuple[int, int, int, int]]:
    whole = stages[stages["stage"] == "(all)"].set_index("gpu")
    columns = ["wall_ns", "gpu_busy_ns", "kernel_busy_ns", "memory_ns"]
    return {int(str(gpu)): tuple(map(int, row)) for gpu, row in whole[columns].iterrows()}  # type: ignore[misc]


def idle(stages: pd.DataFrame) -> list[float]:
    whole = stages[stages["stage"] == "(all)"]
    return (100 * whole["idle_ns"] / whole["wall_ns"]).round(2).tolist()


def test_two_gpus_of_a_recorded_run_are_idle_as_their_own_intervals_say() -> None:
    with plain_file(TENSOR_PARALLEL) as plain:
        expected = by_device(plain)
    with open_trace(TENSOR_PARALLEL, STEPS) as trace:
        stages, gaps, devices = trace.gpu_stages(), trace.gpu_idle_gaps(), trace.devices()
        together = trace.stages().iloc[0]
    assert told(stages) == expected
    assert idle(stages) == [6.15, 5.66]
    assert round(100 * together["idle_ns"] / together["wall_ns"], 2) == 2.94  # no GPU works
    assert devices["uuid"].nunique() == len(devices) == 2
    assert set(devices["known_by"]) == {"trace"}
    for gpu, own in gaps.groupby("gpu"):
        whole = stages[(stages["gpu"] == gpu) & (stages["stage"] == "(all)")].iloc[0]
        ends = whole["idle_ns"] - own["idle_ns"].sum()  # before its first and after its last work
        assert 0 <= ends < 1e-2 * whole["wall_ns"]


def test_two_gpus_of_a_published_trace_are_idle_as_their_own_intervals_say(
    real_exports: Path,
) -> None:
    path = real_exports / "nsys/GindaChen+nsys-ai/h100_2gpu_1s.sqlite"
    with open_trace(path) as trace:
        stages, devices = trace.gpu_stages(), trace.devices()
    assert told(stages) == by_device(path)
    assert idle(stages) == [0.68, 0.68]
    assert set(devices["known_by"]) == {"index"}


@pytest.mark.parametrize("device", [0, 1])
def test_each_gpu_is_as_in_a_trace_of_its_process_alone(device: int, tmp_path: Path) -> None:
    alone = tmp_path / "alone.sqlite"
    with plain_file(TENSOR_PARALLEL) as plain:
        shutil.copyfile(plain, alone)
    with sqlite3.connect(alone) as db:
        ((own,),) = db.execute(
            f"SELECT DISTINCT globalPid >> 24 FROM {KERNEL} WHERE deviceId = {device}"
        )
        for table, thread in (
            *((name, "globalPid") for name in (KERNEL, *COPIES)),
            ("NVTX_EVENTS", "globalTid"),
        ):
            db.execute(f"DELETE FROM {table} WHERE {thread} >> 24 <> {own}")
    with open_trace(alone, STEPS) as trace:
        stages, gaps = trace.stages().iloc[1:], trace.idle_gaps()
    with open_trace(TENSOR_PARALLEL, STEPS) as trace:
        both, both_gaps = trace.gpu_stages(), trace.gpu_idle_gaps()
    columns = ["stage", "instances", "wall_ns", "kernel_ns", "gpu_busy_ns", "idle_ns", "memory_ns"]
    ours = both[(both["gpu"] == device) & (both["stage"] != "(all)")]
    assert ours[columns].to_dict("records") == stages[columns].to_dict("records")
    own_gaps = both_gaps[both_gaps["gpu"] == device].drop(columns="gpu")
    assert own_gaps.to_dict("records") == gaps.to_dict("records")


WORK = st.lists(
    st.tuples(st.integers(2, 60), st.integers(1, 9), st.booleans(), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=settings().max_examples // 3)
@given(work=WORK)
def test_times_of_each_gpu_are_those_of_each_nanosecond(
    new_export: Callable[[], Any], work: list[tuple[int, int, bool, int]]
) -> None:
    export = new_export()
    export.kernel(1, 1, "first", 99)
    rows = [(1, 1, True, 0), *work]
    for number, (start, length, kernel, device) in enumerate(work, 1):
        add = export.kernel if kernel else export.copy
        add(start, length, correlation=number, device=device)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_trace(export.write(Path(folder) / "t.sqlite")) as trace,
    ):
        stages, whole = trace.gpu_stages(), trace.stages()
    end = max(start + length for start, length, *_ in rows) - 1  # from the first on

    def ticks(device: int, kernels_only: bool) -> set[int]:
        mine = [row for row in rows if row[3] == device and (row[2] or not kernels_only)]
        return {t for start, length, *_ in mine for t in range(start, start + length)}

    used = sorted({device for *_, device in rows})
    assert stages["gpu"].tolist() == used
    for device, row in zip(used, stages.to_dict("records"), strict=True):
        busy, kernels = ticks(device, False), ticks(device, True)
        assert (row["wall_ns"], row["gpu_busy_ns"], row["idle_ns"]) == (
            end,
            len(busy),
            end - len(busy),
        )
        assert row["kernel_busy_ns"] == len(kernels)
    everything = set().union(*(ticks(device, False) for device in used))
    assert whole["idle_ns"].iloc[0] == end - len(everything)


def test_of_one_gpu_both_tables_say_what_those_of_the_whole_say(
    export: Any, tmp_path: Path
) -> None:
    export.copy(200, 50, 2)
    export.call(120, 5, 2)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        stages, own = trace.stages(), trace.gpu_stages()
        gaps, own_gaps = trace.idle_gaps(), trace.gpu_idle_gaps()
    same = ["stage", "instances", "wall_ns", "kernel_ns", "gpu_busy_ns", "idle_ns", "memory_ns"]
    assert own[same].to_dict("records") == stages[same].to_dict("records")
    assert own_gaps.drop(columns="gpu").to_dict("records") == gaps.to_dict("records")


def ranks(export: Any, present: int, mapping: bool) -> Any:
    """Two processes that call their only GPU 0, in a machine of `present` GPUs."""
    export.kernel(100, 10, "k", 1, process=7)
    export.kernel(105, 10, "k", 2, process=8)
    export.columns["TARGET_INFO_GPU"] = "id INTEGER, name TEXT, uuid TEXT"
    export.columns["TARGET_INFO_CUDA_DEVICE"] = "gpuId INTEGER, cudaId INTEGER, pid INTEGER"
    for number in range(present):
        export.add("TARGET_INFO_GPU", number, "NVIDIA H200", f"uuid-{number}")
    for process, gpu in ((7, 1), (8, 0)) if mapping else ():
        export.add("TARGET_INFO_CUDA_DEVICE", gpu, 0, process)
    return export


@pytest.mark.parametrize(
    ("present", "mapping", "gpus", "known_by", "caveat"),
    [
        (2, True, {7: 1, 8: 0}, "trace", ""),
        (2, False, {7: 0, 8: 1}, "process", "is taken for two GPUs"),
        (1, False, {7: 0, 8: 0}, "index", "is taken for one GPU"),
    ],
)
def test_ranks_that_call_their_gpu_0_are_told_apart_as_far_as_the_trace_tells(
    new_export: Callable[[], Any],
    tmp_path: Path,
    present: int,
    mapping: bool,
    gpus: dict[int, int],
    known_by: str,
    caveat: str,
) -> None:
    export = ranks(new_export(), present, mapping)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        devices, stages = trace.devices(), trace.gpu_stages()
        warnings = [w for w in trace.warnings if "same number in two processes" in w]
    assert dict(zip(devices["pid"], devices["gpu"], strict=True)) == gpus
    assert set(devices["known_by"]) == {known_by}
    assert bool(warnings) is bool(caveat)
    assert all(caveat in warning for warning in warnings)
    assert len(stages) == len(set(gpus.values()))
    if mapping:
        assert devices.set_index("pid")["uuid"].to_dict() == {7: "uuid-1", 8: "uuid-0"}


def test_copies_without_a_device_belong_to_the_only_gpu_of_their_process(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export().without("CUPTI_ACTIVITY_KIND_MEMCPY", "deviceId")
    for process, device in ((7, 0), (8, 1), (8, 2)):
        export.kernel(100, 10, "k", device, process=process, device=device)
    export.copy(110, 20, 5, process=7)
    export.copy(110, 20, 6, process=8)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        stages = trace.gpu_stages()
        assert any("belong to none of them" in warning for warning in trace.warnings)
    assert stages.set_index("gpu")["memory_ns"].to_dict() == {0: 20, 1: 0, 2: 0}
