"""Wall and idle time of a run and of its stages, as findings and views need them."""

from __future__ import annotations

import math

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import ALL as ALL
from nsight_prof.reports.analysis.gpu_times import per_gpu_stages
from nsight_prof.reports.page import Number, Ref, Text, Verbatim

WORDS = {"prefill": Text("prefill"), "decode": Text("decode")}
"""Stages that have words of their own in each language."""
MOST_STAGES = 12
"""More names than this are no stages but NVTX ranges that a framework numbers."""
LEAST_STAGES = 0.5
"""Ranges with less of the GPU time are steps of libraries (CUB marks its own), not stages."""


def stage_words(stage: str) -> Text | Verbatim:
    """Return a stage as a sentence names it: in words of the field, a user's range as it is."""
    return WORDS.get(stage) or Verbatim(stage)


@once
def stage_rows(run: Run) -> list[Row]:
    """Return the stages, or the whole capture where the program has none; see `per_gpu_stages`."""
    stages = per_gpu_stages(run)
    capture = stages[stages["stage"] == ALL]
    ranges = stages[stages["stage"] != ALL]
    busy, total = ranges["kernel_ns"].sum(), capture["kernel_ns"].sum()
    if 0 < len(ranges) <= MOST_STAGES and busy >= LEAST_STAGES * total:
        return records(ranges)
    return records(capture)


@once
def program_time(run: Run) -> tuple[Number, Number]:
    """Return wall and idle time of the whole capture, else the sums over its stages.

    Of several GPUs the idle time is that of one on average.
    """
    stages = per_gpu_stages(run)
    rows = records(stages[stages["stage"] == ALL]) or stage_rows(run)
    return _sum(rows, "wall_ns"), _sum(rows, "idle_ns")


def _sum(rows: list[Row], column: str) -> Number:
    refs = tuple(Ref("stages", text(row["stage"]), column) for row in rows)
    return Number(sum(number(row[column]) for row in rows) if rows else None, "ns", refs)


def wall_time(run: Run) -> tuple[float, float]:
    """Return wall and idle time of `program_time` in ns; NaN where unknown."""
    wall, idle = program_time(run)
    return number(wall.value), number(idle.value)


def idle_share(row: Row) -> float:
    """Return idle over wall time of a stage, 0 to 1; NaN where unknown."""
    wall = number(row["wall_ns"])
    return number(row["idle_ns"]) / wall if wall > 0 else math.nan


def stages_note(run: Run) -> Text | None:
    """Say why the wall times of the stages do not add up to that of the capture; None if they do.

    The capture lasts from its first to its last work on the GPU. A stage also lasts from the start
    of its range to its first work, and from its last work to the end of its range (table `stages`).
    """
    rows, capture = stage_rows(run), run.stages[run.stages["stage"] == ALL]
    if capture.empty or not rows or rows[0]["stage"] == ALL:
        return None
    wall, stages = program_time(run)[0], _sum(rows, "wall_ns")
    excess = stages - wall
    if not abs(number(excess.value)) >= threshold("stage_sum") * number(wall.value):
        return None
    if number(excess.value) < 0:
        return Text("{time} of the capture lie in none of the stages.", time=wall - stages)
    return Text(
        "The stages add up to {excess} more than the capture ({wall}), which lasts from its first "
        "to its last work on the GPU. A stage also counts the idle time between the start or end "
        "of its range and this work; stages of several threads may overlap.",
        excess=excess,
        wall=wall,
    )
