"""Composes operators into engine steps, and steps into serving points, as vLLM schedules them.

A step takes max(host, GPU); the GPU's part is the sum of its operators and the gaps between them.
Requests are served by continuous batching: those that generate go first, the rest of the token
budget goes to prompts in the order of their arrival, the last of which is cut (chunked prefill).
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nsight_prof.parsers.model_shape import ModelShape
from nsight_prof.parsers.predict.costs import Costs, Estimate, Gpu
from nsight_prof.parsers.predict.operators import Operator, Step, operators

CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batch sizes that vLLM 0.20 captures as CUDA graphs where nothing is said."""
BATCHED_TOKENS = 8192
"""Tokens of a step that vLLM 0.20's server takes where nothing is said, on GPUs of 70 GiB."""
CONTEXT_STEP = 16
"""Contexts of decode are rounded to this many tokens: one block of the KV cache."""
HOST_BOUND = 0.25
"""Part of a time to first token that the GPU does not explain, from which on the host decides."""
VALUE, LOW, HIGH = range(3)


class Seconds(NamedTuple):
    """A time with the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Host:
    """What the host adds, in seconds; NaN: nothing recorded tells.

    `overhead_s`: from the arrival of a request to its first token, beside the step. `eager_s` and
    `graph_s`: least time of a step with prompts outside of and within CUDA graphs. `decode_s`: of
    one without. `gap_decode_s` and `gap_prefill_s`: the GPU is idle within a step.
    """

    overhead_s: float = math.nan
    eager_s: float = math.nan
    graph_s: float = math.nan
    decode_s: float = math.nan
    gap_decode_s: float = math.nan
    gap_prefill_s: float = math.nan


@dataclass(frozen=True)
class Engine:
    """Settings of the engine that decide how steps are made."""

    batched_tokens: int = BATCHED_TOKENS
    captured: tuple[int, ...] = CAPTURED

    def rows(self, step: Step) -> int:
        """Return what the tokens of a step are padded to; 0 where no graph is as large."""
        index = bisect.bisect_left(self.captured, step.tokens)
        return self.captured[index] if index < len(self.captured) else 0


@dataclass(frozen=True)
class Part:
    """One operator of a step with its time (of all calls), and what bounds it by the datasheet."""

    operator: Operator
    seconds: Seconds
    tier: str
    roofline_s: float
    bound: str


@dataclass(frozen=True)
class StepTime:
    """A step: its operators, the gaps between them, the host's least time, and what results."""

    step: Step
    rows: int
    breakdown: tuple[Part, ...]
    gap_s: float
    host_s: float
    seconds: Seconds

    @property
    def gpu_s(self) -> float:
        """Seconds of the GPU: kernels and gaps."""
        return sum(item.seconds.value for item in self.breakdown) + _known(self.gap_s)

    @property
    def bound(self) -> str:
        """What the step waits for: the GPU or the host."""
        return "host" if _known(self.host_s) > self.gpu_s else "gpu"


@dataclass
class Predictor:
    """Predicts steps of one model (the shard of one GPU) on one GPU and engine."""

    shape: ModelShape
    costs: Costs
    gpu: Gpu
    engine: Engine = field(default_factory=Engine)
    host: Host = field(default_factory=Host)
    _estimates: dict[Operator, Estimate] = field(default_factory=dict, repr=False)
    _steps: dict[Step, Seconds] = field(default_factory=dict, repr=False)

    def _estimate(self, operator: Operator) -> Estimate:
        if operator not in self._estimates:
            self._estimates[operator] = self.costs.of(operator)
        return self._estimates[operator]

    def step(self, step: Step) -> StepTime:
        """Return a step with its operators."""
        rows, breakdown = self.engine.rows(step), []
        for item in operators(self.shape, step, rows):
            found = self._estimate(item)
            times = Seconds(*(item.calls * v for v in (found.seconds, found.low, found.high)))
            roofline = item.calls * self.gpu.roofline(item)
            breakdown.append(Part(item, times, found.tier, roofline, self.gpu.bound(item)))
        gap, host = self._around(step, rows)
        return StepTime(step, rows, tuple(breakdown), gap, host, self.seconds(step))

    def seconds(self, step: Step) -> Seconds:
        """Return how long a step takes."""
        context = max(1, round(step.context / CONTEXT_STEP)) * CONTEXT_STEP if step.decode else 0
        step = Step(step.prefill, step.decode, context)
        if step not in self._steps:
            rows = self.engine.rows(step)
            gap, host = (_known(value) for value in self._around(step, rows))
            gpu = [gap, gap, gap]
            for item in operators(self.shape, step, rows):
                found = self._estimate(item)
                for index, value in enumerate((found.seconds, found.low, found.high)):
                    gpu[index] += item.calls * value
            self._steps[step] = Seconds(*(max(value, host) for value in gpu))
        return self._steps[step]

    def _around(self, step: Step, rows: int) -> tuple[float, float]:
        """Return gap and least time of the host of a step."""
        if not step.prefill:
            return self.host.gap_decode_s, self.host.decode_s
        return self.host.gap_prefill_s, self.host.graph_s if rows else self.host.eager_s


def _known(seconds: float) -> float:
    return 0.0 if math.isnan(seconds) else seconds


class Served(NamedTuple):
    """One request: when it came, and when its first and last token were there."""

    arrival_s: float
    first_s: float
    finish_s: float


def simulate(
    seconds: Callable[[Step], float],
    engine: Engine,
    prompt: int,
    output: int,
    concurrency: int,
    requests: int,
) -> list[Served]:
    """Return how `requests` alike are served that `concurrency` clients send one after the other.

    `seconds` gives the time of a step. With as many requests as clients it is one batch.
    """
    now, sent = 0.0, min(concurrency, requests)
    waiting: deque[list[float]] = deque([0.0, 0.0] for _ in range(sent))  # arrival, tokens done
    running: list[list[float]] = []  # arrival, first token, tokens generated
    served: list[Served] = []
    while waiting or running:
        budget, chunks = engine.batched_tokens - len(running), []
        for entry in waiting:
            new = int(min(prompt - entry[1], budget))
            if new <= 0:
                break
            chunks.append((new, int(entry[1])))
            budget -= new
        context = prompt + sum(r[2] for r in running) / len(running) if running else 0.0
        now += seconds(Step(tuple(chunks), len(running), context))
        still = []
        for request in running:
            request[2] += 1
            if request[2] < output:
                still.append(request)
            else:
                served.append(Served(request[0], request[1], now))
        for new, _ in chunks:
            waiting[0][1] += new
            if waiting[0][1] < prompt:
                break
            arrival = waiting.popleft()[0]
            if output > 1:
                still.append([arrival, now, 1])
            else:
                served.append(Served(arrival, now, now))
        running = still
        while sent < requests and len(waiting) + len(running) < concurrency:
            waiting.append([now, 0.0])
            sent += 1
    return served


PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True)
class Workload:
    """What is asked for: lengths in tokens, and requests at once or clients in a closed loop."""

    prompt: int
    output: int
    batch: int = 0
    concurrency: int = 0

    ROUNDS = 4
    """Requests of each client of a closed loop."""

    @property
    def together(self) -> int:
        """Requests that are there at a time."""
        return self.batch or self.concurrency

    @property
    def requests(self) -> int:
        """Requests in all."""
        return self.batch or self.concurrency * self.ROUNDS

    @property
    def name(self) -> str:
        """Name of the point."""
        kind = f"batch/b{self.batch}" if self.batch else f"closed/c{self.concurrency}"
        return f"{kind}/p{self.prompt}/o{self.output}"

    def steps(self) -> tuple[Step, Step]:
        """Return the steps that stand for it: all prompts at once, and decode half way."""
        return (
            Step(prefill=((self.prompt, 0),) * self.together),
            Step(decode=self.together, context=self.prompt + max(0, self.output - 1) / 2),
        )


def point(predictor: Predictor, workload: Workload) -> dict[str, float]:
    """Return the numbers of a serving point by column, each with its bounds (`_low`, `_high`).

    Bounds are the point with every operator at the lower, and at the upper end of its interval.
    """
    found: dict[str, float] = {}
    for which, label in ((VALUE, ""), (LOW, "_low"), (HIGH, "_high")):
        for name, value in _numbers(predictor, workload, which).items():
            found[f"{name}{label}"] = value
    for name in ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"):
        low, high = f"{name}_low", f"{name}_high"
        found[low], found[high] = found[high], found[low]
    return found


def _numbers(predictor: Predictor, work: Workload, which: int) -> dict[str, float]:
    served = simulate(
        lambda step: predictor.seconds(step)[which],
        predictor.engine,
        work.prompt,
        work.output,
        work.together,
        work.requests,
    )
    if not all(math.isfinite(item.finish_s) for item in served):
        return dict.fromkeys(NUMBERS, math.nan)
    extra = _known(predictor.host.overhead_s)
    first = np.array([item.first_s - item.arrival_s + extra for item in served])
    last = np.array([item.finish_s - item.arrival_s + extra for item in served])
    found = {"duration_s": max(item.finish_s for item in served) + extra}
    count = len(served)
    found["output_tokens_per_s"] = count * work.output / found["duration_s"]
    found["total_tokens_per_s"] = count * (work.output + work.prompt) / found["duration_s"]
    found["requests_per_s"] = count / found["duration_s"]
    found |= _spread("ttft", first) | _spread("e2e", last)
    steps = max(1, work.output - 1)
    tpot = (last - first) / steps if work.output > 1 else np.full(count, math.nan)
    found |= _spread("tpot", tpot)
    found["decode_step_s"] = predictor.seconds(work.steps()[1])[which]
    found["prefill_s"] = float(first.max()) if work.batch else math.nan
    return found


def _spread(name: str, values: Sequence[float] | np.typing.NDArray[np.float64]) -> dict[str, float]:
    shares = np.percentile(values, list(PERCENTILES.values()))
    labelled = zip(PERCENTILES, shares, strict=True)
    return {f"{name}_mean_s": float(np.mean(values))} | {
        f"{name}_{label}_s": float(value) for label, value in labelled
    }


NUMBERS = (
    "duration_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s",
    *(f"{name}_{q}_s" for name in ("ttft", "e2e", "tpot") for q in ("mean", *PERCENTILES)),
    "decode_step_s", "prefill_s",
)  # fmt: skip


def fitted_host(predictor: Predictor, points: Sequence[tuple[Workload, float]]) -> Host:
    """Return the host's part of the time to first token, from measured points of one step.

    `points`: workloads whose prompts fit one step, with their measured TTFT in seconds. What no
    point tells stays unknown.
    """
    bare = Predictor(
        predictor.shape,
        predictor.costs,
        predictor.gpu,
        predictor.engine,
        Host(gap_prefill_s=predictor.host.gap_prefill_s),
    )
    gap = _known(predictor.host.gap_prefill_s)
    rows = [
        (work.steps()[0], ttft, ttft - bare.seconds(work.steps()[0]).value) for work, ttft in points
    ]
    long = [row for row in rows if not predictor.engine.rows(row[0])]
    busy = [unexplained for _, ttft, unexplained in long if unexplained < HOST_BOUND * ttft]
    # Under nsys the gaps are longer than without: the overhead may take some of them back.
    overhead = max(-gap, float(np.median(busy))) if busy else math.nan

    def host_time(chosen: list[tuple[Step, float, float]]) -> float:
        """Return the time of the shortest prompts where the GPU does not explain it."""
        fewest = min((step.tokens for step, _, _ in chosen), default=0)
        waits = [
            ttft - _known(overhead)
            for step, ttft, unexplained in chosen
            if step.tokens == fewest and unexplained >= HOST_BOUND * ttft
        ]
        return max(0.0, float(np.median(waits))) if waits else math.nan

    short = [row for row in rows if predictor.engine.rows(row[0])]
    return replace(
        predictor.host, overhead_s=overhead, eager_s=host_time(long), graph_s=host_time(short)
    )
