"""Rows and tree of recorded runs against plain SQL on the files of nsys."""

import lzma
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.measure import ARITHMETIC
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.page.figure_models import COPIES as COPIES_SHOWN
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.kernel_rows import kernel_rows
from nsight_prof.reports.profile.overview import overview
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.trace_view import models, tracks
from nsight_prof.reports.trace_view.histograms import duration_histograms, roof_histogram
from nsight_prof.reports.trace_view.models import IDLE_NODE, KERNEL, Items, Node, Work
from nsight_prof.reports.trace_view.page import trace_parts
from nsight_prof.reports.trace_view.tracks import gaps_of, kernel_items
from nsight_prof.reports.trace_view.tree import tree_of

NAMES = ("h200-top-kernels", "h200-vllm-kernels", "h200-data-parallel")
COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
said = Writer().value


@dataclass
class Recorded:
    """A recorded run with its rows, and the database of its trace."""

    run: Run
    work: Work
    rows: tuple[models.Row, ...]
    items: Items
    tree: Node
    db: sqlite3.Connection

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()


@pytest.fixture(scope="module", params=NAMES)
def recorded(
    request: pytest.FixtureRequest,
    recorded_run_of: Callable[[str], Run],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Recorded]:
    run = recorded_run_of(request.param)
    packed = run.directory.artifact("trace", "trace.sqlite")
    assert packed is not None
    plain = tmp_path_factory.mktemp("recorded") / "trace.sqlite"
    plain.write_bytes(lzma.decompress(packed.read_bytes()))
    events, missing = tracks.read_trace(run)
    work = tracks.read_work(run, events)
    assert events is not None
    assert not missing
    assert work is not None
    items = Items()
    numbers = {kernel: n for n, kernel in enumerate(run.kernels["kernel_id"], 1)}
    kernels, gaps = kernel_items(run, numbers, work), gaps_of(work)
    rows = tracks.rows_of(run, kernels, items, work, gaps, events)
    tree = tree_of(work, gaps, kernels)
    db = sqlite3.connect(plain)
    yield Recorded(run, work, rows, items, tree, db)
    db.close()


def present(db: sqlite3.Connection, names: tuple[str, ...]) -> list[str]:
    found = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    return [name for name in names if name in found]


def operations(one: Recorded) -> str:
    tables = present(one.db, ("CUPTI_ACTIVITY_KIND_KERNEL", *COPIES))
    return " UNION ALL ".join(f"SELECT deviceId, streamId, start, end FROM {t}" for t in tables)


def busy(rows: list[models.Row]) -> int:
    return sum(int(row.segments.busy.sum()) for row in rows)


def test_copies_are_those_of_the_export(recorded: Recorded) -> None:
    events, _ = tracks.read_trace(recorded.run)
    found = tracks.copies_and_graphs(recorded.run, events)
    for gpu, beside in found.items():
        starts, ends = beside[COPIES_SHOWN]
        rows = [
            row
            for table in present(recorded.db, COPIES)
            for row in recorded.sql(f"SELECT start, end FROM {table} WHERE deviceId = {gpu}")
        ]
        assert sorted(zip(starts.tolist(), ends.tolist(), strict=True)) == sorted(rows)
    assert tracks.copies_and_graphs(recorded.run, None) == {}


def test_a_histogram_has_every_launch_of_a_kernel_whose_launches_differ(recorded: Recorded) -> None:
    kernels = kernel_rows(recorded.run)
    found = duration_histograms(recorded.run, kernels)
    launches = recorded.run.launches.groupby("kernel_id")["duration_ns"]
    for kernel in kernels:
        low, high = launches.get_group(kernel.kernel_id).quantile([0.05, 0.95])
        differ = (kernel.calls or 0) >= 20 and high > 1.2 * low
        assert (kernel.number in found) == differ
        if differ:
            counted = re.findall(r"<title>([\d,]+) launches of", found[kernel.number].html())
            assert sum(int(one.replace(",", "")) for one in counted) == kernel.calls


def test_the_time_by_roof_is_all_time_with_a_roof(view: ReportView) -> None:
    known = [(k.roof_share, k.share) for k in view.kernels if k.roof_share is not None]
    found = roof_histogram(view)
    assert found is not None
    near = found.caption.values["near"]
    assert isinstance(near, Number)
    wanted = sum(share or 0.0 for reached, share in known if reached >= 0.8)
    assert near.value == pytest.approx(wanted)


def test_the_strip_shows_copies_where_no_kernel_runs(recorded: Recorded, view: ReportView) -> None:
    alone = overview(recorded.run, view, {}).lanes[0]
    assert COPIES_SHOWN not in alone.busy
    launches = recorded.run.launches
    begin = launches["start_ns"].min()
    end = (launches["start_ns"] + launches["duration_ns"]).max()
    all_of_it = {0: {COPIES_SHOWN: (np.array([begin]), np.array([end]))}}
    lane = overview(recorded.run, view, all_of_it).lanes[0]
    assert sum(lane.busy.values()) == pytest.approx(1.0)
    assert all(lane.busy[kind] == pytest.approx(part) for kind, part in alone.busy.items())


def test_the_clock_is_that_of_launches_that_arithmetic_limits(
    recorded: Recorded, view: ReportView
) -> None:
    shown = overview(recorded.run, view, {})
    told = np.array([hz for hz in shown.clock_hz if not np.isnan(hz)])
    bounds = set(recorded.run.counters["bound_by"])
    assert (len(told) > 0) == bool(bounds & set(ARITHMETIC))
    assert shown.top_hz == recorded.run.gpus["clock_hz"].max()
    assert ((told > 0) & (told <= shown.top_hz)).all()


def test_streams_have_the_time_of_the_trace(recorded: Recorded) -> None:
    sums = recorded.sql(
        f"SELECT deviceId, streamId, sum(end - start), count(*) FROM ({operations(recorded)}) "
        "GROUP BY deviceId, streamId"
    )
    streams = [row for row in recorded.rows if row.kind == models.KERNELS]
    for device, stream, time, count in sums:
        own = [
            row
            for row in streams
            if said(row.group).startswith(f"GPU {device}")
            and said(row.name).split(",")[0] == f"stream {stream}"
        ]
        assert busy(own) == time
        assert sum(len(row.segments) for row in own) == count
    assert busy(streams) == sum(time for _, _, time, _ in sums)


def test_idle_time_is_that_between_the_operations(recorded: Recorded) -> None:
    for device, idle in recorded.sql(
        "SELECT deviceId, sum(max(start - reached, 0)) FROM (SELECT deviceId, start, max(end) OVER "
        "(PARTITION BY deviceId ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 "
        f"PRECEDING) AS reached FROM ({operations(recorded)})) WHERE reached IS NOT NULL "
        "GROUP BY deviceId"
    ):
        own = [row for row in recorded.rows if row.kind == models.IDLE]
        assert busy([row for row in own if said(row.group).startswith(f"GPU {device}")]) == idle


def test_ranges_have_the_time_of_the_trace(recorded: Recorded) -> None:
    ((time,),) = recorded.sql(
        "SELECT sum(end - start) FROM NVTX_EVENTS WHERE eventType = 59 AND end IS NOT NULL"
    )
    ranges = [row for row in recorded.rows if row.kind == models.RANGES]
    assert busy(ranges) == time
    for row in ranges:
        end = row.segments.start + row.segments.duration
        # A row has one depth, and ranges of one depth are apart.
        assert (row.segments.start[1:] >= end[:-1]).all()


def test_calls_are_those_of_the_trace(recorded: Recorded) -> None:
    ((count,),) = recorded.sql("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    calls = [row for row in recorded.rows if row.kind == models.CALLS]
    assert sum(len(row.segments) for row in calls) == count


def test_the_tree_adds_up_to_the_trace(recorded: Recorded) -> None:
    ((time,),) = recorded.sql(f"SELECT sum(end - start) FROM ({operations(recorded)})")
    ((count,),) = recorded.sql("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    tree = recorded.tree
    assert (tree.busy_ns, tree.launches) == (time, count)
    idle = [row for row in recorded.rows if row.kind == models.IDLE]
    assert tree.idle_ns == busy(idle)
    for node in walk(tree):
        if node.children:
            assert node.busy_ns == sum(child.busy_ns for child in node.children)
            assert node.idle_ns == sum(child.idle_ns for child in node.children)
            assert node.launches == sum(child.launches for child in node.children)
        is_copy = said(node.name).startswith(("copy", "memset"))
        assert node.kind != KERNEL or node.launches or is_copy


def test_outermost_ranges_have_the_kernels_that_were_launched_in_them(recorded: Recorded) -> None:
    found = dict(
        (name, (count, time))
        for name, count, time in recorded.sql(
            "SELECT coalesce(n.text, s.value), count(*), sum(k.end - k.start) "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24 "
            "JOIN NVTX_EVENTS n ON n.eventType = 59 AND n.globalTid = r.globalTid "
            "AND r.start BETWEEN n.start AND n.end LEFT JOIN StringIds s ON s.id = n.textId "
            "WHERE NOT EXISTS (SELECT 1 FROM NVTX_EVENTS o WHERE o.eventType = 59 "
            "AND o.globalTid = n.globalTid AND o.start < n.start AND o.end > n.end) GROUP BY 1"
        )
    )
    ranges = [node for node in recorded.tree.children if node.kind == "range"]
    assert ranges
    for node in ranges:
        name = said(node.name).removeprefix("NCCL:")
        launches = sum(n.launches for n in leaves(node))
        kernels = sum(n.busy_ns for n in leaves(node))
        assert (launches, kernels) == found[name]


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def leaves(node: Node) -> Iterator[Node]:
    return (one for one in walk(node) if not one.children and one.kind != IDLE_NODE)


def test_items_name_kernels_with_their_colour_number_and_grid(recorded: Recorded) -> None:
    first = recorded.run.kernels.iloc[0]
    own = [item for item in recorded.items.all if item.kernel == 1]
    assert own
    for item in own:
        assert item.name == first["short_name"]
        assert [*map(said, item.facts)] == [f"grid {first['grid']}, block {first['block']}"]


def test_without_the_trace_there_are_launches_alone(recorded: Recorded) -> None:
    work = tracks.read_work(recorded.run, None)
    assert work is not None
    given = kernel_items(recorded.run, {}, work)
    rows = tracks.rows_of(recorded.run, given, Items(), work, gaps_of(work), None)
    kinds = {row.kind for row in rows}
    assert models.KERNELS in kinds
    assert not kinds & {models.RANGES, models.CALLS}
    kernels = [row for row in rows if row.kind == models.KERNELS]
    assert busy(kernels) == recorded.run.kernels["total_ns"].sum()


def test_a_run_says_why_its_trace_is_not_shown(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracks, "MOST_HOST_LAUNCHES", 10)
    assert tracks.read_trace(recorded.run) == (
        None,
        Text("the trace has over {n} launches", n=10),
    )
    timeline, _ = trace_parts(recorded.run, {})
    assert "not shown: the trace has over 10 launches" in timeline.svg()
    assert "CUDA calls</text>" not in timeline.svg()
