"""Engine steps of real vLLM traces against plain sums over the export, and of made-up traces."""

import lzma
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.nsys.trace import NsysTrace, open_trace

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm_nsys"
NAMES = ("graphs", "spawned", "layers")
STEP = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
DECODE = "execute_context_0(0)_generation_2(2)"
PREFILL = "execute_context_2(64)_generation_0(0)"
EMPTY = "execute_context_0(0)_generation_0(0)"


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[NsysTrace, sqlite3.Connection]]:
    """A real trace, and the plain export to count in."""
    packed = FIXTURES / f"{request.param}.sqlite.xz"
    db = sqlite3.connect(":memory:")
    db.deserialize(lzma.decompress(packed.read_bytes()))
    with open_trace(packed) as trace:
        yield trace, db
    db.close()


def step_ranges(db: sqlite3.Connection) -> list[tuple[int, int, str]]:
    return db.execute(
        "SELECT start, end, coalesce(text, value) AS name FROM NVTX_EVENTS LEFT JOIN StringIds"
        " ON id = textId WHERE name LIKE 'execute!_context!_%' ESCAPE '!' ORDER BY start"
    ).fetchall()


def operations(db: sqlite3.Connection, *tables: str) -> list[tuple[int, int, int]]:
    """Start, end and start of the call of each operation."""
    query = " UNION ALL ".join(
        f"SELECT o.start, o.end, min(r.start) FROM CUPTI_ACTIVITY_KIND_{table} o"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = o.correlationId"
        " AND r.globalTid >> 24 = o.globalPid >> 24 GROUP BY o.rowid"
        for table in tables
    )
    return sorted(db.execute(query).fetchall())


def union(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_steps_are_the_ranges_of_the_host(real: tuple[NsysTrace, sqlite3.Connection]) -> None:
    trace, db = real
    steps = trace.engine_steps()
    columns = ["prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"]
    found = [
        (row["host_start_ns"], row["host_ns"], *(row[column] for column in columns))
        for row in steps.to_dict("records")
    ]
    expected = []
    for start, end, name in step_ranges(db):
        match = STEP.fullmatch(name)
        assert match is not None
        expected.append((start, end - start, *map(int, match.groups())))
    assert found == expected
    assert steps["step"].tolist() == list(range(len(expected)))


def test_kernels_of_a_step_are_those_issued_before_the_next(
    real: tuple[NsysTrace, sqlite3.Connection],
) -> None:
    trace, db = real
    steps = trace.engine_steps()
    starts = [start for start, *_ in step_ranges(db)]
    kernels, memory = operations(db, "KERNEL"), operations(db, "MEMCPY", "MEMSET")
    for at, (_, row) in enumerate(steps.iterrows()):
        upto = starts[at + 1] if at + 1 < len(starts) else 2**62
        mine = [k for k in kernels if starts[at] <= k[2] < upto]
        assert row["launches"] == len(mine)
        assert row["kernel_ns"] == sum(end - start for start, end, _ in mine)
        moved = [m for m in memory if starts[at] <= m[2] < upto]
        assert row["memory_ns"] == sum(end - start for start, end, _ in moved)
    issued = sum(end - start for start, end, call in kernels if call >= starts[0])
    assert steps["kernel_ns"].sum() == issued


def test_steps_cover_the_gpu_without_a_hole(real: tuple[NsysTrace, sqlite3.Connection]) -> None:
    trace, db = real
    steps = trace.engine_steps()
    worked = steps[steps["gpu_start_ns"].notna()]
    everything = [(a, b) for a, b, _ in operations(db, "KERNEL", "MEMCPY", "MEMSET")]
    before = worked["gpu_start_ns"].iloc[0]
    span = worked["gpu_end_ns"].iloc[-1] - before
    last = worked.iloc[-1]
    periods = worked["period_ns"].iloc[:-1]
    assert pd.isna(last["period_ns"])
    assert periods.sum() + (last["gpu_end_ns"] - last["gpu_start_ns"]) == span
    assert (worked["busy_ns"] + worked["idle_ns"] == worked["period_ns"]).iloc[:-1].all()
    assert worked["busy_ns"].sum() == union([(a, b) for a, b in everything if b > before])
    inside, after = worked["idle_inside_ns"].sum(), worked["idle_after_ns"].sum()
    assert inside + after + worked["busy_ns"].sum() == span


def test_causes_add_up_to_the_idle_time(real: tuple[NsysTrace, sqlite3.Connection]) -> None:
    trace, _ = real
    steps, gaps = trace.engine_steps(), trace.engine_gaps()
    for place, column in (("inside", "idle_inside_ns"), ("after", "idle_after_ns")):
        found = gaps[gaps["place"] == place].groupby("step")["idle_ns"].sum()
        told = steps.set_index("step")[column].fillna(0)
        assert found.to_dict() == told[told > 0].to_dict()


def test_the_kinds_of_the_real_steps() -> None:
    kinds = {}
    for name in NAMES:
        with open_trace(FIXTURES / f"{name}.sqlite.xz") as trace:
            kinds[name] = trace.engine_steps()["kind"].tolist()
    assert kinds["graphs"] == ["prefill"] + ["decode"] * 11 + ["empty"]
    assert kinds["spawned"] == ["prefill", "mixed"] + ["decode"] * 5 + ["empty"] * 2
    assert kinds["layers"] == ["prefill"] + ["decode"] * 2


def test_graphs_keep_the_gpu_busy_and_an_eager_host_does_not() -> None:
    idle = {}
    for name in ("graphs", "layers"):
        with open_trace(FIXTURES / f"{name}.sqlite.xz") as trace:
            gaps, steps = trace.engine_gaps(), trace.engine_steps()
        decode = steps[steps["kind"] == "decode"]["step"]
        by = gaps[gaps["step"].isin(decode)].groupby("activity")["idle_ns"].sum()
        idle[name] = by.idxmax()
    assert idle == {
        "graphs": "gaps between queued operations",
        "layers": "launches of the forward pass",
    }


def test_a_trace_of_another_program_has_no_steps(export: Any, tmp_path: Path) -> None:
    export.range(0, 5, "execute_context_soon", inline=True)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.engine_steps().empty
        assert trace.engine_gaps().empty
        assert all(frame.empty for frame in trace.modules())
        assert trace.why_no_modules() is None


def write_rank(
    export: Any,
    process: int,
    device: int,
    work: list[tuple[int, list[tuple[int, int, str]]]],
    kind: str = DECODE,
) -> None:
    """Steps of one rank: (host start, [(GPU start, duration, kernel)])."""
    for number, (host, kernels) in enumerate(work):
        export.range(host, host + 5, kind, process=process)
        for at, (start, duration, name) in enumerate(kernels):
            correlation = 100 * number + at + 1
            export.call(host + 1 + at, 1, correlation, process)
            export.kernel(start, duration, name, correlation, process, device=device)


def test_the_gpu_trails_the_host(export: Any, tmp_path: Path) -> None:
    """The host has issued all steps before the GPU ends the first."""
    export.rows.clear()
    work = [(0, [(100, 50, "a")]), (10, [(160, 40, "b")]), (20, [(200, 30, "c")])]
    write_rank(export, 7, 0, work)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        steps, gaps = trace.engine_steps(), trace.engine_gaps()
    assert steps["gpu_start_ns"].tolist() == [100, 160, 200]
    assert steps["period_ns"].tolist()[:2] == [60, 40]
    assert steps["idle_after_ns"].tolist()[:2] == [10, 0]
    assert gaps[["step", "cause", "idle_ns"]].values.tolist() == [
        [0, "between queued operations", 10]
    ]
    assert steps["cause"].tolist()[0] == "between queued operations"


def test_copies_on_another_stream_do_not_begin_a_step_early(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    write_rank(export, 7, 0, [(0, [(100, 50, "a")]), (10, [(160, 40, "b")])])
    export.call(15, 1, 900)
    export.copy(120, 5, 900)  # inputs of the second step, while the first computes
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        steps = trace.engine_steps()
    assert steps["gpu_start_ns"].tolist() == [100, 150]
    assert steps["period_ns"].tolist()[:1] == [50]
    assert steps["memory_ns"].tolist() == [0, 5]


def test_ranks_wait_for_each_other_in_collectives(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    write_rank(export, 7, 0, [(0, [(100, 20, "gemm"), (120, 30, reduce), (140, 20, "gemm")])])
    write_rank(export, 9, 1, [(0, [(100, 45, "gemm"), (145, 5, reduce), (150, 10, "gemm")])])
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        steps = trace.engine_steps()
    assert steps[["pid", "device"]].values.tolist() == [[7, 0], [9, 1]]
    assert steps["collective_ns"].tolist() == [30, 5]
    assert steps["collective_exposed_ns"].tolist() == [20, 5]
    assert steps["collective_wait_ns"].tolist() == [25, 0]


def test_ranks_that_differ_have_no_known_wait(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    write_rank(export, 7, 0, [(0, [(100, 20, reduce)])])
    write_rank(export, 9, 1, [(0, [(100, 20, reduce), (130, 5, reduce)])])
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.engine_steps()["collective_wait_ns"].isna().all()


def test_an_empty_step_has_no_time_on_the_gpu(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    write_rank(export, 7, 0, [(0, [(100, 20, "a")])], PREFILL)
    export.range(50, 60, EMPTY)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        steps = trace.engine_steps()
    assert steps["kind"].tolist() == ["prefill", "empty"]
    assert steps.loc[1, ["gpu_start_ns", "busy_ns", "idle_ns", "period_ns"]].isna().all()
    assert steps.loc[1, "launches"] == 0


def test_kernels_before_the_first_step_are_told(export: Any, tmp_path: Path) -> None:
    export.range(20, 25, DECODE)
    export.call(21, 1, 2)
    export.kernel(300, 5, "b", 2)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        steps = trace.engine_steps()
        assert steps["launches"].tolist() == [1]
        assert any("1 kernels" in warning for warning in trace.warnings)
