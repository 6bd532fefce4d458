"""Reads all that a trace tells of the steps of an inference engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.engine.gaps import find_gaps
from nsight_prof.parsers.nsys.engine.ranges import (
    STEP,
    HostRange,
    read_host_ranges,
    read_module_ranges,
    read_steps,
)
from nsight_prof.parsers.nsys.engine.steps import engine_steps
from nsight_prof.parsers.nsys.engine.work import RankWork, read_engine_calls, read_work
from nsight_prof.parsers.nsys.rows.kernels import KernelRows
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.run.sentences import stored


@dataclass
class Engine:
    """Steps and idle time of an engine as tables, and its GPU work by rank.

    `module_ranges` are the ranges of vLLM's layer-wise tracing. All is empty where the trace has
    no engine steps.
    """

    steps: pd.DataFrame
    gaps: pd.DataFrame
    works: list[RankWork] = field(default_factory=list)
    module_ranges: list[HostRange] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_engine(db: Database, rows: KernelRows, ranges: Iterable[str]) -> Engine:
    """Read the engine's steps, and all GPU work and idle time around them.

    `ranges` are the names of all ranges: looking for those of steps takes a pass over all rows.
    """
    steps = read_steps(db) if any(name.startswith(STEP) for name in ranges) else []
    if not steps:
        return Engine(tables.empty("engine_steps"), tables.empty("engine_gaps"))
    calls = read_engine_calls(db, {step.pid for step in steps})
    works = read_work(db, rows, steps, calls)
    gaps, causes = find_gaps(works, calls, read_host_ranges(db))
    return Engine(
        engine_steps(works, causes), gaps, works, read_module_ranges(db), _warnings(works)
    )


def _warnings(works: list[RankWork]) -> list[str]:
    before = sum(int((work.is_kernel & (work.step < 0)).sum()) for work in works)
    if not before:
        return []
    return [
        stored(
            "{before} kernels of the engine were issued before its first traced step, or by "
            "calls that are not in the trace: they belong to no step",
            before=before,
        )
    ]
