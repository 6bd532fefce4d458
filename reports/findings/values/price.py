"""What lines cost whose operators could be left out: kernels of the trace, and waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number, text
from nsight_prof.parsers.names.stacks import with_callers
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import host_rows, launched_time
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import ALL, program_time, stage_rows
from nsight_prof.reports.findings.gain import of_gpu_time, of_host, of_wall_time
from nsight_prof.reports.findings.program.rule import LISTED, column
from nsight_prof.reports.page import Number, Ref

RECORDED = 0.8
"""Part of the time launched within a line that is known by operators, to leave the line out."""
At = tuple[str, int]
"""File and line."""


class Price(NamedTuple):
    """What lines take of the GPU, what goes of it with what is left out, and of waits for them."""

    time: Number
    saved: Number
    waits: Number
    kernel_ids: tuple[str, ...]
    stage: str
    total: Number
    wall: Number

    @property
    def share(self) -> float:
        """Part of the time of the program that goes: of its wall time where the GPU waits."""
        of = self.wall if self.waits.value else self.total
        return number((self.saved + self.waits).share_of(of).value)

    @property
    def gains(self) -> dict[str, Any]:
        """Fields of a finding."""
        gains = of_gpu_time(self.saved, self.time, self.total)
        if self.waits.value:
            gains |= of_wall_time(self.saved + self.waits, self.wall)
        return gains


def price(run: Run, calls: pd.DataFrame, saved: pd.Series[float], places: Iterable[At]) -> Price:
    """Return what places cost, from `saved`: the time of operators there that can be left out.

    `calls` are the operators of the run (`operator_calls`). Their times are weights: of all that is
    launched at a place, or within it, as much goes as of the time of its operators; of the time in
    which the GPU waits for the host there, as much as of their calls.
    """
    work = calls[calls["is_work"]]
    fractions: dict[At, tuple[float, float]] = {}
    for site in places:
        inside = work[[any((f[0], f[2]) == site for f in stack) for stack in work["stack"]]]
        here = saved.reindex(inside.index, fill_value=0.0)
        left_out = (inside["calls"] * here / inside["time_ns"].where(inside["time_ns"] > 0)).sum()
        fractions[site] = (
            float(here.sum() / max(1.0, inside["time_ns"].sum())),
            float(left_out / max(1, inside["calls"].sum())),
        )
    rows = _within(launched_time(run), fractions, 0)
    idle = host_rows(run, idle=True)
    waiting = (
        _within(with_callers(idle.reset_index(drop=True)), fractions, 1) if len(idle) else idle
    )
    refs = (*column("kernels", "total_ns"), Ref("launch_lines", "", "samples"))
    waits = number((waiting["idle_ns"] * waiting["part"]).sum()) if len(waiting) else 0.0
    of_kernel = rows.groupby("kernel_id")["gpu_ns"].sum() if len(rows) else pd.Series(dtype=float)
    return Price(
        Number(float(of_kernel.sum()), "ns", refs),
        Number(float((rows["gpu_ns"] * rows["part"]).sum()) if len(rows) else 0.0, "ns", refs),
        Number(
            of_host(run, waits) if waits > 0 else 0.0, "ns", (Ref("host_lines", "", "idle_ns"),)
        ),
        tuple(map(str, of_kernel.sort_values(ascending=False).index[:LISTED])),
        _stage(run, waiting) if waits > 0 else "",
        Number(kernel_time(run), "ns", column("kernels", "total_ns")),
        program_time(run)[0],
    )


def _stage(run: Run, rows: pd.DataFrame) -> str:
    """Return the stage in which the GPU waits, as findings about idle time name it."""
    longest = str(rows.groupby("stage")["idle_ns"].sum().idxmax())
    return longest if longest in {text(row["stage"]) for row in stage_rows(run)} else ALL


class Launches:
    """Where a trace shows that kernels are launched, and how long these take."""

    def __init__(self, run: Run) -> None:
        rows = launched_time(run)
        self._stacks: list[tuple[list[tuple[str, str, int]], float]] = []
        for _, stack in rows.sort_values("depth").groupby("launch") if len(rows) else ():
            frames = zip(stack["file"], stack["function"], stack["line"], strict=True)
            inwards = [(str(file), str(name), int(n or 0)) for file, name, n in frames][::-1]
            self._stacks.append((inwards, float(stack["gpu_ns"].iloc[0])))

    def are_all(self, frames: Sequence[tuple[str, str, int]], lines: set[Any]) -> bool:
        """Tell whether what is launched within a line, or within a function that it calls, is
        launched at some lines, nearly all of it; also where nothing is.
        """
        inside = [
            (stack[-1] in lines, time)
            for stack, time in self._stacks
            if frames[0] in stack and _calls(stack[stack.index(frames[0]) + 1 :], frames[1:])
        ]
        return sum(t for known, t in inside if known) >= RECORDED * sum(t for _, t in inside)


def _calls(inner: Sequence[Any], called: Sequence[Any]) -> bool:
    return not called or bool(inner and inner[0][:2] == called[0][:2])


def _within(
    rows: pd.DataFrame, fractions: dict[At, tuple[float, float]], which: int
) -> pd.DataFrame:
    """Return rows of lines and those around them that are at places, each once, with its part."""
    if rows.empty:
        return rows
    places = list(zip(rows["file"], rows["line"], strict=True))
    rows = rows.assign(
        part=[fractions.get(at, (0.0, 0.0))[which] for at in places],
        row=rows.get("launch", rows.index),
    )
    return rows[[at in fractions for at in places]].drop_duplicates("row")
