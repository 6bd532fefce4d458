"""Says before the counters step how long ncu will take, where it waits at each launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

import pandas as pd

from nsight_prof.parsers.run.selection import Selection
from nsight_prof.parsers.run.sentences import stored

# Seen with ncu 2025.3.1 on an H200. Where another process (a shell, a launcher) starts the program,
# ncu's main thread polls its connections every 0.1 s, and each launch that the filter lets through
# waits for that, counted or not: 297 launches took 29.9 s under a shell, with ncu's start 2.3 s
# without. `exec` in the shell ends it; --kernel-id, --target-processes-filter, --max-connections
# and other filter modes do not.
WAIT_S = 0.1
PROCESS_S = 1.0  # connecting to a process and leaving it
PASSES = 12  # of the default metric sets
PASS_S = 0.03  # a replay pass of a short kernel, with saving and restoring memory
WORTH_S = 60.0  # shorter waits are not worth a warning
NAME_LENGTH = 15  # of a process name, as Linux keeps it


@dataclass(frozen=True)
class CountingTime:
    """What ncu will wait for.

    Args:
        waiting: launches of the selected kernels in processes that another one started.
        counted: launches that are replayed, over all processes.
        processes: processes that use a GPU.
        wall_s: time from the first to the last launch in the trace.
    """

    waiting: int
    counted: int
    processes: int
    wall_s: float

    @property
    def waits_s(self) -> float:
        """Seconds that ncu polls."""
        return self.waiting * WAIT_S

    @property
    def seconds(self) -> float:
        """Estimate of the step's time."""
        replay = self.counted * PASSES * PASS_S
        return self.wall_s + self.waits_s + self.processes * PROCESS_S + replay


def counting_time(
    selection: Selection,
    kernels: pd.DataFrame,
    launches: pd.DataFrame,
    names: Mapping[int, str],
    command: str,
) -> CountingTime:
    """Estimate from the tables `kernels` and `launches` of a trace.

    Args:
        names: names of the processes by their id, as far as the trace has them.
        command: program that nsys started.
    """
    # ncu filters by mangled name: other launch shapes of a selected kernel wait, too.
    chosen = {kernel.mangled_name for kernel in selection.kernels}
    ids = kernels.loc[kernels["mangled_name"].isin(chosen), "kernel_id"]
    selected = launches[launches["kernel_id"].isin(ids)]
    by_process = selected.groupby("pid").size()
    pids = list(by_process.index)
    started = [pid for pid in pids if not _is_root(pid, pids, names, command)]
    counted = selected[
        selected["kernel_id"].isin([kernel.kernel_id for kernel in selection.kernels])
    ]
    per_process = counted.groupby(["pid", "kernel_id"]).size().clip(upper=selection.count)
    ends = launches["start_ns"] + launches["duration_ns"]
    return CountingTime(
        waiting=int(by_process.loc[started].sum()),
        counted=int(per_process.sum()),
        processes=len(by_process),
        wall_s=float(ends.max() - launches["start_ns"].min()) / 1e9 if len(launches) else 0.0,
    )


def _is_root(pid: int, pids: list[int], names: Mapping[int, str], command: str) -> bool:
    """Whether nsys itself started the process, as far as the trace can tell.

    Of several processes only the first can be that; one of another name than the command is not.
    """
    name = names.get(pid)
    return pid == min(pids) and (name is None or _short(name) == _short(command))


def _short(name: str) -> str:
    """Return a program as Linux names its process; nsys knows some by their path."""
    return PurePath(name).name[:NAME_LENGTH]


def warnings(time: CountingTime) -> list[str]:
    """Say how long counting will take and how to shorten it, where ncu waits at many launches."""
    if time.waits_s < WORTH_S:
        return []
    minutes = time.seconds / 60
    return [
        stored(
            "ncu will take about {minutes:.0f} min: another process starts the one that uses "
            "the GPU, and then ncu waits {wait_s:g} s at each of the {waiting:,} launches of "
            "the selected kernels. Shorter: let nsys and ncu start that program itself (in a "
            "shell script by `exec`), run fewer iterations, mark a part of them with NVTX and "
            "give it as capture: {{nvtx: NAME}}, or select fewer kernels with select.top_k",
            minutes=minutes,
            wait_s=WAIT_S,
            waiting=time.waiting,
        )
    ]
