"""Gaps and their causes against a plain reference, and on real exports."""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.stages.idle_gaps import LONG_GAP_NS
from nsight_prof.parsers.nsys.trace import open_trace

US = 1000
SYNC, LAUNCH = "cudaStreamSynchronize", "cudaLaunchKernel"


@dataclass(frozen=True)
class Call:
    """A CUDA call of the only thread, `pause` us after the one before; `gpu` delay and length."""

    pause: int
    length: int
    gpu: tuple[int, int] | None


@dataclass(frozen=True)
class Timed:
    start: int
    end: int
    gpu: tuple[int, int] | None
    stage: tuple[str, int, int] | None


CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from([0, 1, 3, 40, 150]),
        st.integers(1, 60),
        st.none() | st.tuples(st.integers(0, 120), st.integers(1, 80)),
    ),
    min_size=1,
    max_size=10,
)


def timed(calls: Sequence[Call], stages: int) -> list[Timed]:
    """Place the calls in time, in rows of `stages` calls a stage; 0 for none."""
    spans, at = [], 10
    for call in calls:
        spans.append((at + call.pause, at + call.pause + call.length))
        at = spans[-1][1]
    made = []
    for number, (call, (start, end)) in enumerate(zip(calls, spans, strict=True)):
        stage = None
        if stages:
            row = number // stages
            last = min(len(spans), (row + 1) * stages) - 1
            stage = (f"s{row}", spans[row * stages][0] - 1, spans[last][1])
        gpu = (start + call.gpu[0], start + call.gpu[0] + call.gpu[1]) if call.gpu else None
        made.append(Timed(start, end, gpu, stage))
    return made


def cause(gap: tuple[int, int], ending: Timed, calls: list[Timed]) -> tuple[str, str]:
    """Whose a gap is, and the call that waited for the GPU before it."""
    if ending.end <= gap[0]:
        return "queued", ""
    waits = [c for c in calls if c.gpu is None and c.start <= gap[0] <= c.end <= ending.start]
    waited = SYNC if waits else ""
    if (gap[1] - gap[0]) * US >= LONG_GAP_NS:
        return "host", waited
    return ("synchronisation" if waits else "launches"), waited


def reference(calls: list[Timed]) -> Counter[tuple[str, str, str, str]]:
    """Look at each microsecond: its stage, and whether the call that ends the gap had begun."""
    work = sorted((c for c in calls if c.gpu), key=lambda c: c.gpu or (0, 0))
    found: Counter[tuple[str, str, str, str]] = Counter()
    reached = work[0].gpu[1] if work and work[0].gpu else 0
    for before, ending in zip(work, work[1:], strict=False):
        assert ending.gpu is not None
        gap = (reached, ending.gpu[0])
        keys = set()
        for t in range(*gap):
            stage = ""
            if ending.stage and t >= ending.stage[1]:
                stage = ending.stage[0]
            elif before.stage and before.stage != ending.stage and t < before.stage[2]:
                stage = before.stage[0]
            key = (stage, *cause(gap, ending, calls))
            keys.add(key)
            found[(*key, "idle_ns")] += US
            found[(*key, "before_call_ns")] += US * (t < ending.start)
            found[(*key, "in_call_ns")] += US * (ending.start <= t < ending.end)
        for key in keys:
            found[(*key, "gaps")] += 1
            found[(*key, "late_calls")] += ending.start >= gap[0]
        reached = max(reached, ending.gpu[1])
    return found


A_WAIT_ENDS_AS_A_LONG_LAUNCH_BEGINS = [
    Call(3, 56, (14, 59)),
    Call(150, 60, (57, 29)),
    Call(0, 24, (10, 71)),
    Call(40, 17, None),
    Call(0, 51, (102, 15)),
    Call(150, 57, (55, 50)),
    Call(3, 27, None),
    Call(40, 26, (42, 9)),
]


@settings(
    max_examples=settings().max_examples // 2, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@example(calls=A_WAIT_ENDS_AS_A_LONG_LAUNCH_BEGINS, stages=0)
@given(calls=CALLS, stages=st.integers(0, 3))
def test_gaps_are_those_of_the_reference(
    new_export: Callable[[], Any], calls: list[Call], stages: int
) -> None:
    rows = timed(calls, stages)
    starts = [row.gpu[0] for row in rows if row.gpu]
    if len(starts) != len(set(starts)) or not starts:
        return  # which of two operations ends a gap is then no matter of fact
    export = new_export()
    for number, row in enumerate(rows, 1):
        name = f"{LAUNCH}_v7000" if row.gpu else f"{SYNC}_v3020"
        export.call(row.start * US, (row.end - row.start) * US, number, name=name)
        if row.gpu:
            export.kernel(row.gpu[0] * US, (row.gpu[1] - row.gpu[0]) * US, "k", number)
    for name, start, end in sorted({row.stage for row in rows if row.stage}):
        export.range(start * US, end * US, name)
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "trace.sqlite")
        with open_trace(path) as trace:
            table = trace.idle_gaps()
    found: Counter[tuple[str, str, str, str]] = Counter()
    for told in table.to_dict("records"):
        for column in ("idle_ns", "before_call_ns", "in_call_ns", "gaps", "late_calls"):
            found[told["stage"], told["cause"], told["waited"], column] += told[column]
    assert found == reference(rows)


def test_a_long_call_and_the_range_of_the_next_launch_are_named(
    export: Any, tmp_path: Path
) -> None:
    export.rows.clear()
    export.range(0, 600 * US, "step")
    export.range(30 * US, 395 * US, "read file")
    export.range(400 * US, 590 * US, "layer 17")
    export.call(1 * US, 5 * US, 1)
    export.kernel(10 * US, 10 * US, "a", 1)
    export.call(40 * US, 350 * US, 2, name="cudaMalloc_v3020")
    export.call(410 * US, 5 * US, 3)
    export.kernel(420 * US, 10 * US, "b", 3)
    with open_trace(export.write(tmp_path / "t.sqlite"), ["^step$"]) as trace:
        (row,) = trace.idle_gaps().to_dict("records")
    assert (row["cause"], row["call"], row["nvtx_range"]) == ("host", "cudaMalloc", "layer 17")
    assert row["host_range"] == "read file"
    assert (row["gaps"], row["idle_ns"], row["longest_ns"]) == (1, 400 * US, 400 * US)
    assert (row["stage"], row["waited"]) == ("step", "")
    assert (row["late_calls"], row["before_call_ns"]) == (1, 390 * US)
    assert row["in_call_ns"] == 5 * US


def test_calls_that_fill_a_gap_together_are_named_by_the_longest(
    export: Any, tmp_path: Path
) -> None:
    """As cudaFree and cudaMalloc in turn; what only waits for the GPU is none of them."""
    export.rows.clear()
    export.call(1 * US, 5 * US, 1)
    export.kernel(10 * US, 10 * US, "a", 1)
    for start, lasts, name in ((30, 90, "cudaFree"), (130, 100, "cudaMalloc"), (240, 60, SYNC)):
        export.call(start * US, lasts * US, start, name=f"{name}_v3020")
    for number, start in ((2, 310), (3, 900)):
        export.call(start * US, 5 * US, number)
        export.kernel((start + 10) * US, 10 * US, "b", number)
    export.call(400 * US, 100 * US, 4, name="cudaFree_v3020")  # too little of the last gap
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        rows = {row["call"]: row["idle_ns"] for row in trace.idle_gaps().to_dict("records")}
    assert rows == {"cudaMalloc": 300 * US, "": 580 * US}


def test_a_gap_whose_call_is_not_in_the_trace_has_no_cause(export: Any, tmp_path: Path) -> None:
    export.kernel(500, 10, "k", 999)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        (row,) = trace.idle_gaps().to_dict("records")
    assert row["cause"] == "unknown"
    assert all(pd.isna(row[name]) for name in ("late_calls", "before_call_ns", "in_call_ns"))


REAL = ("zx3xyy+assignment2-systems/result", "hpcgroup+pipit/perlmutter-cloverleaf-cuda",
        "brycelelbach+ncu2markdown/power_iteration__baseline")  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_the_gaps_of_real_exports_are_all_of_their_idle_time(real_exports: Path, name: str) -> None:
    with open_trace(real_exports / "nsys" / f"{name}.sqlite") as trace:
        gaps, stages = trace.idle_gaps(), trace.stages()
    assert gaps["idle_ns"].sum() == stages["idle_ns"].iloc[0]
    assert (gaps["longest_ns"] <= gaps["idle_ns"]).all()
    assert "unknown" not in set(gaps["cause"])
