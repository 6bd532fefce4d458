"""The host's part of a timeline: NVTX ranges and CUDA API calls, nested on their threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.events import HostEvents
from nsight_prof.parsers.nsys.rows.nvtx import MARK, PUSH_POP, START_END, NvtxEvents
from nsight_prof.reports.export import event_text
from nsight_prof.reports.export.event_text import Tracks, lane_name
from nsight_prof.reports.export.lanes import Array, nested

PART = 1 << 16  # events that are Python objects at a time


@dataclass
class HostPart:
    """What the host did, with a track for each event; times are shifted by `origin` when written.

    `end` (ns) closes ranges that were not closed. `call_track` are indices into `tracks`.
    """

    host: HostEvents
    tracks: list[str]
    call_track: Array
    range_track: Array
    first_track: Array
    end: int

    def events(self, origin: int, first: int = 0) -> Iterator[str]:
        """Give all events, those of a thread in the order of their start.

        Numbers of ranges that end on other threads begin after `first`.
        """
        yield from self._nested(origin)
        yield from self._marks(origin)
        yield from self._asynchronous(origin, first)

    def _nested(self, origin: int) -> Iterator[str]:
        calls, nvtx = self.host.calls, self.host.nvtx
        pushed = _of_kind(nvtx, PUSH_POP)
        labels = [event_text.label("nvtx", name) for name in nvtx.labels]
        of_calls = len(labels)
        labels += [event_text.label("cuda_api", name) for name in calls.names]
        starts = np.concatenate([nvtx.start[pushed], calls.start])
        ends, not_closed = closed(nvtx, pushed, self.end)
        durations = np.concatenate([ends - nvtx.start[pushed], calls.duration.astype(np.int64)])
        names = np.concatenate([nvtx.name[pushed], calls.name + of_calls])
        tracks = np.concatenate([self.range_track, self.call_track])
        args = np.concatenate([np.where(not_closed, -2, -1), calls.call & 0xFFFFFFFF])
        order = np.lexsort((-durations, starts, tracks))
        for low in range(0, len(order), PART):
            chunk = order[low : low + PART]
            columns = (starts, durations, tracks, names, args)
            for start, duration, track, name, arg in zip(
                *(column[chunk].tolist() for column in columns), strict=True
            ):
                yield event_text.complete(
                    start - origin, max(duration, 0), self.tracks[track], labels[name], _args(arg)
                )

    def _marks(self, origin: int) -> Iterator[str]:
        nvtx, names = self.host.nvtx, self.host.nvtx.labels
        for index in _of_kind(nvtx, MARK).tolist():
            label = event_text.label("nvtx", names[nvtx.name[index]])
            track = self.tracks[self.first_track[nvtx.thread[index]]]
            yield event_text.instant(int(nvtx.start[index]) - origin, track, label)

    def _asynchronous(self, origin: int, first: int) -> Iterator[str]:
        nvtx, names = self.host.nvtx, self.host.nvtx.labels
        ranges = _of_kind(nvtx, START_END)
        ends, _ = closed(nvtx, ranges, self.end)
        for number, (index, end) in enumerate(
            zip(ranges.tolist(), ends.tolist(), strict=True), first + 1
        ):
            label = event_text.label("nvtx", names[nvtx.name[index]])
            track = self.tracks[self.first_track[nvtx.thread[index]]]
            start = int(nvtx.start[index]) - origin
            yield from event_text.begin_and_end(start, end - origin, number, track, label)


def _args(code: int) -> str:
    """Correlation id of a call; of a range only that it was never closed."""
    if code >= 0:
        return f'"correlation":{code}'
    return '"not_closed":true' if code == -2 else ""


def _of_kind(nvtx: NvtxEvents, kind: str) -> Array:
    return np.flatnonzero(nvtx.kind == nvtx.kinds.index(kind))


def closed(nvtx: NvtxEvents, ranges: Array, end: int) -> tuple[Array, Array]:
    """Return the end of each range, never before its start, and whether it had none."""
    start, ends = nvtx.start[ranges], nvtx.end[ranges]
    not_closed = ends == np.iinfo(np.int64).max
    return np.maximum(np.where(not_closed, end, ends), start), not_closed


def place_host(host: HostEvents, tracks: Tracks, end: int) -> HostPart:
    """Give each event of the host its track; `end` (ns) closes ranges that were not closed."""
    nvtx, calls = host.nvtx, host.calls
    pushed = _of_kind(nvtx, PUSH_POP)
    range_ends, _ = closed(nvtx, pushed, end)
    thread = np.concatenate([nvtx.thread[pushed], calls.thread]).astype(np.int64)
    lane = nested(
        np.concatenate([nvtx.start[pushed], calls.start]),
        np.concatenate([range_ends, calls.start + calls.duration.astype(np.int64)]),
        thread,
    )
    texts: list[str] = []
    first = np.zeros(len(host.threads), np.int64)
    used: dict[tuple[int, int], int] = {}
    lanes = np.zeros(len(host.threads), np.int64)
    np.maximum.at(lanes, thread, lane)
    for number in sorted(range(len(host.threads)), key=lambda n: _rank(host, n)):
        owner = host.threads[number]
        pid = tracks.host_process(owner.pid, host.processes.get(owner.pid, "process"))
        name = owner.name or "thread"
        for i in range(int(lanes[number]) + 1):
            used[number, i] = len(texts)
            wanted = owner.tid if i == 0 else 0
            texts.append(str(tracks.thread(pid, lane_name(name, i), wanted)))
        first[number] = used[number, 0]
    track = first[thread] + lane  # the lanes of a thread follow each other
    return HostPart(host, texts, track[len(pushed) :], track[: len(pushed)], first, end)


def _rank(host: HostEvents, number: int) -> tuple[int, bool, int]:
    """Processes by id; in each the main thread first."""
    thread = host.threads[number]
    return thread.pid, thread.tid != thread.pid, thread.tid
