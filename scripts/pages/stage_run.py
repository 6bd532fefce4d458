"""A run as though one stage of the program had been all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.rows.cut import Cutter, open_cutter
from nsight_prof.parsers.nsys.trace import NsysTrace, open_trace
from nsight_prof.parsers.run.run import Run, times_of

OF_KERNELS = ("metrics", "counters", "stalls", "joins")
"""Tables of the counters: rows of kernels that the stage does not have are left out."""
OF_STAGE = ("kernels", "stages", "devices", "gpu_stages", "stage_kernels", "memory_operations",
            "api_calls", "engine_steps", "idle_gaps", "host_lines", "thread_lines",
            "gpu_idle_gaps", "collectives", "launches")  # fmt: skip
"""Tables of the trace that findings read."""
OF_LINES = ("launch_lines", "timed_lines")
"""Tables of what nsys does not have: the samples of stacks lie beside the trace."""
NOT_CUT = tables.tables().keys() & set(dir(NsysTrace)) - {*OF_STAGE, "gpus", *OF_LINES}
"""Tables of the trace that are not made for each stage: it takes a sixth of the time."""


@dataclass(frozen=True)
class StageRun(Run):
    """A run whose tables of the trace hold one stage only; `frames` are these tables.

    Shares are of the stage's own time. What does not depend on the stage (GPUs, roofs, what each
    counter says of a kernel) is that of the `whole` run, which has read it once for all stages.
    """

    whole: Run
    frames: dict[str, pd.DataFrame]

    def _read(self, table: str) -> pd.DataFrame:
        assert table not in NOT_CUT, f"{table} is that of all stages: add it to OF_STAGE"
        found: pd.DataFrame | None = self.frames.get(table)
        return getattr(self.whole, table) if found is None else found

    @cached_property
    def launch_times(self) -> pd.DataFrame:
        """Columns of the stage's own table `launches`, which `Run` reads from the file."""
        return times_of(self.launches)


def stage_runs(run: Run, stages: Sequence[str]) -> Iterator[tuple[str, StageRun]]:
    """Yield each stage with the run cut down to it.

    Args:
        run: of a recipe whose stages are NVTX ranges of these names.
        stages: names, such as "prefill".

    Raises:
        ArtifactUnreadable: the run has no trace.
        ArtifactUnreadable: the trace is damaged, or has no such range.
        NoKernels: the range launched none.
    """
    trace = run.directory.artifact("trace", "trace.sqlite")
    if trace is None:
        raise ArtifactUnreadable(
            f"{run.path} has no trace", "only a run with its trace.sqlite can be cut into stages"
        )
    with open_cutter(trace) as cutter, tempfile.TemporaryDirectory() as folder:
        for stage in stages:
            yield stage, _cut(run, stage, cutter, Path(folder) / "stage.sqlite")


def _cut(run: Run, stage: str, cutter: Cutter, target: Path) -> StageRun:
    cutter.cut([stage], target)
    with open_trace(target, {stage: ".*"}) as trace:
        frames = {name: getattr(trace, name)() for name in OF_STAGE}
    ours = set(frames["kernels"]["kernel_id"])
    for name in OF_KERNELS:
        table: pd.DataFrame = getattr(run, name)
        frames[name] = table[table["kernel_id"].isin(ours)].reset_index(drop=True)
    return StageRun(run.path, run.manifest, run, frames)
