"""Table `host_ranges`: levels of nesting, ranges that were not closed, bins of long levels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsight_prof.parsers.nsys.trace import open_trace

COLUMNS = ["tid", "depth", "nvtx_range", "start_ns", "duration_ns", "busy_ns", "ranges", "bin_ns"]


def rows(export: Any, path: Path) -> list[tuple[Any, ...]]:
    with open_trace(export.write(path / "t.sqlite")) as trace:
        frame = trace.host_ranges()
        assert len(trace.launches()) == 1  # what needs the ranges is read after them, too
    assert set(frame["pid"]) == {7}
    return [tuple(row) for row in frame[COLUMNS].astype(object).to_numpy().tolist()]


def test_ranges_stand_at_their_depth_and_marks_do_not(export: Any, tmp_path: Path) -> None:
    export.call(start=70, duration=30, correlation=9, process=7, thread=8)
    export.range(20, 30, "inner")
    export.range(20, 40, "outer")
    export.range(60, None, "open")
    export.range(62, None, "now", kind=34)
    export.range(63, 90, "elsewhere", kind=60, end_thread=9)
    assert rows(export, tmp_path) == [
        (7, 0, "step", 5, 45, 45, 1, 0),
        (7, 0, "open", 60, 40, 40, 1, 0),
        (7, 1, "outer", 20, 20, 20, 1, 0),
        (7, 2, "inner", 20, 10, 10, 1, 0),
    ]


def test_many_ranges_of_a_level_are_added_up(export: Any, tmp_path: Path) -> None:
    for at in range(1000, 2000, 10):
        export.range(at, at + 4, "short")
    with mock.patch("nsight_prof.parsers.nsys.host_ranges.MOST_SEGMENTS", 20):
        found = rows(export, tmp_path)
    short = [row for row in found if row[2] == "short"]
    assert len(found) <= 20
    assert (sum(row[5] for row in short), sum(row[6] for row in short)) == (400, 100)
    assert {row[7] for row in found} == {found[0][7]} != {0}


def test_a_part_of_the_events_without_ranges_is_read(
    new_export: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsight_prof.parsers.nsys.sqlite.database.PART_BYTES", 1)
    for types in ([59, 35], [35, 59], [35]):  # an event of type 35 is no range
        export = new_export()
        for kind in types:
            for at in range(40):
                export.range(10 + at, 50, f"{kind}", kind=kind, inline=True)
        export.call(start=15, duration=5)
        export.kernel(20, 5)
        with open_trace(export.write(tmp_path / f"{types}.sqlite")) as trace:
            assert set(trace.host_ranges()["nvtx_range"]) == {"59"} & set(map(str, types))
