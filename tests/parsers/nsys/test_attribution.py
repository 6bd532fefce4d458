"""NVTX attribution against a plain reference, on traces that hypothesis thinks up."""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.trace import open_trace

TIMES = st.integers(0, 6)
NAMES = st.sampled_from(["prefill", "decode", "layer", "x"])


@dataclass(frozen=True)
class Range:
    start: int
    length: int | None
    name: str
    process: int
    thread: int
    kind: int
    domain: int
    inline: bool

    @property
    def end(self) -> float:
        return float("inf") if self.length is None else self.start + self.length

    @property
    def label(self) -> str:
        return f"dom{self.process}:{self.name}" if self.domain else self.name


@dataclass(frozen=True)
class Call:
    start: int
    process: int
    thread: int
    kernels: tuple[tuple[int, int, str], ...]
    copies: tuple[tuple[int, int], ...]
    known: bool


PROCESSES, THREADS = st.sampled_from([7] * 5 + [9]), st.sampled_from([7] * 5 + [8])
RANGES = st.lists(
    st.builds(
        Range,
        TIMES,
        st.none() | st.integers(0, 6),
        NAMES,
        PROCESSES,
        THREADS,
        st.sampled_from([59, 60, 70, 71]),
        st.sampled_from([0, 0, 1]),
        st.booleans(),
    ),
    min_size=2,
    max_size=12,
)
# Not from 0: where all starts of a table are that, the export lost them.
GPU_TIMES = st.tuples(st.integers(1, 90), st.integers(0, 30))
CALLS = st.lists(
    st.builds(
        Call,
        TIMES,
        PROCESSES,
        THREADS,
        st.lists(
            st.tuples(st.integers(0, 90), st.integers(0, 30), st.sampled_from("ab")),
            min_size=1,
            max_size=3,
        ).map(tuple),
        st.lists(GPU_TIMES, max_size=1).map(tuple),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=2,
    max_size=8,
)
PATTERNS = st.sampled_from([(), ("prefill", "decode"), ("pre.*",), ("dom7:.*",), ("nothing",)])


def open_ranges(call: Call, ranges: list[Range]) -> list[Range]:
    """The reference: all ranges of the thread that are open when the call starts."""
    here = [
        r
        for r in ranges
        if call.known
        and (r.process, r.thread) == (call.process, call.thread)
        and r.start <= call.start < r.end
    ]
    return sorted(here, key=lambda r: (r.start, -r.end))


def gpu_spans(call: Call) -> list[tuple[int, int]]:
    kernels = [(start, start + duration) for start, duration, _ in call.kernels]
    return kernels + [(start, start + duration) for start, duration in call.copies]


def stage_of(path: list[Range], patterns: tuple[str, ...]) -> Range | None:
    for r in path:
        if not patterns or any(
            re.fullmatch(p, text) for p in patterns for text in (r.name, r.label)
        ):
            return r
    return None


def inherited(
    call: Call, calls: list[Call], ranges: list[Range], patterns: tuple[str, ...]
) -> Range | None:
    """The stage of a call whose thread has no ranges: the latest of its process's one thread."""
    opened = {id(c): open_ranges(c, ranges) for c in calls}
    ranged = {(c.process, c.thread) for c in calls if opened[id(c)]}
    if not call.known or (call.process, call.thread) in ranged:
        return None
    stages = {
        (c.thread, ranges.index(stage))
        for c in calls
        if c.process == call.process and (stage := stage_of(opened[id(c)], patterns))
    }
    if len({thread for thread, _ in stages}) != 1:
        return None
    begun = [(ranges[i].start, i) for _, i in stages if ranges[i].start <= call.start]
    latest = ranges[max(begun)[1]] if begun else None
    return latest if latest and call.start < latest.end else None


def union(intervals: list[tuple[int, int]]) -> int:
    return len({t for start, end in intervals for t in range(start, end)})


@contextmanager
def small_parts() -> Iterator[None]:
    """Read and add up a few rows at a time, so that a small trace has many parts."""
    with ExitStack() as stack:
        for module in ("rows.calls", "sqlite.codes", "rows.ranges", "stages.work", "rows.timeline"):
            stack.enter_context(mock.patch(f"nsight_prof.parsers.nsys.{module}.STEP", 3))
        stack.enter_context(mock.patch("nsight_prof.parsers.nsys.sqlite.database.PART_BYTES", 1))
        stack.enter_context(mock.patch("nsight_prof.parsers.nsys.stages.paths._CALLS", 4))
        stack.enter_context(mock.patch("nsight_prof.parsers.nsys.sqlite.codes._SORTED", 3))
        yield


def write(export: Any, path: Path, calls: list[Call], ranges: list[Range]) -> None:
    for process in (7, 9):
        row = (0, None, 75, f"dom{process}", 1 << 48 | process << 24 | 7, None, None, 1)
        export.add("NVTX_EVENTS", *row)
    for r in ranges:
        end = None if r.length is None else r.start + r.length
        export.range(
            r.start,
            end,
            r.name,
            thread=r.thread,
            process=r.process,
            kind=r.kind,
            domain=r.domain,
            inline=r.inline,
        )
    for number, call in enumerate(calls, 1):
        for start, duration, name in call.kernels:
            export.kernel(start, duration, name, number, call.process)
        for start, duration in call.copies:
            export.add(
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                *(start, start + duration, number, 1 << 48 | call.process << 24, 8, 1),
            )
        if call.known:
            export.call(call.start, 1, number, call.process, call.thread)
    export.kernel(1000, 1, "last", 10_000)  # no trace without kernels
    export.write(path)


@dataclass
class Expected:
    """What the reference makes of calls: texts of each, facts of each stage, time in ranges."""

    launches: dict[int, list[tuple[str, str]]]
    stages: dict[str, dict[str, Any]]
    range_ns: int


def expected_of(calls: list[Call], ranges: list[Range], patterns: tuple[str, ...]) -> Expected:
    """Attribute call by call, by the definition of a stage alone."""
    told = Expected({}, {}, 0)
    for number, call in enumerate(calls, 1):
        opened = open_ranges(call, ranges)
        stage = stage_of(opened, patterns) or inherited(call, calls, ranges, patterns)
        text = "/".join(r.label for r in opened)
        told.launches[number] = [(text, stage.label if stage else "")] * len(call.kernels)
        kernel_ns = sum(duration for _, duration, _ in call.kernels)
        told.range_ns += kernel_ns * len({r.label for r in opened})
        if stage and (call.kernels or call.copies):
            facts = told.stages.setdefault(
                stage.label, {"kernel_ns": 0, "launches": 0, "memory_ns": 0, "on": [], "of": {}}
            )
            facts["kernel_ns"] += kernel_ns
            facts["launches"] += len(call.kernels)
            facts["memory_ns"] += sum(duration for _, duration in call.copies)
            spans = gpu_spans(call)
            facts["on"] += spans
            key = next(i for i, r in enumerate(ranges) if r is stage)
            facts["of"].setdefault(key, (stage, []))[1].extend(end for _, end in spans)
    return told


def instances_of(told: Expected) -> list[tuple[int, int, str]]:
    """First and last instant of each instance of a stage, with the stage's name."""
    return [
        (r.start, max([r.end if r.length is not None else r.start, *ends]), name)
        for name, facts in told.stages.items()
        for r, ends in facts["of"].values()
    ]


def hold_idle_time(table: Any, told: Expected, everything: list[tuple[int, int]]) -> None:
    """Hold idle time to instants at which nothing runs, counted one by one."""
    instances = instances_of(told)
    idle = dict.fromkeys(told.stages, 0)
    reached = 0
    for first, last, owner in sorted(instances):
        span = range(max(first, reached), last)
        idle[owner] += sum(not any(s <= t < e for s, e in everything) for t in span)
        reached = max(reached, last)
    assert table.drop("(all)")["idle_ns"].sum() == sum(idle.values())
    if len({i[:2] for i in instances}) == len(instances):  # else either of two may be the first
        assert table.drop("(all)")["idle_ns"].to_dict() == idle


# Shrinking a failure takes minutes, because each example is a file.
@settings(
    max_examples=settings().max_examples // 3, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(calls=CALLS, ranges=RANGES, patterns=PATTERNS)
def test_launches_and_stages_are_those_of_the_reference(
    new_export: Callable[[], Any],
    calls: list[Call],
    ranges: list[Range],
    patterns: tuple[str, ...],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.sqlite"
        write(new_export(), path, calls, ranges)
        with small_parts(), open_trace(path, patterns) as trace:
            launches, stages = trace.launches(), trace.stages()
            of_kernels, of_ranges = trace.stage_kernels(), trace.range_kernels()
            kernels = trace.kernels()
    told = expected_of(calls, ranges, patterns)
    found = launches[launches["correlation"] < 10_000].fillna({"correlation": 0})
    for correlation, group in found.groupby("correlation"):
        texts = group["nvtx_path"].astype(object).where(group["nvtx_path"].notna(), "")
        names = group["stage"].astype(object).where(group["stage"].notna(), "")
        assert list(zip(texts, names, strict=True)) == told.launches[int(str(correlation))]
    table = stages.set_index("stage")
    everything = [span for call in calls for span in gpu_spans(call)] + [(1000, 1001)]
    assert set(table.index) == {"(all)", *told.stages}
    for name, facts in told.stages.items():
        row = table.loc[name]
        for column in ("kernel_ns", "launches", "memory_ns"):
            assert row[column] == facts[column], column
        assert row["gpu_busy_ns"] == union(facts["on"])
        assert row["instances"] == len(facts["of"])
        assert row["wall_ns"] == row["gpu_busy_ns"] + row["idle_ns"]
    hold_idle_time(table, told, everything)
    sums = of_kernels.groupby("stage")["total_ns"].sum()
    for stage_name, total in sums.items():
        assert total == told.stages[str(stage_name)]["kernel_ns"]
    assert of_ranges["total_ns"].sum() == told.range_ns
    assert table.loc["(all)", "gpu_busy_ns"] == union(everything)
    assert kernels["calls"].sum() == len(launches) == sum(len(c.kernels) for c in calls) + 1
    named = {s for text in kernels["stage"] for s in text.split(", ") if s}
    assert named == set(of_kernels["stage"])


def test_a_thread_without_ranges_is_in_the_stage_of_the_one_thread_that_has_them(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export()
    export.range(0, 50, "forward")
    export.range(60, 200, "backward")
    export.call(10, 1, 1)
    export.kernel(20, 5, correlation=1)
    export.call(65, 1, 2)
    export.kernel(70, 5, correlation=2)
    for number, start in ((3, 55), (4, 100)):  # between the stages, and in the second
        export.call(start, 1, number, thread=8)
        export.kernel(start + 20, 30, correlation=number)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        launches = trace.launches().set_index("correlation")
        warnings = trace.warnings
    assert launches["stage"].astype(object).fillna("").to_dict() == {
        1: "forward",
        2: "backward",
        3: "",
        4: "backward",
    }
    assert launches["nvtx_path"].astype(object).fillna("")[4] == ""
    assert any(w.startswith("1 CUDA calls of threads that have no NVTX range") for w in warnings)


def test_ranges_of_nccl_are_no_stages_of_the_thread_of_the_backward_pass(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export()
    export.range(0, 0, "NCCL", kind=75, domain=1)
    export.range(60, 200, "backward")
    export.call(65, 1, 1)
    export.kernel(70, 5, correlation=1)
    export.range(90, 110, "ncclAllReduce", thread=8, domain=1)
    for number, start in ((2, 80), (3, 100)):
        export.call(start, 1, number, thread=8)
        export.kernel(start + 20, 10, correlation=number)
    with open_trace(export.write(tmp_path / "t.sqlite"), ["^backward$"]) as trace:
        launches = trace.launches()
    assert set(launches["stage"]) == {"backward"}


def test_no_stage_is_inherited_where_two_threads_have_stages(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export()
    for number, thread in ((1, 7), (2, 8)):
        export.range(0, 100, f"stage{thread}", thread=thread)
        export.call(10, 1, number, thread=thread)
        export.kernel(20, 5, correlation=number)
    export.call(30, 1, 3, thread=9)
    export.kernel(40, 5, correlation=3)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        launches = trace.launches().set_index("correlation")
    assert launches["stage"].isna().to_dict() == {1: False, 2: False, 3: True}


def test_a_stage_is_not_idle_while_the_gpu_still_works_for_the_one_before(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export()
    export.range(0, 20, "prefill")
    export.call(10, 5, 1)
    export.kernel(30, 70, correlation=1)  # runs on while decode is issued
    export.range(20, 150, "decode")
    export.call(25, 5, 2)
    export.kernel(110, 20, correlation=2)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        table = trace.stages().set_index("stage")
    assert table["gpu_busy_ns"].to_dict() == {"(all)": 90, "prefill": 70, "decode": 20}
    # decode: 100 to 110 between the two kernels, 130 to 150 at its end
    assert table["idle_ns"].to_dict() == {"(all)": 10, "prefill": 30, "decode": 30}
    assert table.loc["decode", "wall_ns"] == 50


@pytest.mark.parametrize("depth", [3, 300])
def test_deep_nesting_and_many_launches_are_attributed_in_blocks(
    new_export: Callable[[], Any], tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsight_prof.parsers.nsys.stages.paths._CALLS", 64)
    monkeypatch.setattr("nsight_prof.parsers.nsys.stages.paths._PAIRS", 1000)
    monkeypatch.setattr("nsight_prof.parsers.nsys.sqlite.database.PART_BYTES", 1)
    export = new_export()
    for level in range(depth):
        export.range(level, 10_000 - level, f"r{level % 5}")
    for number in range(1, 400):
        export.call(1000 + number, 1, number)
        export.kernel(2000 + number, 1, correlation=number)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        launches, stages = trace.launches(), trace.stages()
    assert set(launches["nvtx_path"]) == {"/".join(f"r{level % 5}" for level in range(depth))}
    assert launches["correlation"].tolist() == list(range(1, 400))
    assert stages["launches"].tolist() == [399, 399]
    assert stages["instances"].tolist() == [1, 1]


def test_kernels_of_one_graph_launch_belong_to_its_call(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    export = new_export()
    export.range(0, 100, "decode")
    export.call(10, 5, 3, name="cudaGraphLaunch_v10000")
    for number, node in enumerate((21474836481, 21474836482)):
        export.kernel(50 + number, 1, f"k{number}", correlation=3, node=node)
    export.kernel(90, 1, correlation=4)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        launches = trace.launches()
    assert launches["graph_node"].tolist() == [21474836481, 21474836482, pd.NA]
    assert launches["stage"].tolist()[:2] == ["decode", "decode"]
    assert launches["stage"].isna().tolist() == [False, False, True]
