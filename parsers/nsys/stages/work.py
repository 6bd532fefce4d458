"""All GPU work of a trace, and what NVTX says of the API calls that issued it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.kernels import KernelRows
from nsight_prof.parsers.nsys.rows.timeline import Operations, Timeline, busy, timeline
from nsight_prof.parsers.nsys.sqlite.codes import STEP, counts, totals
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.sqlite.schema import OPEN_END

ALL = "(all)"


@dataclass
class Attributed:
    """What NVTX says of each API call, in the order of the calls' keys.

    `path` is a code into `paths`, 0 outside of all ranges; each path is the codes of its ranges'
    names (`labels`), outermost first. `instance` is an index into the columns
    `stage` (a code into `stages`), `begin` and `end` (OPEN_END where not closed); -1 outside of
    every stage. Stages are in the order of their first start.
    """

    path: Array
    paths: list[tuple[int, ...]]
    labels: list[str]
    instance: Array
    stages: list[str]
    stage: Array
    begin: Array
    end: Array
    warnings: list[str]

    @cached_property
    def path_texts(self) -> list[str]:
        """Each of `paths` as text."""
        return ["/".join(self.labels[code] for code in codes) for codes in self.paths]

    def stage_of(self, call: Array) -> Array:
        """Code of the stage of each call, -1 outside of every stage."""
        codes: Array = np.append(self.stage, np.int32(-1))[self.instance[call]]
        return codes


@dataclass
class Work:
    """All GPU operations of a trace and what NVTX says of their calls.

    `issuers` is where each call stands in the API calls, -1 where the trace does not hold it.
    """

    kernels: KernelRows
    memory: Operations
    graphs: Operations
    attributed: Attributed
    issuers: Array

    @property
    def operations(self) -> list[KernelRows | Operations]:
        """All kinds, each ordered by start."""
        return [self.kernels, self.memory, self.graphs]

    @cached_property
    def timeline(self) -> Timeline:
        """All operations on one axis."""
        return timeline([(o.start, o.duration) for o in self.operations])

    @cached_property
    def stages(self) -> pd.DataFrame:
        """Table `stages`; take a copy to change it."""
        found, line = self.attributed, self.timeline
        size = len(found.stages)
        idle_ns = totals(found.stage, self._idle(), size)
        groups = [found.stage_of(operations.call) for operations in self.operations]
        of_all = np.concatenate(groups)[line.order]
        rows = pd.DataFrame(
            {
                "stage": found.stages,
                "instances": np.bincount(found.stage, minlength=size),
                "kernel_ns": totals(groups[0], self.kernels.duration, size),
                "gpu_busy_ns": busy(of_all, line.start, line.end, size),
                "launches": counts(groups[0], size),
                "memory_ns": totals(groups[1], self.memory.duration, size),
                "idle_ns": idle_ns,
            }
        )
        rows["wall_ns"] = rows["gpu_busy_ns"] + rows["idle_ns"]
        frame = pd.concat([self._all(), rows], ignore_index=True)
        frame["share"] = frame["kernel_ns"] / frame["kernel_ns"].iloc[0]
        return tables.check(frame, "stages")

    def _all(self) -> pd.DataFrame:
        line = self.timeline
        wall = line.last_end - int(line.start[0])
        row = {
            "stage": ALL,
            "instances": 1,
            "wall_ns": wall,
            "kernel_ns": int(self.kernels.duration.sum(dtype=np.int64)),
            "gpu_busy_ns": line.busy_ns,
            "launches": len(self.kernels.start),
            "memory_ns": int(self.memory.duration.sum()),
            "idle_ns": wall - line.busy_ns,
        }
        return pd.DataFrame([row])

    def _idle(self) -> Array:
        """Time of each stage instance in which nothing at all ran on the GPU.

        The host runs ahead: a stage is issued while the GPU still works for the one before it. Its
        time on the GPU begins when the GPU work of all stages that began before is done.
        """
        found = self.attributed
        begin, end = found.begin.copy(), self._ends()
        order = np.lexsort((end, begin))
        starts, ends = begin[order], end[order]
        reached = np.maximum.accumulate(ends)
        np.maximum(starts[1:], reached[:-1], out=starts[1:])
        begin[order] = np.minimum(starts, ends, out=starts)
        idle: Array = end - begin
        idle += self.timeline.busy_until(begin)
        idle -= self.timeline.busy_until(end)
        return idle

    def _ends(self) -> Array:
        """End of each stage instance: of its range or of its last GPU operation."""
        found = self.attributed
        ends = np.where(found.end == OPEN_END, found.begin, found.end)
        for operations in self.operations:
            for start in range(0, len(operations.start), STEP):
                chunk = slice(start, start + STEP)
                instance = found.instance[operations.call[chunk]]
                inside = instance >= 0
                end = operations.start[chunk][inside] + operations.duration[chunk][inside]
                np.maximum.at(ends, instance[inside], end)
        return ends

    def _sums(self, group: Array) -> pd.DataFrame:
        """Calls and GPU time for each pair of codes `group` (not negative) and `kernel`."""
        rows, found = self.kernels, []
        kernel_of = rows.configs[:, 0]
        for chunk in (slice(at, at + STEP) for at in range(0, len(group), STEP)):
            keys = {"group": group[chunk], "kernel": kernel_of[rows.config[chunk]]}
            frame = pd.DataFrame({**keys, "calls": 1, "total_ns": rows.duration[chunk]})
            frame = frame[frame["group"] >= 0].astype({"total_ns": np.int64})
            found.append(frame.groupby(list(keys), as_index=False).sum())
        if len(found) == 1:
            return found[0]
        return pd.concat(found).groupby(["group", "kernel"], as_index=False).sum()

    @cached_property
    def _by_stage(self) -> pd.DataFrame:
        sums = self._sums(self.attributed.stage_of(self.kernels.call))
        return sums.rename(columns={"group": "stage"})

    def range_kernels(self) -> pd.DataFrame:
        """GPU time of each kernel in each NVTX range, by the range's name."""
        found = self.attributed
        frame = self._sums(found.path[self.kernels.call])
        frame["nvtx_range"] = [sorted({*found.paths[code]}) for code in frame.pop("group")]
        frame = frame.explode("nvtx_range").dropna(subset="nvtx_range")
        frame = frame.groupby(["nvtx_range", "kernel"], as_index=False).sum()
        frame["nvtx_range"] = [found.labels[code] for code in frame["nvtx_range"]]
        frame["kernel_id"] = [self.kernels.kernels[code].kernel_id for code in frame.pop("kernel")]
        return frame.groupby(["nvtx_range", "kernel_id"], as_index=False).sum()

    def stage_kernels(self) -> pd.DataFrame:
        """Table `stage_kernels`."""
        frame = self._by_stage.copy()
        frame["share"] = frame["total_ns"] / frame.groupby("stage")["total_ns"].transform("sum")
        frame["kernel_id"] = [self.kernels.kernels[code].kernel_id for code in frame.pop("kernel")]
        order = ["stage", "total_ns", "kernel_id"]
        frame = frame.sort_values(order, ascending=[True, False, True])
        frame["stage"] = [self.attributed.stages[code] for code in frame["stage"]]
        return tables.check(frame, "stage_kernels")

    def stage_lists(self) -> list[str]:
        """For each kernel the stages it ran in, comma separated, most GPU time first."""
        frame = self._by_stage.sort_values(["total_ns", "stage"], ascending=[False, True])
        names = [self.attributed.stages[code] for code in frame["stage"]]
        lists: list[list[str]] = [[] for _ in self.kernels.kernels]
        for kernel, name in zip(frame["kernel"], names, strict=True):
            lists[kernel].append(name)
        return [", ".join(stages) for stages in lists]
