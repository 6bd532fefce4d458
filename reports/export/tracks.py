"""Numbers the tracks of a timeline: threads of the host and streams of the GPUs, and names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nsight_prof.reports.export.event_text import Track, metadata

# Above the 24 bits that nsys has for the ids of the system.
_MADE_UP = 1 << 24


@dataclass
class Tracks:
    """Tracks handed out so far: first all of the host, then those of the GPUs.

    A thread keeps its own id; an id is used once in a file. (Viewers show ids beside the names;
    Perfetto names a thread by its id alone, and takes id 0 for the idle task.)
    """

    scope: str = ""
    """What the processes and GPUs that follow are of, in a file of several ranks: `rank 3`."""
    _processes: dict[object, tuple[int, str]] = field(default_factory=dict)
    _threads: list[tuple[Track, str]] = field(default_factory=list)
    _used: set[int] = field(default_factory=set)

    def host_process(self, pid: int, name: str) -> int:
        """Return the id of a process of the system."""
        return self._process(("host", pid), pid, name)

    def gpu(self, device: int, name: str) -> int:
        """Return the id under which a GPU is shown as a process: its index + 1 where it can be."""
        return self._process(("gpu", device), device + 1, name)

    def _process(self, key: tuple[str, int], wanted: int, name: str) -> int:
        """Return the id of a process, `wanted` where no other one of the file has it."""
        scoped = (self.scope, *key)
        if scoped not in self._processes:
            taken = {pid for pid, _ in self._processes.values()}
            pid = wanted if wanted > 0 and wanted not in taken else _MADE_UP + len(taken)
            self._processes[scoped] = pid, f"{self.scope}, {name}" if self.scope else name
        return self._processes[scoped][0]

    def thread(self, pid: int, name: str, wanted: int = 0) -> Track:
        """Return a new track of a process, with the id `wanted` where that is free."""
        tid = wanted if wanted > 0 and wanted not in self._used else _MADE_UP + len(self._used)
        self._used.add(tid)
        track = Track(pid, tid)
        self._threads.append((track, name))
        return track

    def metadata(self) -> Iterator[str]:
        """Give the events that name all tracks and keep them in the order of their first use."""
        for index, (pid, name) in enumerate(self._processes.values()):
            track = next((track for track, _ in self._threads if track.pid == pid), Track(pid, pid))
            yield metadata("process_name", track, name=name)
            yield metadata("process_sort_index", track, sort_index=index)
        for index, (track, name) in enumerate(self._threads):
            yield metadata("thread_name", track, name=name)
            yield metadata("thread_sort_index", track, sort_index=index)


def lane_name(name: str, lane: int) -> str:
    """Return the name of a further lane of a track whose events overlap."""
    return name if lane == 0 else f"{name} (overlapping, {lane + 1})"
