"""Frozen view models of where the time goes: stages, kinds of kernels, idle time, operations."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.reports.page.values import Interval, Number, Text


@dataclass(frozen=True)
class StageKernel:
    """One of the kernels that take the most time of a stage; `share` is of the stage's time.

    `number` is None for a kernel that the kernel table does not show.
    """

    number: int | None
    short_name: str
    calls: int
    total_ns: float
    share: float | None


@dataclass(frozen=True)
class StageRow:
    """One stage of the program. `share` is of all GPU time; `idle_share` of the stage's wall."""

    stage: str
    instances: int | None
    launches: int | None
    wall_ns: float | None
    kernel_ns: float | None
    busy_ns: float | None
    idle_ns: float | None
    idle_share: float | None
    share: float | None
    top: tuple[StageKernel, ...]


@dataclass(frozen=True)
class OperationRow:
    """Copies and sets of memory (`bytes` known), or calls of one API function on the host."""

    name: str
    calls: int | None
    total_ns: float | None
    bytes: float | None


@dataclass(frozen=True)
class KindRow:
    """The kernels of one kind; `by_stage` is their GPU time in each stage of the table, in ns.

    `categories` are the keys that the kernel table shows; a kernel of no known kind stands for
    itself. `share` is of all GPU time. `kernel_ids` are the longest first.
    """

    kind: str
    categories: tuple[str, ...]
    kernels: int
    launches: int | None
    total_ns: float
    share: float | None
    by_stage: tuple[float | None, ...]
    kernel_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class KindTable:
    """GPU time by kind of kernel and by stage: the largest kinds, the others in one row; all."""

    stages: tuple[str, ...]
    rows: tuple[KindRow, ...]
    total: KindRow


@dataclass(frozen=True)
class IdleRow:
    """Time in which the GPU had nothing to do, of one cause, in a stage ("" outside of all).

    `cause` is the key of table `idle_gaps`, `label` the same in words; `of_wall` is the part of the
    wall time of the stage. `late_calls`, `before_call_ns` and `in_call_ns` are as in that table.
    """

    stage: str
    cause: str
    label: str
    gaps: int
    idle_ns: float
    longest_ns: float | None
    of_wall: float | None
    late_calls: int | None
    before_call_ns: float | None
    in_call_ns: float | None


@dataclass(frozen=True)
class StepTimes:
    """Steps of a loop in a stage that are alike in `how` their launches came: how many, the number
    of the `first` of them, and the time from one step to the next.
    """

    stage: str
    how: Text
    steps: int
    first: int
    median: Number
    ends: Interval


@dataclass(frozen=True)
class HostCost:
    """What a launch costs without a profiler, measured by `case` of prof's roofline recipe."""

    name: str
    time_ns: float
    case: str
