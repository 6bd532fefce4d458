"""The timeline of real traces: fits the format, and says what the export says, event by event."""

import gzip
import json
import lzma
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.export.trace_file import export_trace

TRACES = {
    "decoder": "captures/h200-top-kernels/steps/1-trace/trace.sqlite.xz",
    "graphs": "tests/fixtures/vllm_nsys/graphs.sqlite.xz",
    "layers": "tests/fixtures/vllm_nsys/layers.sqlite.xz",
    "spawned": "tests/fixtures/vllm_nsys/spawned.sqlite.xz",
}
Event = dict[str, Any]
Timeline = tuple[list[Event], Path]


@pytest.fixture(scope="module", params=TRACES)
def timeline(
    request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Timeline:
    """Events of a real trace, and its plain export."""
    folder = tmp_path_factory.mktemp(request.param)
    plain = folder / "plain.sqlite"
    plain.write_bytes(lzma.decompress((root / TRACES[request.param]).read_bytes()))
    run = load_run(import_files([plain], folder / "run").path)
    export_trace(run, folder / "timeline.json")
    return events_of(folder / "timeline.json"), plain


def events_of(path: Path) -> list[Event]:
    events: list[Event] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def rows(path: Path, query: str) -> list[Any]:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


def nanoseconds(value: float) -> int:
    return round(value * 1000)


def ordered(events: list[Event], *phases: str) -> list[Event]:
    """By time, and by their place in the file where that is the same: as Perfetto sorts them."""
    return sorted((e for e in events if e["ph"] in phases), key=lambda e: nanoseconds(e["ts"]))


def spans(events: list[Event], category: str) -> Counter[tuple[int, int]]:
    return Counter(
        (nanoseconds(e["ts"]), nanoseconds(e["dur"]))
        for e in events
        if e["ph"] == "X" and e["cat"] == category
    )


def test_it_fits_the_format(timeline: Timeline, root: Path) -> None:
    schema = json.loads((root / "tests" / "fixtures" / "trace_event.schema.json").read_text())
    validator = Draft202012Validator(schema)
    events, _ = timeline
    phases: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        phases[event["ph"]].append(event)
    for kind in phases.values():  # each phase, without the minutes that all events would take
        part = [*kind[:200], *kind[-200:]]
        validator.validate({"displayTimeUnit": "ms", "traceEvents": part})


def test_every_field_is_of_its_phase(timeline: Timeline) -> None:
    of_phase = {"X": {"dur", "cat"}, "s": {"id", "cat"}, "f": {"id", "cat", "bp"}, "M": {"args"}}
    for event in timeline[0]:
        expected = {"ph", "ts", "pid", "tid", "name"} | of_phase.get(event["ph"], {"cat"})
        assert expected <= set(event)
        assert list(event)[:2] == ["ph", "ts"]


def test_events_of_a_track_nest(timeline: Timeline) -> None:
    open_until: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in ordered(timeline[0], "X"):
        ends = open_until[event["pid"], event["tid"]]
        start = nanoseconds(event["ts"])
        end = start + nanoseconds(event["dur"])
        while ends and ends[-1] <= start:
            ends.pop()
        assert not ends or end <= ends[-1], event
        ends.append(end)


def test_nothing_overlaps_on_a_stream(timeline: Timeline) -> None:
    reached: dict[tuple[int, int], int] = {}
    for event in ordered(timeline[0], "X"):
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            track, start = (event["pid"], event["tid"]), nanoseconds(event["ts"])
            assert reached.get(track, 0) <= start
            reached[track] = start + nanoseconds(event["dur"])


def test_kernels_copies_and_memsets_are_those_of_the_export(timeline: Timeline) -> None:
    events, plain = timeline
    tables = {name for (name,) in rows(plain, "SELECT name FROM sqlite_master")}
    for category, table in (
        ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL"),
        ("gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY"),
        ("gpu_memset", "CUPTI_ACTIVITY_KIND_MEMSET"),
        ("cuda_api", "CUPTI_ACTIVITY_KIND_RUNTIME"),
    ):
        found = rows(plain, f"SELECT start, end - start FROM {table}") if table in tables else []
        assert spans(events, category) == Counter(found), category


def test_ranges_are_those_of_the_export(timeline: Timeline) -> None:
    events, plain = timeline
    found = rows(
        plain,
        "SELECT start, end - start FROM NVTX_EVENTS WHERE eventType = 59 AND end IS NOT NULL",
    )
    closed = [e for e in events if not e.get("args", {}).get("not_closed")]
    assert spans(closed, "nvtx") == Counter(found)


def test_threads_are_those_of_the_export(timeline: Timeline) -> None:
    events, plain = timeline
    query = (
        "SELECT (globalTid >> 24) & 16777215, globalTid & 16777215, start "
        "FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    )
    ours = Counter(
        (e["pid"], e["tid"], nanoseconds(e["ts"])) for e in events if e.get("cat") == "cuda_api"
    )
    assert ours == Counter(rows(plain, query))


def test_an_arrow_leads_from_the_call_to_its_work(timeline: Timeline) -> None:
    """A viewer binds an arrow's end to the innermost event that is open on its track."""
    events, plain = timeline
    ends: dict[tuple[int, str], Event] = {}
    latest: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in ordered(events, "X", "s", "f"):
        track = latest[event["pid"], event["tid"]]
        if event["ph"] == "X":
            track.append(event)
        else:
            assert (event["id"], event["ph"]) not in ends
            ends[event["id"], event["ph"]] = track[-1]
    started = {number for number, phase in ends if phase == "s"}
    assert started == {number for number, phase in ends if phase == "f"}
    for number in started:
        call, work = ends[number, "s"], ends[number, "f"]
        assert call["cat"] == "cuda_api"
        assert work["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        assert call["args"]["correlation"] == work["args"]["correlation"]
    launched = rows(
        plain,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE EXISTS (SELECT 1 FROM "
        "CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = k.correlationId "
        "AND r.globalTid >> 24 = k.globalPid >> 24 AND r.start <= k.start)",
    )
    assert sum(ends[number, "f"]["cat"] == "kernel" for number in started) == launched[0][0]


def test_every_track_has_a_name_of_its_own(timeline: Timeline) -> None:
    events, _ = timeline
    named = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"}
    assert len(named) == len(set(named))
    assert used <= set(named)
    assert len({tid for _, tid in named}) == len(named)
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    assert {pid for pid, _ in used} == processes
    gpus = {e["pid"] for e in events if e.get("cat") == "kernel"}
    assert not gpus & {e["pid"] for e in events if e.get("cat") == "cuda_api"}


@pytest.fixture(scope="module")
def recorded(recorded_run_of: Callable[[str], Run]) -> Run:
    return recorded_run_of("h200-top-kernels")


def test_a_kernel_tells_stage_shape_and_bound(recorded: Run, tmp_path: Path) -> None:
    run = recorded
    export_trace(run, tmp_path / "t.json.gz")
    with gzip.open(tmp_path / "t.json.gz", "rt", encoding="utf-8") as stream:
        events = json.load(stream)["traceEvents"]
    kernels = [e["args"] for e in events if e.get("cat") == "kernel"]
    launches = run.launches
    assert Counter(a["kernel_id"] for a in kernels) == Counter(launches["kernel_id"].astype(str))
    assert Counter(a.get("stage") for a in kernels) == Counter(
        launches["stage"].astype(object).where(launches["stage"].notna(), None)
    )
    bounds = run.counters.dropna(subset=["bound_by"])
    assert {a["kernel_id"] for a in kernels if "bound_by" in a} == set(bounds["kernel_id"])
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} >= {
        "GPU 0: NVIDIA H200"
    }


def test_the_same_run_gives_the_same_bytes(recorded: Run, tmp_path: Path) -> None:
    run = recorded
    for name in ("a.json.gz", "b.json.gz"):
        export_trace(run, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_without_the_trace_there_are_kernels_alone(recorded: Run, tmp_path: Path) -> None:
    shutil.copytree(recorded.path, tmp_path / "run")
    run = load_run(tmp_path / "run")
    for path in (run.path / "steps" / "1-trace").glob("trace.sqlite*"):
        path.unlink()
    done = export_trace(run, tmp_path / "t.json")
    assert done.arrows == 0
    assert "kernels alone" in done.notes[0]
    assert {e.get("cat") for e in events_of(tmp_path / "t.json")} == {None, "kernel"}


def test_a_run_without_launches_is_refused(
    make_bench_run: Callable[..., Run], bench_row: Any
) -> None:
    with pytest.raises(UsageError, match="no single launches"):
        export_trace(make_bench_run([bench_row("copy")]), Path("t.json"))


def test_a_file_that_cannot_be_made_whole_leaves_the_old_one(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text("old")

    def broken(*_: object) -> Iterator[str]:
        yield "{}"
        raise RuntimeError

    monkeypatch.setattr("nsight_prof.reports.export.gpu_part.GpuPart.events", broken)
    with pytest.raises(RuntimeError):
        export_trace(recorded, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_parts_do_not_change_what_is_written(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded
    export_trace(run, tmp_path / "whole.json")
    monkeypatch.setattr("nsight_prof.reports.export.gpu_part.ROWS", 7)
    monkeypatch.setattr("nsight_prof.reports.export.host_part.PART", 5)
    monkeypatch.setattr("nsight_prof.reports.export.trace_file.AT_ONCE", 3)
    export_trace(run, tmp_path / "parts.json")
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "parts.json").read_bytes()


def test_times_are_those_of_the_table(recorded: Run, tmp_path: Path) -> None:
    run = recorded
    export_trace(run, tmp_path / "t.json")
    launches: pd.DataFrame = run.launches
    expected = Counter(zip(launches["start_ns"], launches["duration_ns"], strict=True))
    assert spans(events_of(tmp_path / "t.json"), "kernel") == expected
