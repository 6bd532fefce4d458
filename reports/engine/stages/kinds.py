"""Sums the engine steps of a trace by kind, beside what the model needed for them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.build.peaks import Peaks, peaks
from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.model_shape import ModelShape
from nsight_prof.reports.engine.stages.works import Counts, works
from nsight_prof.reports.load import Run
from nsight_prof.reports.serving.engine import Engine, engine_of, traced_requests
from nsight_prof.reports.serving.formulas import (
    Flops,
    Traffic,
    Work,
    total_flops,
    total_traffic,
)

KINDS = ("prefill", "mixed", "decode")
"""Kinds of steps that compute something, in the order of a report."""
NO_WORK = (
    "which tokens each step computed is not known: the requests of the trace were not recorded, "
    "or its steps do not fit them"
)


@dataclass(frozen=True)
class Needed:
    """What the model needed for the steps of a kind, on one GPU, summed over them."""

    flops: Flops
    traffic: Traffic
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Kind:
    """All steps of one kind on one GPU; times in ns are sums over the steps.

    `time_ns` is from the start of each step's GPU work to that of the next step (to its own end for
    the last step of the trace), so that busy and idle time add up to it. `step_ns` is the median of
    one step. `gaps` are (what the host did meanwhile, idle ns), the largest first.
    """

    kind: str
    steps: int
    requests: float
    tokens: int
    generated: int
    time_ns: float
    step_ns: float
    share: float
    kernel_ns: float
    busy_ns: float
    idle_inside_ns: float
    idle_after_ns: float
    collective_ns: float
    exposed_ns: float
    gaps: tuple[tuple[str, float], ...]
    needed: Needed | None

    @property
    def idle_ns(self) -> float:
        """Time in which nothing ran on the GPU."""
        return self.time_ns - self.busy_ns

    @property
    def mean_ns(self) -> float:
        """Time a step."""
        return self.time_ns / self.steps

    @property
    def flop_rate(self) -> float:
        """Needed FLOP/s; NaN where what was needed is not known."""
        return self.needed.flops.total / self.time_ns * 1e9 if self.needed else math.nan

    @property
    def read_rate(self) -> float:
        """Needed B/s of reading; NaN where what was needed is not known."""
        return self.needed.traffic.read / self.time_ns * 1e9 if self.needed else math.nan


@dataclass(frozen=True)
class Stages:
    """The kinds of a trace on its first GPU, with the engine and the roofs to hold them to."""

    kinds: tuple[Kind, ...]
    engine: Engine | None
    roofs: Peaks
    gpus: int
    span_ns: float
    steps: int
    reason: str

    @property
    def shard(self) -> ModelShape | None:
        """The part of the model on one GPU; None where the model is not known."""
        return self.engine.shard if self.engine else None

    def kind(self, name: str) -> Kind | None:
        """Return the steps of one kind; None where the trace has none."""
        return next((kind for kind in self.kinds if kind.kind == name), None)


def stages_of(run: Run) -> Stages | None:
    """Return the steps of a trace by kind; None where it has no engine steps with GPU work."""
    rows = [row for row in records(run.engine_steps) if not math.isnan(number(row["gpu_end_ns"]))]
    ranks = sorted({(count(row["device"]) or 0, count(row["pid"]) or 0) for row in rows})
    mine = [row for row in rows if (count(row["device"]), count(row["pid"])) == ranks[0]]
    mine.sort(key=lambda row: number(row["step"]))
    if not any(text(row["kind"]) in KINDS for row in mine):
        return None
    engine = engine_of(run)
    found, reason = _works(run, mine, engine)
    gaps = _gaps(run, ranks[0])
    whole = sum(_time(row) for row in mine)
    kinds = [_kind(name, mine, found, gaps, whole, engine) for name in KINDS]
    return Stages(
        kinds=tuple(kind for kind in kinds if kind is not None),
        engine=engine,
        roofs=peaks(run, engine.dtype if engine else ""),
        gpus=len({device for device, _ in ranks}),
        span_ns=whole,
        steps=len(mine),
        reason=reason,
    )


def _works(run: Run, rows: Sequence[Row], engine: Engine | None) -> tuple[dict[int, Work], str]:
    """Return the work of each step, and why it is not known for all."""
    if engine is None or engine.shard is None:
        why = engine.reason if engine else "the target recorded no engine"
        return {}, why
    steps = [row for row in rows if text(row["kind"]) in KINDS]
    counts = [
        Counts(
            count(row["prefill_requests"]) or 0,
            count(row["prefill_tokens"]) or 0,
            count(row["decode_requests"]) or 0,
            count(row["decode_tokens"]) or 0,
        )
        for row in steps
    ]
    made = works(counts, traced_requests(run))
    known_ones = {
        count(row["step"]) or 0: work
        for row, work in zip(steps, made, strict=True)
        if work is not None
    }
    return known_ones, "" if len(known_ones) == len(steps) else NO_WORK


def _kind(
    name: str,
    rows: Sequence[Row],
    found: dict[int, Work],
    gaps: dict[int, dict[str, float]],
    whole: float,
    engine: Engine | None,
) -> Kind | None:
    mine = [row for row in rows if text(row["kind"]) == name]
    if not mine:
        return None
    steps = [count(row["step"]) or 0 for row in mine]
    causes: dict[str, float] = defaultdict(float)
    for step in steps:
        for activity, idle in gaps.get(step, {}).items():
            causes[activity] += idle
    time = sum(_time(row) for row in mine)
    prompts, generated = _sum(mine, "prefill_tokens"), _sum(mine, "decode_tokens")
    requests = [number(r["prefill_requests"]) + number(r["decode_requests"]) for r in mine]
    return Kind(
        kind=name,
        steps=len(mine),
        requests=statistics.median(requests),
        tokens=round(prompts + generated),
        generated=round(generated),
        time_ns=time,
        step_ns=statistics.median(_time(row) for row in mine),
        share=time / whole if whole > 0 else math.nan,
        kernel_ns=_sum(mine, "kernel_ns"),
        busy_ns=_sum(mine, "busy_ns"),
        idle_inside_ns=_sum(mine, "idle_inside_ns"),
        idle_after_ns=_sum(mine, "idle_after_ns"),
        collective_ns=_sum(mine, "collective_ns"),
        exposed_ns=_sum(mine, "collective_exposed_ns"),
        gaps=tuple(sorted(causes.items(), key=lambda item: -item[1])),
        needed=_needed([found.get(step) for step in steps], engine),
    )


def _needed(made: list[Work | None], engine: Engine | None) -> Needed | None:
    ours = tuple(work for work in made if work is not None)
    if len(ours) < len(made) or engine is None or engine.shard is None:
        return None
    return Needed(total_flops(engine.shard, ours), total_traffic(engine.shard, ours), ours)


def _time(row: Row) -> float:
    """Return the time of a step: to the next one, or to its own end for the last."""
    period = known(row["period_ns"])
    return number(row["gpu_end_ns"]) - number(row["gpu_start_ns"]) if period is None else period


def _sum(rows: Sequence[Row], column: str) -> float:
    return sum(known(row[column]) or 0.0 for row in rows)


def _gaps(run: Run, rank: tuple[int, int]) -> dict[int, dict[str, float]]:
    """Return step -> what the host did -> idle time of the GPU."""
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in records(run.engine_gaps):
        if (count(row["device"]), count(row["pid"])) == rank:
            step = count(row["step"]) or 0
            found[step][text(row["activity"]) or text(row["cause"])] += number(row["idle_ns"])
    return found
