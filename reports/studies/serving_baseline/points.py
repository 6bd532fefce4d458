"""Points of the offline baseline, and how close their stages come to the roofs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.build.peaks import Peak, Peaks, peaks
from nsight_prof.parsers.cells import Row, count, grouped, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.serving.engine import Engine, engine_of
from nsight_prof.reports.serving.formulas import decode, flops, prefill, traffic
from nsight_prof.reports.serving.points import ServingPoint
from nsight_prof.reports.serving.scaling_fit import Scaling, fit_scaling

TARGET = "vllm-baseline"
GRAPHS, EAGER = "cuda-graphs", "eager"
BATCH = 8
"""Batch size of the other vLLM recipes."""


@dataclass(frozen=True)
class Load:
    """What a step must compute and read by the model's shape, and how close it is to the roofs.

    `flops` and `bytes` are those of one GPU, `mfu` and `mbu` their rates over the roofs, and
    `floor_s` is the time at the roofs. NaN where something is not known.
    """

    seconds: float
    flops: float
    bytes: float
    mfu: float
    mbu: float
    floor_s: float

    @property
    def memory_bound(self) -> bool | None:
        """Whether reading takes longer than computing at the roofs; None where not known."""
        if math.isnan(self.mfu) or math.isnan(self.mbu):
            return None
        return self.mbu > self.mfu


@dataclass(frozen=True)
class Point(ServingPoint):
    """One measured point, and the loads of its two stages."""

    prefill: Load
    decode: Load

    @property
    def experiment(self) -> str:
        """latency, batch, lengths or graphs."""
        return text(self.row["experiment"])

    @property
    def mode(self) -> str:
        """How the engine ran: cuda-graphs or eager."""
        return text(self.row["engine"])

    @property
    def mode_text(self) -> Text:
        """The mode for readers."""
        return Text("CUDA graphs") if self.mode == GRAPHS else Text("eager mode")

    @property
    def batch(self) -> int:
        """Requests that were sent at once."""
        return count(self.row["batch"]) or 0

    @property
    def step_s(self) -> float:
        """Seconds of a decode step: as the host timed it, else the time per output token."""
        step = self.value("decode_step_s")
        return self.value("tpot_p50_s") if math.isnan(step) else step

    @property
    def step(self) -> Number:
        """Time of a decode step."""
        return self.derived(self.step_s, "s")


@dataclass(frozen=True)
class Baseline:
    """All points of a run with what their engine and GPU are."""

    points: tuple[Point, ...]
    engine: Engine | None
    roofs: Peaks

    def of(self, experiment: str, mode: str = "") -> list[Point]:
        """Return the points of an experiment, of one mode of the engine where it is given."""
        found = [p for p in self.points if p.experiment == experiment]
        return [p for p in found if not mode or p.mode == mode]

    @property
    def mode(self) -> str:
        """The mode that the sweeps ran in."""
        modes = [p.mode for p in self.points if p.experiment in ("batch", "latency", "lengths")]
        return max(dict.fromkeys(modes), key=modes.count) if modes else GRAPHS

    @cached_property
    def batches(self) -> list[Point]:
        """The batch sweep, smallest first."""
        return sorted(self.of("batch", self.mode), key=lambda p: p.batch)

    @cached_property
    def pairs(self) -> list[tuple[Point, Point]]:
        """(eager, CUDA graphs) of the same batch and lengths, the smallest batch first."""
        shapes: dict[tuple[int, int, int], dict[str, Point]] = {}
        for point in self.points:
            if point.experiment in ("batch", "graphs"):
                key = (point.batch, point.prompt, point.output)
                shapes.setdefault(key, {}).setdefault(point.mode, point)
        both = [shapes[key] for key in sorted(shapes) if {EAGER, GRAPHS} <= shapes[key].keys()]
        return [(modes[EAGER], modes[GRAPHS]) for modes in both]

    @cached_property
    def batch_law(self) -> Scaling | None:
        """How the time of a whole batch grows with its size."""
        sweep = self.batches
        return fit_scaling([p.batch for p in sweep], [p.value("duration_s") for p in sweep])

    @property
    def recommended(self) -> Point | None:
        """The largest batch before the bend; the largest of all where scaling does not bend."""
        law = self.batch_law
        below = [p for p in self.batches if law is None or p.batch <= law.bend]
        return next(iter((below or self.batches[:1])[-1:]), None)

    @cached_property
    def first_tokens(self) -> dict[int, float]:
        """Median TTFT of a single request by prompt length, in seconds."""
        points = (p for p in self.of("lengths", self.mode) if p.value("ttft_p50_s") >= 0)
        by_prompt = sorted(grouped(points, lambda point: point.prompt).items())
        return {prompt: median(p.value("ttft_p50_s") for p in of) for prompt, of in by_prompt}

    @cached_property
    def prompt_law(self) -> Scaling | None:
        """How TTFT of a single request grows with its prompt."""
        first = self.first_tokens
        return fit_scaling(list(first), list(first.values()))


def baseline(run: Run) -> Baseline:
    """Return the points of the run that have times."""
    engine = engine_of(run)
    roofs = peaks(run, engine.dtype if engine else "")
    rows = run.serving_points
    cases = run.bench[run.bench["target"] == TARGET]["case_id"]
    rows = rows[rows["source"].eq("bench") & rows["case_id"].isin(cases)]
    done = [row for row in records(rows) if text(row["status"]) == MEASURED]
    return Baseline(tuple(_point(row, engine, roofs) for row in done), engine, roofs)


def _point(row: Row, engine: Engine | None, roofs: Peaks) -> Point:
    batch, prompt = count(row["batch"]) or 0, count(row["prompt_tokens"]) or 0
    output = count(row["output_tokens"]) or 0
    unknown = Load(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
    bare = Point(row, unknown, unknown)
    shard = engine.shard if engine else None
    if shard is None or not batch or not prompt:
        return bare
    # Attention and KV cache grow by a token per step: the step in the middle stands for all.
    first, middle = prefill(batch, prompt), decode(batch, prompt + output / 2)
    return Point(
        row,
        _load(
            number(row["prefill_s"]), flops(shard, first).total, traffic(shard, first).read, roofs
        ),
        _load(bare.step_s, flops(shard, middle).total, traffic(shard, middle).read, roofs),
    )


def _load(seconds: float, operations: float, read: float, roofs: Peaks) -> Load:
    compute, memory = _value(roofs.attained(operations / seconds)), _value(roofs.memory)
    return Load(
        seconds,
        operations,
        read,
        operations / seconds / compute,
        read / seconds / memory,
        max(operations / compute, read / memory),
    )


def _value(peak: Peak | None) -> float:
    return peak.value if peak is not None else math.nan
