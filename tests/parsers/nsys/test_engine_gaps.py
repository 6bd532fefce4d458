"""Causes of idle time against a plain reference that looks at each nanosecond."""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.engine.gaps import LATENCY, LONG_CALL_NS, NO_RANGE, QUEUED, activity
from nsight_prof.parsers.nsys.engine.ranges import HostRange, innermost
from nsight_prof.parsers.nsys.trace import open_trace

STEP = "execute_context_0(0)_generation_2(2)"
WORKER, OTHER = 7, 8


@dataclass(frozen=True)
class Call:
    """A CUDA call of the worker; `gpu` is start and length of its operation, None for a sync."""

    start: int
    length: int
    gpu: tuple[int, int] | None


@dataclass(frozen=True)
class Scope:
    start: int
    length: int
    name: str
    thread: int


SCOPES = st.lists(
    st.builds(
        Scope,
        st.integers(0, 90),
        st.integers(1, 40),
        st.sampled_from(["schedule: a", "gpu_model_runner: sample", "x"]),
        st.sampled_from([WORKER, WORKER, OTHER]),
    ),
    max_size=6,
    unique_by=lambda scope: (scope.thread, scope.start),
)
CALLS = st.lists(
    st.builds(
        Call,
        st.integers(0, 80),
        st.integers(1, 12),
        st.none() | st.tuples(st.integers(0, 30), st.integers(1, 15)),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda call: call.start,
)
STEPS = st.lists(st.integers(0, 60), min_size=1, max_size=4, unique=True).map(sorted)


@dataclass(frozen=True)
class Operation:
    start: int
    end: int
    step: int
    call_end: int


def operations(calls: list[Call], steps: list[int]) -> list[Operation]:
    made = []
    for call in calls:
        if call.gpu is not None:
            start = call.start + call.gpu[0]
            step = sum(begin <= call.start for begin in steps) - 1
            made.append(Operation(start, start + call.gpu[1], step, call.start + call.length))
    return sorted(made, key=lambda o: o.start)


def windows(work: list[Operation], steps: int) -> dict[int, tuple[int, int]]:
    """Begin and own end of each step's time on the GPU."""
    found: dict[int, tuple[int, int]] = {}
    last = -1
    for step in range(steps):
        mine = [o for o in work if o.step == step]
        if not mine:
            continue
        first = min(o.start for o in mine)
        begin = min(max(first, last), first)  # all operations are kernels
        begin = max([begin, *(b for b, _ in found.values())])
        last = max(last, *(o.end for o in mine))
        found[step] = (begin, max(o.end for o in mine))
    return found


def doing(t: int, scopes: list[Scope], calls: list[Call]) -> str:
    """What the host does at a moment, the most telling first."""
    syncs = [c for c in calls if c.gpu is None and c.start <= t < c.start + c.length]
    if syncs:
        return "cudaStreamSynchronize"
    here = [s for s in scopes if s.start <= t < s.start + s.length]
    for thread, wanted in ((WORKER, ""), (OTHER, "schedule:")):
        open_here = [s for s in here if s.thread == thread and s.name.startswith(wanted)]
        if open_here:
            return max(open_here, key=lambda s: s.start).name
    return NO_RANGE


def reference(
    calls: list[Call], scopes: list[Scope], steps: list[int]
) -> Counter[tuple[int, str, str]]:
    work = operations(calls, steps)
    found = windows(work, len(steps))
    order = sorted(found)
    busy = {t for o in work for t in range(o.start, o.end)}
    idle: Counter[tuple[int, str, str]] = Counter()
    for place, step in enumerate(order):
        begin, end = found[step]
        until = found[order[place + 1]][0] if place + 1 < len(order) else end
        for t in range(begin, until):
            if t in busy:
                continue
            following = next(o for o in work if o.start > t)
            gap = max(o.end for o in work if o.end <= t)
            if following.call_end <= gap:
                cause = QUEUED
            elif t >= following.call_end:
                cause = LATENCY
            else:
                cause = doing(t, scopes, calls)
            idle[step, "after" if gap >= end else "inside", cause] += 1
    return idle


@settings(
    max_examples=settings().max_examples // 2, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(calls=CALLS, scopes=SCOPES, steps=STEPS)
def test_causes_are_those_of_the_reference(
    new_export: Callable[[], Any], calls: list[Call], scopes: list[Scope], steps: list[int]
) -> None:
    export = new_export()
    for begin in steps:
        export.range(begin, begin, STEP)  # of no length: it is the cause of nothing
    for scope in scopes:
        export.range(scope.start, scope.start + scope.length, scope.name, thread=scope.thread)
    for number, call in enumerate(calls, 1):
        name = "cudaStreamSynchronize_v3020" if call.gpu is None else "cudaLaunchKernel"
        export.call(call.start, call.length, number, thread=WORKER, name=name)
        if call.gpu is not None:
            export.kernel(call.start + call.gpu[0], call.gpu[1], "k", number)
    export.kernel(1000, 1, "of no call", 999)  # no trace without kernels
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "trace.sqlite")
        with open_trace(path) as trace:
            gaps, table = trace.engine_gaps(), trace.engine_steps()
    found = {
        (int(row["step"]), str(row["place"]), str(row["cause"])): int(row["idle_ns"])
        for row in gaps.to_dict("records")
    }
    assert found == dict(reference(calls, scopes, steps))
    timed = table[table["period_ns"].notna()]
    assert (timed["busy_ns"] + timed["idle_ns"] == timed["period_ns"]).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 12), st.sampled_from("abc")),
        unique_by=lambda row: row[0],
    )
)
def test_the_innermost_range_is_the_one_that_began_last(rows: list[tuple[int, int, str]]) -> None:
    made = innermost([HostRange(1, start, start + length, name) for start, length, name in rows])
    found = {
        t: made.names[code]
        for start, end, code in zip(made.start, made.end, made.name, strict=True)
        for t in range(start, end)
    }
    expected = {}
    for t in range(45):
        here = [row for row in rows if row[0] <= t < row[0] + row[1]]
        if here:
            expected[t] = max(here)[2]
    assert found == expected
    assert (made.start[1:] >= made.end[:-1]).all()


def test_a_long_call_is_a_cause_of_its_own(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    export.range(0, 10, STEP)
    export.call(1, 1, 1)
    export.kernel(10, 10, "a", 1)
    export.call(30, 2 * LONG_CALL_NS, 2, name="cudaMalloc_v3020")
    export.call(40 + 2 * LONG_CALL_NS, 10, 3)
    export.kernel(60 + 2 * LONG_CALL_NS, 10, "b", 3)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        gaps = trace.engine_gaps()
    found = {row["cause"]: row["idle_ns"] for row in gaps.to_dict("records")}
    assert found == {"cudaMalloc": 2 * LONG_CALL_NS, NO_RANGE: 30, LATENCY: 10}


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("schedule: allocate_slots", "scheduling"),
        ("gpu_model_runner: sample", "sampling"),
        ("llm_engine step: process_outputs", "detokenizing and outputs"),
        ("cudaEventSynchronize", "blocking CUDA call"),
        ("cudaGraphLaunch", "launches of the forward pass"),
        ("a range of the user", "a range of the user"),
    ],
)
def test_what_a_reader_calls_a_cause(cause: str, words: str) -> None:
    assert activity(cause) == words
