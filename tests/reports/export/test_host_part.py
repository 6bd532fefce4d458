"""Whatever ranges, marks and calls a program makes, the host's part is whole and fits."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nsight_prof.parsers.nsys.events import HostEvents
from nsight_prof.parsers.nsys.rows.calls import ApiCalls, call_key
from nsight_prof.parsers.nsys.rows.nvtx import NvtxEvents
from nsight_prof.parsers.nsys.rows.threads import Thread
from nsight_prof.parsers.nsys.sqlite.schema import OPEN_END
from nsight_prof.reports.export.event_text import Tracks
from nsight_prof.reports.export.host_part import place_host

PUSH_POP, START_END, MARK = range(3)
THREADS = [Thread(7, 7, "main"), Thread(7, 8, ""), Thread(9, 8, "of another process")]
TIME, LENGTH, THREAD = st.integers(-50, 200), st.integers(0, 60), st.integers(0, 2)
NAMES = st.text(min_size=1, max_size=12)
RANGES = st.lists(
    st.tuples(TIME, st.one_of(st.none(), LENGTH), THREAD, NAMES, st.integers(0, 2)), max_size=25
)
CALLS = st.lists(st.tuples(TIME, LENGTH, THREAD, NAMES), max_size=25)
END = 300


def host(ranges: list[Any], calls: list[Any]) -> HostEvents:
    def column(values: Any) -> Any:
        return np.array(list(values), np.int64)

    pids = column(THREADS[c[2]].pid for c in calls)
    key, start, duration, thread = call_key(pids, column(range(len(calls)))), 0, 1, 2
    called = ApiCalls(
        column(c[start] for c in calls), column(c[duration] for c in calls),
        column(c[thread] for c in calls), column(range(len(calls))), key, [c[3] for c in calls],
    )  # fmt: skip
    nvtx = NvtxEvents(
        column(r[0] for r in ranges),
        column(OPEN_END if r[1] is None else r[0] + r[1] for r in ranges),
        column(r[2] for r in ranges), column(range(len(ranges))), column(r[4] for r in ranges),
        np.zeros(len(ranges), bool), [("", r[3]) for r in ranges],
    )  # fmt: skip
    return HostEvents(called, nvtx, THREADS, {7: 'a "quoted" program'})


def events_of(ranges: list[Any], calls: list[Any], origin: int) -> list[dict[str, Any]]:
    tracks = Tracks()
    part = place_host(host(ranges, calls), tracks, END)
    return [json.loads(event) for event in [*tracks.metadata(), *part.events(origin)]]


@pytest.fixture(scope="module")
def schema(root: Path) -> Draft202012Validator:
    text = (root / "tests" / "fixtures" / "trace_event.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


@given(RANGES, CALLS)
def test_every_event_is_there_with_its_time(ranges: list[Any], calls: list[Any]) -> None:
    events = events_of(ranges, calls, -50)
    found = Counter(
        (e["ph"], round(e["ts"] * 1000) - 50, e["name"]) for e in events if e["ph"] in "Xib"
    )
    phases = {PUSH_POP: "X", START_END: "b", MARK: "i"}
    expected = Counter((phases[r[4]], r[0], r[3]) for r in ranges)
    assert found == expected + Counter(("X", c[0], c[3]) for c in calls)


@given(RANGES, CALLS)
def test_it_fits_the_format(
    schema: Draft202012Validator, ranges: list[Any], calls: list[Any]
) -> None:
    schema.validate({"traceEvents": events_of(ranges, calls, -50)})


@given(RANGES, CALLS)
def test_events_of_a_track_nest(ranges: list[Any], calls: list[Any]) -> None:
    tracks: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for e in events_of(ranges, calls, -50):
        if e["ph"] == "X":
            start, length = round(e["ts"] * 1000), round(e["dur"] * 1000)
            tracks[e["tid"]].append((start, start + length))
    for members in tracks.values():
        open_until: list[int] = []
        for start, end in sorted(members, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


@given(RANGES)
def test_start_end_ranges_end_after_they_begin(ranges: list[Any]) -> None:
    ids: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for e in events_of(ranges, [], -50):
        if e["ph"] in "be":
            ids[e["id"]].append((e["ph"], e["ts"]))
    for pair in ids.values():
        (first, begin), (second, end) = pair
        assert (first, second) == ("b", "e")
        assert begin <= end


def test_a_range_that_was_not_closed_lasts_to_the_end_and_says_so() -> None:
    (event,) = [e for e in events_of([(10, None, 0, "open", PUSH_POP)], [], 0) if e["ph"] == "X"]
    assert event["args"] == {"not_closed": True}
    assert event["dur"] == pytest.approx((END - 10) / 1000)


def test_a_thread_keeps_its_id_once() -> None:
    calls = [(0, 1, thread, "cudaMalloc") for thread in range(3)]
    events = events_of([], calls, 0)
    ids = [(e["pid"], e["tid"]) for e in events if e["ph"] == "X"]
    assert ids[:2] == [(7, 7), (7, 8)]
    assert ids[2][0] == 9
    assert ids[2][1] not in (7, 8)
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"}
    assert names == {(7, 'a "quoted" program'), (9, "process")}
