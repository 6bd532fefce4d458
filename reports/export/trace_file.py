"""Writes the timeline of a run as a file for ui.perfetto.dev and chrome://tracing.

Times are read as columns of numbers, about 100 bytes an event; the text, which is several times
that, is made and written part by part.
"""

from __future__ import annotations

import gzip
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.rank_tables import RANK_TIMES
from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.nsys.events import Events, read_events
from nsight_prof.parsers.nsys.sqlite.schema import OPEN_END
from nsight_prof.parsers.ranks.clocks import Array, Clock
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.whole_file import written_whole
from nsight_prof.reports.export.event_text import Tracks, encoded, label
from nsight_prof.reports.export.gpu_part import (
    Arrows,
    GpuPart,
    Launches,
    ToTimeline,
    as_recorded,
    place_gpu,
    read_launches,
    telemetry_events,
)
from nsight_prof.reports.export.host_part import HostPart, place_host
from nsight_prof.reports.page.formats import duration

AT_ONCE = 4096  # events that are joined before they are written


@dataclass(frozen=True)
class Exported:
    """What was written: events in the file, arrows among them, and what is missing, as notes."""

    path: Path
    events: int
    arrows: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Member:
    """A run of a timeline: `name` says what it is there, `clock` makes its times the timeline's."""

    run: Run
    name: str = ""
    clock: ToTimeline = as_recorded


def export_trace(run: Run, path: Path) -> Exported:
    """Write the timeline of `run` to `path` (JSON; packed where it ends in .gz).

    Kernels, copies and memsets stand on the streams of their GPU, NVTX ranges and CUDA API calls on
    the threads of the host; arrows lead from a call to what it issued. 0 is the start of the
    capture, or of the first event before it.

    Raises:
        UsageError: the run has no trace with single launches.
        StepFailed: the file cannot be written.
    """
    return export_members(run.manifest, [Member(run)], path)


def export_members(about: Manifest, members: Sequence[Member], path: Path) -> Exported:
    """Write one timeline of several runs, by one clock; `about` stands at its head.

    All that is not text is in memory at once, about 100 bytes an event. Raises as `export_trace`.
    """
    read = [_read(member) for member in members]
    origin = min(_span(trace)[0] for trace in read)
    tracks = Tracks()
    placed = []
    for member, trace in zip(members, read, strict=True):
        tracks.scope = member.name
        placed.append((_placed(member, trace, tracks, _span(trace)[1]), trace))
    streams: list[Iterable[str]] = [tracks.metadata()]
    arrows = []
    first = 0
    for member, ((host, gpu), trace) in zip(members, placed, strict=True):
        arrows.append(Arrows(host, first))
        if host is not None:
            streams.append(host.events(origin, first))
        streams.append(gpu.events(origin, arrows[-1]))
        streams.append(_curves(member, tracks, origin, _span(trace)[1]))
        first += trace.count
    count = _write(path, _head(about, origin), itertools.chain.from_iterable(streams))
    notes = dict.fromkeys(note for trace in read for note in trace.notes)
    return Exported(path, count, sum(a.drawn for a in arrows), tuple(notes))


@dataclass
class _Read:
    """What was read of a run, by the clock of the timeline."""

    launches: Launches
    events: Events | None
    notes: list[str]

    @property
    def count(self) -> int:
        """Events that may need a number."""
        return sum(len(start) for start, _ in _spans(self.launches, self.events))


def _read(member: Member) -> _Read:
    table = member.run.directory.tables / "launches.parquet"
    launches = read_launches(table, member.clock) if table.is_file() else None
    if launches is None or not len(launches.start):
        raise UsageError(
            f"{member.run.path} has no single launches, and without them there is no timeline",
            "only a run with a trace of nsys has them; other tables: --format parquet or csv",
        )
    events, notes = _events(member.run)
    if events is not None:
        nvtx = events.host.nvtx
        is_open = nvtx.end == OPEN_END
        nvtx.start, ends = member.clock(nvtx.start), member.clock(nvtx.end)
        nvtx.end = np.where(is_open, OPEN_END, ends)
        for timed in (events.host.calls, events.memory):
            timed.start = member.clock(timed.start)
    return _Read(launches, events, notes)


def _placed(
    member: Member, trace: _Read, tracks: Tracks, end: int
) -> tuple[HostPart | None, GpuPart]:
    host = None if trace.events is None else place_host(trace.events.host, tracks, end)
    memory = None if trace.events is None else trace.events.memory
    run = member.run
    return host, place_gpu(trace.launches, memory, _gpu_names(run), _kernels(run), tracks)


def _curves(member: Member, tracks: Tracks, origin: int, end: int) -> Iterator[str]:
    """Give the samples of the GPUs of a run, which are read when they are written."""
    tracks.scope = member.name
    telemetry = member.run.telemetry
    known = telemetry[telemetry["trace_ns"].notna()]
    times = member.clock(known["trace_ns"].to_numpy(np.int64))
    yield from telemetry_events(known.assign(trace_ns=times), tracks, origin, end)


def _events(run: Run) -> tuple[Events | None, list[str]]:
    """Read what the launches' table does not have; without it there are kernels alone."""
    path = run.directory.artifact("trace", "trace.sqlite")
    if path is None:
        return None, ["the run has no trace.sqlite: the timeline has kernels alone"]
    try:
        return read_events(path), []
    except ProfError as error:
        return None, [f"the timeline has kernels alone: {error.message}"]


def _span(trace: _Read) -> tuple[int, int]:
    """First time that is written, 0 or earlier, and the last, in ns."""
    spans = [
        (start, length) for start, length in _spans(trace.launches, trace.events) if len(start)
    ]
    origin = min(0, *(int(start.min()) for start, _ in spans))
    return origin, max(int((start + length.astype(np.int64)).max()) for start, length in spans)


def _spans(launches: Launches, events: Events | None) -> Iterator[tuple[Array, Array]]:
    yield (launches.start, launches.duration)
    if events is not None:
        nvtx = events.host.nvtx.start
        yield (events.memory.start, events.memory.duration)
        yield (events.host.calls.start, events.host.calls.duration)
        yield (nvtx, np.zeros(len(nvtx), np.int64))


def _gpu_names(run: Run) -> dict[int, str]:
    return {
        int(number(row["device"])): text(row["name"])
        for row in records(run.gpus.dropna(subset=["device"]))
        if text(row["name"])
    }


def _kernels(run: Run) -> dict[str, str]:
    """Label and fields of each kernel, encoded, with a tab between them."""
    bounds = {
        text(row["kernel_id"]): LABELS.get(text(row["bound_by"]), text(row["bound_by"]))
        for row in records(run.counters)
        if text(row["bound_by"])
    }
    found = {}
    for row in records(run.kernels):
        kernel_id = text(row["kernel_id"])
        facts: dict[str, Any] = {"kernel_id": kernel_id, "kernel": text(row["name"])}
        facts |= {name: text(row[name]) for name in ("library", "category", "dtype") if row[name]}
        facts |= {"grid": text(row["grid"]), "block": text(row["block"])}
        if kernel_id in bounds:
            facts["bound_by"] = bounds[kernel_id]
        name = label("kernel", text(row["short_name"]) or text(row["name"]))
        found[kernel_id] = f"{name}\t{encoded(facts)[1:-1]}"
    return found


def _head(manifest: Manifest, origin: int) -> str:
    facts = {
        "run": manifest.run_id,
        "created": manifest.created,
        "prof_version": manifest.prof_version,
        "tools": manifest.tools,
        "start_of_capture_us": -origin / 1000,
    }
    return f'{{"displayTimeUnit":"ms","otherData":{encoded(facts)},"traceEvents":[\n'


def _write(path: Path, head: str, events: Iterator[str]) -> int:
    packed = path.suffix == ".gz"
    with written_whole(path) as partial, _opened(partial, packed=packed) as stream:
        stream.write(head)
        count = 0
        while batch := list(itertools.islice(events, AT_ONCE)):
            stream.write((",\n" if count else "") + ",\n".join(batch))
            count += len(batch)
        stream.write("\n]}\n")
    return count


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[IO[str]]:
    if not packed:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    # Without a name and a time the same run gives the same bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as binary,
        io.TextIOWrapper(binary, encoding="utf-8", newline="\n") as stream,
    ):
        yield stream


REFERENCE = "reference"


def export_ranks(job: RunDir, ranks: Sequence[int], path: Path) -> Exported:
    """Write the timeline of `ranks` to `path`, by the clock of the job's first rank.

    The tables of the job are there already. Notes say how exactly times of two ranks compare, and
    which ranks are left out because nothing aligns their clocks.

    Raises:
        UsageError: the job has no such rank, or nothing aligns the clock of any.
        StepFailed: the file cannot be written.
    """
    manifest = read_manifest(job)
    there = {record.rank for record in manifest.ranks if not record.reason}
    if unknown := sorted(set(ranks) - there):
        raise UsageError(
            f"{job.path} has no rank {unknown[0]}",
            f"it has the ranks {', '.join(map(str, sorted(there)[:16]))}",
        )
    rows = {int(row["rank"]): row for row in reversed(records(tables.read(job.tables, RANK_TIMES)))}
    members, notes = [], []
    for rank in sorted(set(ranks)):
        row = rows.get(rank)
        is_aligned = row is not None and known(row["clock_offset_ns"]) is not None
        if row is None or not (is_aligned or text(row["clock"]) == REFERENCE):
            notes.append(f"rank {rank} is left out: no collective aligns its clock with the others")
            continue
        clock = as_recorded
        if is_aligned:
            clock = partial(_on_reference, _clock(row))
            residual = known(row["clock_residual_ns"])
            notes.append(
                f"times of rank {rank} are by the clock of its host, within about 1 ms"
                if residual is None
                else f"times of rank {rank} are within {duration(residual)} of the others (95 %)"
            )
        members.append(Member(load_run(job.rank(rank).path), f"rank {rank}", clock))
    if not members:
        raise UsageError(
            f"{job.path}: no collective aligns the clocks of these ranks",
            "export one rank alone: prof export RUN/ranks/0000 -o timeline.json.gz",
        )
    done = export_members(manifest, members, path)
    return Exported(done.path, done.events, done.arrows, (*notes, *done.notes))


def _clock(row: Row) -> Clock:
    return Clock(
        offset_ns=number(row["clock_offset_ns"]),
        drift_ppm=number(row["clock_drift_ppm"]),
        at_ns=number(row["clock_at_ns"]),
    )


def _on_reference(clock: Clock, times: Array) -> Array:
    aligned: Array = np.rint(clock.on_reference(times)).astype(np.int64)
    return aligned
