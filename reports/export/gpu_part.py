"""The GPUs' part of a timeline: kernels, copies and memsets with arrows, and curves of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.calls import call_key
from nsight_prof.parsers.nsys.rows.memory_events import COPY, MemoryEvents
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, factor, short
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.serving.engine import held_by
from nsight_prof.reports.export import event_text
from nsight_prof.reports.export.event_text import Track, Tracks, complete, counter, label, lane_name
from nsight_prof.reports.export.host_part import HostPart
from nsight_prof.reports.export.lanes import Array, disjoint

ROWS = 1 << 15  # launches that are Python objects at a time
ToTimeline = Callable[[Array], Array]
"""Makes times of a trace (ns) those of the timeline."""
_QUEUE = ["device", "context", "stream", "pid"]
_GPU_CATEGORY = {COPY: "gpu_memcpy", "memset": "gpu_memset"}


@dataclass
class Launches:
    """Launches of a run as numbers, in the order of the file `path` (table `launches`).

    `queue` is a code into `queues`: device, context, stream, process. `clock` makes times of the
    file those of the timeline.
    """

    path: Path
    start: Array
    duration: Array
    queue: Array
    queues: list[tuple[int, ...]]
    clock: ToTimeline


def as_recorded(times: Array) -> Array:
    """Return times as they are: those of a run alone."""
    return times


def read_launches(path: Path, clock: ToTimeline = as_recorded) -> Launches:
    """Read where and when each launch ran, part by part."""
    with tables.parquet_file(path) as file:
        columns = Columns(file.metadata.num_rows, np.int64, np.uint32, np.int32)
    book: Codebook[tuple[int, ...]] = Codebook()
    for frame in tables.batches(path, 1 << 17, ["start_ns", "duration_ns", *_QUEUE]):
        with reading(path, *tables.WHAT):
            queued = [frame[name].fillna(-1).to_numpy(np.int64) for name in _QUEUE]
            duration = frame["duration_ns"].to_numpy(np.int64)
            start = clock(frame["start_ns"].to_numpy(np.int64))
            columns.append(start, short(duration), book.translate(*factor(queued)))
    start, duration, queue = columns.finish()
    return Launches(path, start, duration, queue, book.keys, clock)


def _frames(path: Path) -> Iterator[pd.DataFrame]:
    for frame in tables.batches(path, ROWS):
        with reading(path, *tables.WHAT):
            checked = tables.check(frame, "launches")
        yield checked


@dataclass
class GpuPart:
    """GPU work with a track for each operation: first the launches, then copies and the like."""

    launches: Launches
    memory: MemoryEvents | None
    tracks: list[str]
    track: Array
    kernels: Mapping[str, str]

    def events(self, origin: int, arrows: Arrows) -> Iterator[str]:
        """Give all operations, each with an arrow from the call that issued it where it is known.

        `kernels` has the encoded label and fields of each kernel_id, a tab between them.
        """
        number = 0
        for frame in _frames(self.launches.path):
            places = self.track[number : number + len(frame)].tolist()
            keys = call_key(*(_numbers(frame[name]) for name in ("pid", "correlation")))
            facts = _facts(frame)
            rows = zip(
                self.launches.clock(frame["start_ns"].to_numpy(np.int64)).tolist(),
                frame["duration_ns"].tolist(),
                frame["kernel_id"].astype(str), places, facts, arrows.sources(keys), strict=True,
            )  # fmt: skip
            for start, duration, kernel, lane, fact, source in rows:
                number += 1
                label, _, fields = self.kernels.get(kernel, _unnamed(kernel)).partition("\t")
                track = self.tracks[lane]
                args = f"{fields},{fact}"
                yield event_text.complete(start - origin, duration, track, label, args)
                yield from arrows.draw(number, source, start, track, origin)
        if self.memory is not None:
            yield from self._memory(self.memory, number, origin, arrows)

    def _memory(
        self, memory: MemoryEvents, before: int, origin: int, arrows: Arrows
    ) -> Iterator[str]:
        labels = [
            event_text.label(_GPU_CATEGORY.get(what, "cuda_graph"), name)
            for what, name in memory.kinds
        ]
        columns = (memory.start, memory.duration, memory.bytes, memory.kind, self.track[before:])
        for number, row in enumerate(_rows(arrows, memory.call, *columns), before + 1):
            call, source, start, duration, size, kind, lane = row
            args = f'"correlation":{call & 0xFFFFFFFF}'
            if size >= 0:
                args += f',"bytes":{size}'
            if size >= 0 and duration > 0:
                args += f',"bytes_per_s":{size / duration * 1e9:.4g}'
            track = self.tracks[lane]
            yield event_text.complete(start - origin, duration, track, labels[kind], args)
            yield from arrows.draw(number, source, start, track, origin)


def _rows(arrows: Arrows, calls: Array, *columns: Array) -> Iterator[tuple[int, ...]]:
    """Give call, its index and the columns of each operation, few of them as objects at a time."""
    for low in range(0, len(calls), ROWS):
        chunk = slice(low, low + ROWS)
        numbers = (column[chunk].tolist() for column in columns)
        yield from zip(calls[chunk].tolist(), arrows.sources(calls[chunk]), *numbers, strict=True)


class Arrows:
    """Finds the API call that issued an operation, and draws the arrow from it."""

    def __init__(self, host: HostPart | None, first: int = 0) -> None:
        """Draw arrows from calls of `host`; their numbers begin after `first`."""
        self._host = host
        self._first = first
        self.drawn = 0
        if host is not None:
            self._order = np.argsort(host.host.calls.call, kind="stable")
            self._keys = host.host.calls.call[self._order]

    def sources(self, keys: Array) -> list[int]:
        """Return the index of the call of each key, -1 where the trace does not have it."""
        if self._host is None or not len(self._keys):
            return [-1] * len(keys)
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        found: list[int] = np.where(self._keys[at] == keys, self._order[at], -1).tolist()
        return found

    def draw(
        self, number: int, source: int, start: int, track: str, origin: int
    ) -> tuple[str, ...]:
        """Return arrow `number` to the operation at `start`; none where that came before its call.

        (The clocks of host and GPU are matched by the tool, and not exactly.)
        """
        if source < 0 or self._host is None:
            return ()
        called = int(self._host.host.calls.start[source])
        if called > start:
            return ()
        self.drawn += 1
        at = self._host.tracks[self._host.call_track[source]]
        return event_text.arrow(self._first + number, called - origin, at, start - origin, track)


def place_gpu(
    launches: Launches,
    memory: MemoryEvents | None,
    gpu_names: Mapping[int, str],
    kernels: Mapping[str, str],
    tracks: Tracks,
) -> GpuPart:
    """Give each operation a track: its stream, and further lanes where a stream's work overlaps."""
    book: Codebook[tuple[int, ...]] = Codebook()
    sources = [(launches.start, launches.duration, launches.queue, launches.queues)]
    if memory is not None:
        sources.append((memory.start, memory.duration, memory.queue, memory.queues))
    queue = np.concatenate(
        [book.translate(codes, keys) for _, _, codes, keys in sources if len(codes)]
    )
    start = np.concatenate([start for start, *_ in sources])
    end = start + np.concatenate([duration.astype(np.int64) for _, duration, *_ in sources])
    lane = disjoint(start, end, queue)
    longest = np.zeros(len(book.keys), np.int64)
    np.maximum.at(longest, queue, lane)
    texts: list[str] = []
    first = np.zeros(len(book.keys), np.int64)
    for number in sorted(range(len(book.keys)), key=book.keys.__getitem__):
        first[number] = len(texts)
        device = book.keys[number][0]
        pid = tracks.gpu(device, _gpu_name(device, gpu_names))
        name = _stream_name(book.keys, number)
        stream = book.keys[number][2]
        texts += [
            str(tracks.thread(pid, lane_name(name, i), 0 if i else stream))
            for i in range(int(longest[number]) + 1)
        ]
    return GpuPart(launches, memory, texts, first[queue] + lane, kernels)


def _gpu_name(device: int, names: Mapping[int, str]) -> str:
    if device < 0:
        return "GPU (the trace does not say which)"
    return f"GPU {device}: {names[device]}" if device in names else f"GPU {device}"


def _stream_name(queues: Sequence[tuple[int, ...]], number: int) -> str:
    """Name a stream, with context and process where a GPU has several of them."""
    device, context, stream, pid = queues[number]
    name = f"stream {stream}" if stream >= 0 else "stream (not told)"
    here = [queue for queue in queues if queue[0] == device]
    if len({queue[3] for queue in here}) > 1:
        name += f", process {pid}"
    if len({queue[1] for queue in here if queue[3] == pid}) > 1:
        name += f", context {context}"
    return name


def _unnamed(kernel: str) -> str:
    return f'{event_text.label("kernel", kernel)}\t"kernel_id":{event_text.encoded(kernel)}'


def _numbers(column: pd.Series) -> Array:
    numbers: Array = column.fillna(0).to_numpy(np.int64)
    return numbers


def _facts(frame: pd.DataFrame) -> list[str]:
    """Encode what is told of each launch alone."""
    registers, static, dynamic, correlation = (
        _numbers(frame[name]).tolist()
        for name in ("registers", "static_shared_bytes", "dynamic_shared_bytes", "correlation")
    )
    facts = [
        f'"registers":{r},"shared_bytes":{s + d},"correlation":{c}'
        for r, s, d, c in zip(registers, static, dynamic, correlation, strict=True)
    ]
    for name in ("stage", "nvtx_path", "graph_node"):
        column = frame[name]
        known = column.notna().to_numpy()
        if not known.any():
            continue
        values = {v: v if isinstance(v, str) else int(v) for v in column[known].unique()}
        texts = {v: f',"{name}":{event_text.encoded(raw)}' for v, raw in values.items()}
        facts = [
            fact + texts[value] if is_known else fact
            for fact, value, is_known in zip(facts, column, known, strict=True)
        ]
    return facts


CURVES = {
    "power_w": ("Power, W", 1.0),
    "sm_clock_hz": ("SM clock, MHz", 1e-6),
    "memory_used_bytes": ("Memory in use, GB", 1e-9),
    "temperature_c": ("Temperature, degrees C", 1.0),
    "pcie_rx_bytes_per_s": ("PCIe received, GB/s", 1e-9),
    "pcie_tx_bytes_per_s": ("PCIe sent, GB/s", 1e-9),
    "sm_active_pct": ("SMs active, %", 1.0),
    "tensor_active_pct": ("Tensor Cores active, %", 1.0),
    "dram_active_pct": ("DRAM active, %", 1.0),
}


def telemetry_events(
    telemetry: pd.DataFrame, tracks: Tracks, origin: int, end: int
) -> Iterator[str]:
    """Give the samples of table `telemetry` that lie in the trace, from `origin` to `end` (ns)."""
    at = telemetry["trace_ns"]
    inside = telemetry[(at.notna() & at.between(origin, end)).fillna(False)]
    for device in inside["device"].unique().tolist():
        rows, pid = inside[inside["device"] == device], tracks.gpu(device, f"GPU {device}")
        for column, (name, scale) in CURVES.items():
            for time, value in rows[["trace_ns", column]].dropna().itertuples(index=False):
                yield counter(int(time) - origin, Track(pid, pid), name, float(value) * scale)
        slices = list(_throttled(rows, end))
        track = str(tracks.thread(pid, "clocks held down by")) if slices else ""
        for start, duration, reasons in slices:
            yield complete(start - origin, duration, track, label("throttle", reasons))


def _throttled(rows: pd.DataFrame, end: int) -> Iterator[tuple[int, int, str]]:
    """Give when and what held the clocks down, from each sample that says so to the next one."""
    times = [*(int(time) for time in rows["trace_ns"]), end]
    for begin, after, throttle in zip(times, times[1:], rows["throttle"], strict=False):
        reasons = held_by(throttle if isinstance(throttle, str) else None)
        if reasons:
            yield begin, after - begin, ", ".join(reason.replace("_", " ") for reason in reasons)
