"""Writes the timeline of a run as a file for ui.perfetto.dev and chrome://tracing.

Times are read as columns of numbers, about 100 bytes an event; the text, which is several times
that, is made and written part by part.
"""

from __future__ import annotations

import gzip
import io
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.nsys.events import Events, read_events
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.whole_file import written_whole
from nsight_prof.reports.export.event_text import encoded, label
from nsight_prof.reports.export.gpu_part import Arrows, Launches, place_gpu, read_launches
from nsight_prof.reports.export.host_part import place_host
from nsight_prof.reports.export.telemetry_part import telemetry_events
from nsight_prof.reports.export.tracks import Tracks

AT_ONCE = 4096  # events that are joined before they are written


@dataclass(frozen=True)
class Exported:
    """What was written: events in the file, arrows among them, and what is missing, as notes."""

    path: Path
    events: int
    arrows: int
    notes: tuple[str, ...]


def export_trace(run: Run, path: Path) -> Exported:
    """Write the timeline of `run` to `path` (JSON; packed where it ends in .gz).

    Kernels, copies and memsets stand on the streams of their GPU, NVTX ranges and CUDA API calls on
    the threads of the host; arrows lead from a call to what it issued. 0 is the start of the
    capture, or of the first event before it.

    Raises:
        UsageError: the run has no trace with single launches.
        StepFailed: the file cannot be written.
    """
    table = run.directory.tables / "launches.parquet"
    launches = read_launches(table) if table.is_file() else None
    if launches is None or not len(launches.start):
        raise UsageError(
            f"{run.path} has no single launches, and without them there is no timeline",
            "only a run with a trace of nsys has them; other tables: --format parquet or csv",
        )
    events, notes = _events(run)
    origin, end = _span(launches, events)
    tracks = Tracks()
    host = None if events is None else place_host(events.host, tracks, end)
    memory = None if events is None else events.memory
    gpu = place_gpu(launches, memory, _gpu_names(run), _kernels(run), tracks)
    arrows = Arrows(host)
    streams: list[Iterable[str]] = [tracks.metadata()]
    if host is not None:
        streams.append(host.events(origin))
    streams.append(gpu.events(origin, arrows))
    streams.append(telemetry_events(run.telemetry, tracks, origin, end))
    count = _write(path, _head(run, origin), itertools.chain.from_iterable(streams))
    return Exported(path, count, arrows.drawn, tuple(notes))


def _events(run: Run) -> tuple[Events | None, list[str]]:
    """Read what the launches' table does not have; without it there are kernels alone."""
    path = run.directory.artifact("trace", "trace.sqlite")
    if path is None:
        return None, ["the run has no trace.sqlite: the timeline has kernels alone"]
    try:
        return read_events(path), []
    except ProfError as error:
        return None, [f"the timeline has kernels alone: {error.message}"]


def _span(launches: Launches, events: Events | None) -> tuple[int, int]:
    """First time that is written, 0 or earlier, and the last, in ns."""
    spans = [(launches.start, launches.duration)]
    if events is not None:
        spans += [
            (events.memory.start, events.memory.duration),
            (events.host.calls.start, events.host.calls.duration),
            (events.host.nvtx.start, np.zeros(1, np.int64)),
        ]
    spans = [(start, duration) for start, duration in spans if len(start)]
    origin = min(0, *(int(start.min()) for start, _ in spans))
    return origin, max(int((start + duration.astype(np.int64)).max()) for start, duration in spans)


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


def _head(run: Run, origin: int) -> str:
    facts = {
        "run": run.manifest.run_id,
        "created": run.manifest.created,
        "prof_version": run.manifest.prof_version,
        "tools": run.manifest.tools,
        "start_of_capture_us": -origin / 1000,
    }
    return f'{{"displayTimeUnit":"ms","otherData":{encoded(facts)},"traceEvents":[\n'


def _write(path: Path, head: str, events: Iterable[str]) -> int:
    packed = path.suffix == ".gz"
    with written_whole(path) as partial, _opened(partial, packed=packed) as stream:
        return _stream(stream, head, iter(events))


def _stream(stream: IO[str], head: str, events: Iterator[str]) -> int:
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
