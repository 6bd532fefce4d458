"""Engine steps of a trace by kind, beside the FLOPs and bytes that the model needs for them.

And what a decode step costs at other batches, as the target timed them without a profiler.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from nsight_prof.parsers.build.peaks import Peak, Peaks, peaks
from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.model_shape import ModelShape
from nsight_prof.reports.analysis.timeline import range_times
from nsight_prof.reports.engine.stages.names import KIND_NAMES
from nsight_prof.reports.page import Number, Ref, Text, Value, Verbatim
from nsight_prof.reports.serving.engine import ENCODER, Engine, Requests, engine_of, traced_requests
from nsight_prof.reports.serving.formulas import (
    Flops,
    Traffic,
    Work,
    decode,
    floor_s,
    mbu,
    total_flops,
    total_traffic,
    traffic,
)

PREFERRED = ("operators", "bench", "untraced", "trace")
"""Steps of a run, the one whose times stand beside the trace's last."""
NO_WORK = Text(
    "which tokens each step computed is not known: the requests of the trace were not recorded, or "
    "its steps do not fit them"
)
SUMS = {
    "time_ns": "time_ns",
    "kernel_ns": "kernel_ns",
    "busy_ns": "busy_ns",
    "idle_inside_ns": "idle_inside_ns",
    "idle_after_ns": "idle_after_ns",
    "collective_ns": "collective_ns",
    "exposed_ns": "collective_exposed_ns",
}
"""Field of a kind -> column of engine_steps that it is the sum of."""


@dataclass(frozen=True)
class Counts:
    """Requests and new tokens of one step, of prompts and of requests that go on."""

    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int


@dataclass
class _Prompt:
    pending: int
    done: int
    outputs: int


def works(steps: Iterable[Counts], batches: Sequence[Requests]) -> list[Work | None]:
    """Return the work of each step; None from the step on that `batches` do not explain.

    The trace has the requests and new tokens of each step. What they had in the KV cache follows
    from vLLM's scheduler: first come, first served, a prompt that does not fit is cut, and requests
    that have a token go on (vllm/v1/core/sched/scheduler.py, 0.20).
    So a trace that began in the middle of a batch gives no work rather than a wrong one.
    """
    waiting = deque(
        _Prompt(batch.prompt_tokens, 0, batch.output_tokens)
        for batch in batches
        for _ in range(batch.batch)
    )
    running: list[_Prompt] = []
    found: list[Work | None] = []
    explained = bool(batches)
    for step in steps:
        work = _step(step, waiting, running) if explained else None
        explained = work is not None
        found.append(work)
    return found


def _step(step: Counts, waiting: deque[_Prompt], running: list[_Prompt]) -> Work | None:
    if step.decode_requests > len(running) or step.decode_tokens != step.decode_requests:
        return None
    if step.prefill_requests > len(waiting):
        return None
    going_on = running[: step.decode_requests]
    decode = tuple(request.done for request in going_on)
    chunks = []
    tokens = step.prefill_tokens
    prompts = list(waiting)[: step.prefill_requests]
    for prompt in prompts:
        new = min(prompt.pending, tokens)
        # Only the last prompt of a step is cut.
        if new <= 0 or (new < prompt.pending and prompt is not prompts[-1]):
            return None
        chunks.append((new, prompt.done))
        tokens -= new
    if tokens:
        return None
    for request in going_on:
        request.done += 1
        request.outputs -= 1
    for new, _ in chunks:
        prompt = waiting[0]
        prompt.pending, prompt.done = prompt.pending - new, prompt.done + new
        if prompt.pending == 0:
            running.append(waiting.popleft())
            running[-1].outputs -= 1
    running[:] = [request for request in running if request.outputs != 0]
    return Work(tuple(chunks), decode)


@dataclass(frozen=True)
class Batch:
    """A decode step of one batch: seconds by the host's clock, without a profiler.

    `prompt` and `output` are tokens of each request, `rate` the output tokens per second over the
    whole batch, its prompts too. `floor_s` and `mbu` are NaN where the model or a roof is not
    known.
    """

    batch: int
    context: int
    prompt: int
    output: int
    seconds: float
    rate: float
    floor_s: float = math.nan
    mbu: float = math.nan

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second while the batch decodes."""
        return self.batch / self.seconds


def batches(run: Run, stages: Stages) -> tuple[Batch, ...]:
    """Return the timed batches, the smallest first: those of one step of the run and one mode."""
    groups: dict[tuple[str, str, int], dict[int, Row]] = defaultdict(dict)
    modes = ("", stages.engine.mode) if stages.engine and stages.engine.mode else None
    for row in records(run.serving_points):
        size, prompt, mode = count(row["batch"]), count(row["prompt_tokens"]), text(row["engine"])
        timed = known(row["decode_step_s"]) is not None and text(row["status"]) == "ok"
        if not timed or str(row["traced"]) == "True" or size is None or prompt is None:
            continue
        if modes is None or mode in modes:
            groups[text(row["source"]), mode, prompt].setdefault(size, row)
    if not groups:
        return ()
    rank = {source: n for n, source in enumerate(PREFERRED)}
    best = max(groups, key=lambda key: (len(groups[key]), rank.get(key[0], -1)))
    return tuple(_batch(size, row, stages) for size, row in sorted(groups[best].items()))


def _batch(size: int, row: Row, stages: Stages) -> Batch:
    prompt, output = count(row["prompt_tokens"]) or 0, count(row["output_tokens"]) or 0
    # The median step of a batch has half of its output in the cache.
    context = prompt + output // 2
    seconds, rate = number(row["decode_step_s"]), number(row["output_tokens_per_s"])
    batch = Batch(size, context, prompt, output, seconds, rate)
    read, compute = stages.roofs.memory, stages.roofs.fastest
    if stages.shard is None or read is None:
        return batch
    work = decode(size, context)
    floor = floor_s(stages.shard, work, read.value, compute.value if compute else math.inf)
    used = mbu(traffic(stages.shard, work).read, seconds, read.value)
    return replace(batch, floor_s=floor, mbu=used)


@dataclass(frozen=True)
class ModelWork:
    """What the model needs for the steps of a kind, on one GPU, summed over them."""

    flops: Flops
    traffic: Traffic
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Floor:
    """The least time of a step by the roofs, and the roof that sets it."""

    limited_by: str
    roof: Peak
    seconds: float


@dataclass(frozen=True)
class Kind:
    """All steps of one kind on one GPU; times in ns are sums over the steps.

    `time_ns` is from the start of each step's GPU work to that of the next step (to its own end for
    the last step of the trace), so that busy and idle time add up to it; `encoder_ns` of it are
    the vision encoder and the projector, where they have ranges. `step_ns` is the median of one
    step. `gaps` are (what the host did meanwhile, idle ns), the largest first.
    """

    kind: str
    steps: int
    requests: float
    tokens: int
    generated: int
    time_ns: float
    encoder_ns: float
    encoder_idle_ns: float
    step_ns: float
    share: float
    kernel_ns: float
    busy_ns: float
    idle_inside_ns: float
    idle_after_ns: float
    collective_ns: float
    exposed_ns: float
    gaps: tuple[tuple[str, float], ...]
    work: ModelWork | None
    floor: Floor | None

    @property
    def idle_ns(self) -> float:
        """Time in which nothing ran on the GPU."""
        return self.time_ns - self.busy_ns

    @property
    def mean_ns(self) -> float:
        """Time per step."""
        return self.time_ns / self.steps

    @property
    def model_ns(self) -> float:
        """Time of the language model, whose work is known: without the encoder."""
        return self.time_ns - self.encoder_ns

    @property
    def model_idle_ns(self) -> float:
        """Part of it in which nothing ran on the GPU."""
        return self.idle_ns - self.encoder_idle_ns

    @property
    def flop_rate(self) -> float:
        """Needed FLOP/s; NaN where the work is not known."""
        return self.work.flops.total / self.model_ns * 1e9 if self.work else math.nan

    @property
    def read_rate(self) -> float:
        """Needed B/s of reading; NaN where the work is not known."""
        return self.work.traffic.read / self.model_ns * 1e9 if self.work else math.nan

    def power_ns(self, roofs: Peaks) -> float:
        """Return by how much the power limit lengthens a step: it lowers clock and roof.

        0 where that is not known, and for steps that end before it does so.
        """
        floor, work, steady = self.floor, self.work, roofs.steady
        if floor is None or work is None or steady is None or floor.limited_by == "memory":
            return 0.0
        lasting_ns = work.flops.total / steady.value / self.steps * 1e9
        ends_before = lasting_ns * self.steps > self.model_ns - self.model_idle_ns
        return 0.0 if ends_before else max(0.0, lasting_ns - floor.seconds * 1e9)

    @property
    def over_floor(self) -> Number:
        """Time of the language model in a step over its floor."""
        floor = self.floor.seconds * 1e9 if self.floor else None
        return self.per_step("model_ns").times(Number(floor, "ns"))

    def per_step(self, field: str) -> Number:
        """Return one of its times as that of a step."""
        column = SUMS.get(field, "period_ns")
        total_ns = getattr(self, field)
        return self.number(total_ns / self.steps, "ns", column).by(
            Text("{a} / {b}", a=Number(total_ns, "ns", digits=4), b=self.steps)
        )

    def number(self, value: float | None, unit: str, column: str = "") -> Number:
        """Return a value that rests on its steps."""
        return Number(value, unit, (Ref("engine_steps", self.kind, column),))


@dataclass(frozen=True)
class Stages:
    """The kinds of a trace on its first GPU, with the engine and the roofs to hold them to."""

    kinds: tuple[Kind, ...]
    engine: Engine | None
    roofs: Peaks
    gpus: int
    span_ns: float
    steps: int
    reason: Value | None

    @property
    def shard(self) -> ModelShape | None:
        """The part of the model on one GPU; None where the model is not known."""
        return self.engine.shard if self.engine else None

    def kind(self, name: str) -> Kind | None:
        """Return the steps of one kind; None where the trace has none."""
        return next((kind for kind in self.kinds if kind.kind == name), None)


def timed_steps(run: Run) -> pd.DataFrame:
    """Return steps with GPU work, with columns `time_ns` and `idle_here_ns`.

    Both are of the time to the next step; of the last step, to its own end.
    """
    frame = run.engine_steps.dropna(subset=["gpu_start_ns", "gpu_end_ns"]).copy()
    alone = frame["gpu_end_ns"] - frame["gpu_start_ns"]
    frame["time_ns"] = frame["period_ns"].fillna(alone)
    frame["idle_here_ns"] = frame["idle_ns"].fillna(frame["idle_inside_ns"])
    return frame


def first_gpu(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of the first GPU in their order."""
    first = steps.sort_values(["device", "pid"]).head(1)
    return steps.merge(first[["device", "pid"]]).sort_values("step")


def stages_of(run: Run) -> Stages | None:
    """Return the steps of a trace by kind; None where it has no engine steps with GPU work."""
    every = timed_steps(run)
    steps = first_gpu(every)
    if not steps["kind"].isin(list(KIND_NAMES)).any():
        return None
    engine = engine_of(run)
    roofs = peaks(run, engine.dtype if engine else "")
    found, reason = _works(run, steps, engine)
    gaps = run.engine_gaps.merge(steps[["step", "device", "pid", "kind"]])
    gaps["activity"] = gaps["activity"].replace("", pd.NA).fillna(gaps["cause"])
    idle = gaps.groupby(["kind", "activity"])["idle_ns"].sum().sort_values(ascending=False)
    span = float(steps["time_ns"].sum())
    encoder = range_times(run, ENCODER).groupby("stage")[["wall_ns", "busy_ns"]].sum()
    kinds = []
    for name in KIND_NAMES:
        rows = steps[steps["kind"] == name]
        if len(rows):
            work = _model_work([found.get(int(step)) for step in rows["step"]], engine)
            by_activity = idle.loc[[name]].droplevel(0) if name in idle.index else idle.iloc[:0]
            causes = tuple((str(key), float(ns)) for key, ns in by_activity.items())
            kinds.append(_kind(name, rows, span, encoder, causes, work, roofs))
    return Stages(tuple(kinds), engine, roofs, every["device"].nunique(), span, len(steps), reason)


def _works(
    run: Run, steps: pd.DataFrame, engine: Engine | None
) -> tuple[dict[int, Work], Value | None]:
    """Return the work of each step, and why it is not known for all."""
    if engine is None or engine.shard is None:
        return {}, Verbatim(engine.reason) if engine else Text("the target recorded no engine")
    rows = records(steps[steps["kind"].isin(list(KIND_NAMES))])
    found = works([_counts(row) for row in rows], traced_requests(run))
    by_step = {
        int(row["step"]): work
        for row, work in zip(rows, found, strict=True)
        if work is not None
    }  # fmt: skip
    return by_step, None if len(by_step) == len(rows) else NO_WORK


def _counts(row: Row) -> Counts:
    names = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    return Counts(*(count(row[name]) or 0 for name in names))


def _model_work(found: Sequence[Work | None], engine: Engine | None) -> ModelWork | None:
    works = tuple(work for work in found if work is not None)
    if len(works) < len(found) or engine is None or engine.shard is None:
        return None
    return ModelWork(total_flops(engine.shard, works), total_traffic(engine.shard, works), works)


def _kind(
    name: str,
    rows: pd.DataFrame,
    span: float,
    encoder: pd.DataFrame,
    gaps: tuple[tuple[str, float], ...],
    work: ModelWork | None,
    roofs: Peaks,
) -> Kind:
    sums = {field: float(rows[column].fillna(0).sum()) for field, column in SUMS.items()}
    generated = int(rows["decode_tokens"].sum())
    wall, busy = (float(encoder[column].get(name, 0.0)) for column in ("wall_ns", "busy_ns"))
    return Kind(
        kind=name,
        steps=len(rows),
        requests=float((rows["prefill_requests"] + rows["decode_requests"]).median()),
        tokens=int(rows["prefill_tokens"].sum()) + generated,
        generated=generated,
        encoder_ns=wall,
        encoder_idle_ns=wall - busy,
        step_ns=float(rows["time_ns"].median()),
        share=sums["time_ns"] / span if span > 0 else math.nan,
        gaps=gaps,
        work=work,
        floor=_floor(work, len(rows), roofs),
        **sums,
    )


def _floor(work: ModelWork | None, steps: int, roofs: Peaks) -> Floor | None:
    if work is None:
        return None
    compute, memory = roofs.fastest, roofs.memory
    if compute is None or memory is None:
        return None
    reading = work.traffic.read / memory.value / steps
    computing = work.flops.total / compute.value / steps
    if reading > computing:
        return Floor("memory", memory, reading)
    return Floor("arithmetic", compute, computing)
