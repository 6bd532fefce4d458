"""Composes operators into engine steps, and steps into serving points, as vLLM schedules them.

A step takes max(host, GPU); the GPU's part is the sum of its operators and the gaps between them.
Requests are served by continuous batching: those that generate go first, the rest of the token
budget goes to prompts in the order of their arrival, the last of which is cut (chunked prefill).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.corrections import LONG_TOKENS, THROUGHPUT, Correction, Factors
from nsight_prof.parsers.predict.costs import Costs, Estimate, Gpu, Power
from nsight_prof.parsers.predict.front_end import FrontEnd
from nsight_prof.parsers.predict.operators import (
    FEW,
    Kind,
    Operator,
    Step,
    operators,
    padded_rows,
)
from nsight_prof.parsers.predict.trace import PROFILED
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import ModelShape

CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batch sizes that vLLM 0.20 captures as CUDA graphs where nothing is said."""
BATCHED_TOKENS = 8192
"""Tokens of a step that vLLM 0.20's server takes where nothing is said, on GPUs of 70 GiB."""
LARGE_GPU_BYTES = 70 * 2**30
MAX_NUM_SEQS, MAX_NUM_SEQS_SMALL = 1024, 256
"""Requests at a time that vLLM 0.20 runs where nothing is said: on GPUs of 70 GiB and on others
(`EngineArgs`, defaults by usage context)."""
CONTEXT_STEP = 16
"""Contexts of decode are rounded to this many tokens: one block of the KV cache."""
HOST_BOUND = 0.25
"""Part of a time to first token that the GPU does not explain, from which on the host decides."""
LOADING_TOKENS = 400
"""Tokens of a step from which on its products keep the Tensor Cores busy, and heat the GPU: twice
the FLOP per byte at which both roofs of an H200 meet."""
ISSUE_SPREAD = (1.0, 0.7, 1.3)
"""Value and bounds of the time in which the host issues prompts: of two recorded servers it changed
so from load to load."""
SLOW_HOST = 1.5
"""How many times as long the slower of the host's two speeds takes (docs/accuracy.md)."""
SERVED_SPEEDS = (1 / PROFILED, SLOW_HOST / PROFILED)
"""Both speeds over that of a trace, which is the faster one under the profiler."""
MEAN_SPEEDS = (2 / (1 + SLOW_HOST), 2 * SLOW_HOST / (1 + SLOW_HOST))
"""Both speeds over their mean, as engines without a profiler tell it."""
SPEED_S = 0.3
"""Seconds for which a server's host has one of its speeds, each half of the time: of 1,056 runs
of a loop of Python (vCPUs beside an H200) 51 % were slow; speeds 0.3 s apart correlate by 0.2."""
GPU_BOUND = 0.1
"""Part by which a measured step may differ from its kernels where these decide."""
HIDDEN = 1.3
"""How many times the host's time for a step kernels must take to hide it."""
UNTRACED = 0.98
"""What a step that generates takes without nsys, over the sum of its traced kernels and gaps: the
median of recorded slices (0.97 to 1.00)."""
UNTRACED_ADAPTED = 1.01
"""The same with adapters, whose kernels are launched before the last ones end: between two recorded
models (docs/accuracy.md). Steps of a slice that wait for the host tell nothing of it."""
UNDISTURBED = 25
"""Percentile of measured over traced steps that counts: the host makes some longer, not shorter."""
VALUE, LOW, HIGH = range(3)
GPU, HOST, IN_GRAPHS = "gpu", "host", "host in graphs"
"""What a step or a first token waits for; prompts within CUDA graphs wait for less of the host."""
QUEUED = "queued"
"""A load of clients whose prompts do not fit one step: they wait for each other."""


def captured_sizes(requests: int, drafted: int = 0) -> list[int]:
    """Return the batch sizes that vLLM 0.20 captures where it runs so many requests at most.

    With drafts they are whole numbers of requests (`adjust_cudagraph_sizes_for_spec_decode`).
    """
    each = 1 + drafted
    limit = min(2 * requests * each, CAPTURED[-1])
    return whole_requests([size for size in CAPTURED if size <= limit], drafted, limit)


def whole_requests(sizes: Sequence[int], drafted: int, limit: int) -> list[int]:
    """Return batch sizes as whole numbers of requests with their drafts, of at most so many."""
    each = 1 + drafted
    rounded = {-(-size // each) * each for size in sizes}
    return sorted(size for size in rounded if size <= limit)


class Seconds(NamedTuple):
    """A time with the bounds of its interval."""

    value: float
    low: float
    high: float


ISSUES = ("eager_s", "graph_s", "issue_s", "issue_graph_s")
"""Times in which a host issues steps with prompts."""
ENGINE_TIMES = (*ISSUES, "decode_s", "each_s")
SERVER_TIMES = ("frontend_s", "request_s", "token_s")
TRACE_TIMES = ("overhead_s", "lead_s")
OTHER_TIMES = ("others_s", "others_graph_s")
"""Times of a host: those of an engine, of the event loop of a server, those that a trace alone
tells, and those of other models' engines."""
HOST_TIMES = (*ENGINE_TIMES, *SERVER_TIMES, *TRACE_TIMES, *OTHER_TIMES)


@dataclass(frozen=True)
class Host:
    """What the host adds, in seconds; NaN: nothing recorded tells.

    `overhead_s`: from the arrival of a request to its first token, beside what the engine waits
    for: the step, and the host that issues the next one. `lead_s`: the GPU waits for prompts that
    come to an idle engine. `eager_s` and `graph_s`: least time of a step with prompts outside of
    and within CUDA graphs. `decode_s`: of one without, `decode_slow` times which the slowest took
    where a head drafts tokens. `each_s`: what each further request adds to a step: it is scheduled,
    and its token handed on, by itself. One process does that and issues kernels where there is one
    GPU; over several each has a process that issues, to which the engine's sends what it schedules,
    so that the longer of both counts. `gap_decode_s` and `gap_prefill_s`: the GPU is idle
    within a step. `frontend_s`: until the server has passed a single request on to the
    engine, of which its event loop is busy for `request_s`; with each token that it sends it is
    for `token_s`. `untraced`: what a step that generates takes the GPU without the profiler, over
    what its traced kernels and gaps sum to. `issue_s` and `issue_graph_s`: in which the host issues
    a step with prompts outside of and within CUDA graphs, by the trace of an engine. `others_s` and
    `others_graph_s`: the same as engines of other models needed it for batches, without a profiler.
    `mean_speed`: what is known is a mean over both speeds of a host. `issue_speeds`: how many times
    as long as these times, medians, prompts took of an engine whose GPU was kept busy: its fastest
    and slowest, and the mean of its faster and of its slower half; empty: nobody kept one busy.
    """

    overhead_s: float = math.nan
    eager_s: float = math.nan
    graph_s: float = math.nan
    decode_s: float = math.nan
    each_s: float = math.nan
    gap_decode_s: float = math.nan
    gap_prefill_s: float = math.nan
    frontend_s: float = math.nan
    untraced: float = 1.0
    request_s: float = math.nan
    token_s: float = math.nan
    issue_s: float = math.nan
    issue_graph_s: float = math.nan
    lead_s: float = math.nan
    decode_slow: float = 1.0
    mean_speed: bool = False
    others_s: float = math.nan
    others_graph_s: float = math.nan
    issue_speeds: tuple[float, ...] = ()

    def of_batches(self) -> Host:
        """Return the host of an engine in one process with what gives it batches, as others had it.

        A server's engine is a process of its own: what it needs differs from start to start around
        what a trace tells.
        """
        if math.isnan(self.others_s):
            return self
        return replace(
            self,
            eager_s=math.nan,
            graph_s=math.nan,
            issue_s=self.others_s,
            issue_graph_s=self.others_graph_s,
            others_s=math.nan,
            mean_speed=True,
        )

    def with_others(self, eager_s: float, graph_s: float) -> Host:
        """Return the host with what engines of other models needed for prompts.

        Where a narrow engine told it, that of batches is half way to it: a host differs from itself
        minutes later as much as from others, and both tell as much of the next one. That of a
        server is half way where a trace told it, which one host of another day had under nsys.
        """
        both = (self.eager_s, eager_s), (self.graph_s, graph_s)
        beyond, within = (
            others if math.isnan(here) else math.sqrt(here * others) for here, others in both
        )
        host = replace(self, others_s=beyond, others_graph_s=within)
        if math.isnan(self.issue_s):
            return host
        traced = sum(SERVED_SPEEDS) / len(SERVED_SPEEDS)
        return replace(
            host,
            issue_s=math.sqrt(traced * self.issue_s * eager_s),
            issue_graph_s=math.sqrt(traced * self.issue_graph_s * graph_s),
            mean_speed=True,
        )

    def issue_spread(self, *, prompts: bool) -> tuple[float, float, float]:
        """Return value and bounds of the time to issue a step, over what is known of it.

        None where a busy GPU told how the host differs from itself: `Predictor.host_range` has it.
        """
        if self.issue_speeds:
            return 1.0, 1.0, 1.0
        return ISSUE_SPREAD if prompts else (1.0, 1.0, self.decode_slow)

    def at_speed(self, speed: float) -> Host:
        """Return the host where it needs so many times as long to issue prompts."""
        return self.scaled(dict.fromkeys(ISSUES, speed))

    def scaled(self, times: Mapping[str, float]) -> Host:
        """Return the host where each of `times` is so many times as long."""
        found = {name: factor * getattr(self, name) for name, factor in times.items()}
        return replace(self, **found)

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it."""
        return any(math.isfinite(getattr(self, name)) for name in HOST_TIMES)

    @property
    def in_graphs_s(self) -> float:
        """Least time of a step with prompts within CUDA graphs, by points or by a trace."""
        return float(np.fmax(self.graph_s, self.issue_graph_s))  # NaN where neither is known

    @property
    def beyond_graphs_s(self) -> float:
        """The same beyond them."""
        return float(np.fmax(self.eager_s, self.issue_s))

    def front_end(self) -> FrontEnd[_Live]:
        """Return the server; what is not known takes no time."""
        alone = _known(self.frontend_s)
        request = min(alone, _known(self.request_s))
        return FrontEnd(request, _known(self.token_s), alone - request)


@dataclass(frozen=True)
class Engine:
    """Settings of the engine that decide how steps are made.

    `drafted`: tokens that are proposed in each step for each request that generates; such a step
    gives it `accept` tokens on average, the model's own included.
    """

    batched_tokens: int = BATCHED_TOKENS
    captured: tuple[int, ...] = CAPTURED
    max_requests: int = MAX_NUM_SEQS
    drafted: int = 0
    accept: float = 1.0

    def tokens(self, step: Step) -> int:
        """Return the tokens that a step computes, with those that are drafted."""
        return step.tokens + self.drafted * step.decode

    def rows(self, step: Step) -> int:
        """Return what the tokens of a step are padded to; 0 where no graph is as large."""
        return padded_rows(self.captured, self.tokens(step))


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
        return HOST if _known(self.host_s) > self.gpu_s else GPU


@dataclass(frozen=True)
class Exposed:
    """How long the GPU waits for the host before a step, by how many requests generate in it."""

    by_requests: Mapping[int, Seconds] = field(default_factory=dict)

    def of(self, step: Step) -> Seconds:
        """Return what a step waits: between the numbers that are known, and at most the ends.

        One of prompts alone waits for nothing: what it gave comes without the next one.
        """
        known = sorted(self.by_requests.items())
        if not (known and step.decode):
            return Seconds(0.0, 0.0, 0.0)
        sizes, waits = [size for size, _ in known], zip(*(times for _, times in known), strict=True)
        return Seconds(*(float(np.interp(step.decode, sizes, times)) for times in waits))

    def scaled(self, speed: float) -> Exposed:
        """Return the same of a host that takes so many times as long."""
        return Exposed({size: Seconds(*(speed * end for end in times))
                        for size, times in self.by_requests.items()})  # fmt: skip


_Rounded = tuple[tuple[tuple[int, int], ...], int, float]
"""What a step computes (`Step`), its context rounded."""


@dataclass
class Predictor:
    """Predicts steps of one model (the shard of one GPU) on one GPU and engine.

    `correction`: how steps of served models lie from such predictions; None: not known, so that the
    bounds of a step are all its operators at the ends of their intervals. `hosts`: bounds of points
    whose first token waits for the host, by their kind. `drafter`: the model whose drafts are
    checked. `exposed`: what the GPU waits for the host in each step. `host_range`: how many
    times as long the fastest and the slowest host may take that are not known to serve it.
    """

    shape: ModelShape
    costs: Costs
    gpu: Gpu
    engine: Engine = field(default_factory=Engine)
    host: Host = field(default_factory=Host)
    power: Power = Power()
    correction: Correction | None = None
    hosts: Mapping[str, Factors] = field(default_factory=dict)
    drafter: Predictor | None = None
    exposed: Exposed = Exposed()
    host_range: tuple[float, float] = (1.0, 1.0)
    _estimates: dict[Operator, Estimate] = field(default_factory=dict, init=False, repr=False)
    _kernels: dict[_Rounded, Seconds] = field(default_factory=dict, init=False, repr=False)

    def _estimate(self, operator: Operator) -> Estimate:
        if operator not in self._estimates:
            self._estimates[operator] = self.costs.of(operator)
        return self._estimates[operator]

    def step(self, step: Step) -> StepTime:
        """Return a step with its operators."""
        rows, breakdown = self.engine.rows(step), []
        for item in self._operators(step, rows):
            found = self._estimate(item)
            times = Seconds(*(item.calls * v for v in (found.seconds, found.low, found.high)))
            roofline = item.calls * self.gpu.roofline(item)
            breakdown.append(Part(item, times, found.tier, roofline, self.gpu.bound(item)))
        if self.drafter is not None:
            breakdown.append(self._drafted(step, self.drafter))
        gap, host = self._around(step, rows)
        gap += self.exposed.of(step).value
        return StepTime(step, rows, tuple(breakdown), gap, host, self.seconds(step))

    def _operators(self, step: Step, rows: int) -> Sequence[Operator]:
        """Return the operators of a step; drafts of whatever kind are checked as those of a head.

        What drafts them, beside such a head, is not in it.
        """
        if self.shape.drafted or not self.engine.drafted:
            return operators(self.shape, step, rows)
        checking = operators(replace(self.shape, drafted=self.engine.drafted), step, rows)
        return [item for item in checking if item.kind is not Kind.DRAFT]

    def _drafts(self, step: Step, drafter: Predictor) -> list[tuple[Predictor, Step]]:
        """Return the passes of a model that drafts after a step: the first reads its tokens."""
        reading = replace(drafter, engine=replace(drafter.engine, drafted=self.engine.drafted))
        reading._estimates = drafter._estimates  # noqa: SLF001
        lengths = [new + before for new, before in step.prefill] + [step.context] * step.decode
        next_one = Step(decode=step.requests, context=sum(lengths) / len(lengths))
        return [(reading, step), *[(drafter, next_one)] * (self.engine.drafted - 1)]

    def _drafted(self, step: Step, drafter: Predictor) -> Part:
        """Return the passes of a model that drafts as one operator of the step."""
        passes = [at.step(of) for at, of in self._drafts(step, drafter)]
        priced = [item for found in passes for item in found.breakdown]
        flops, moved = (
            sum(item.operator.calls * getattr(item.operator, of) for item in priced)
            for of in ("flops", "bytes")
        )
        name, m = ("draft_prefill", step.tokens) if step.prefill else ("draft_decode", step.decode)
        draft = Operator(name, Kind.DRAFT, 1, m, flops=flops, bytes=moved)
        tier = min(item.tier for item in priced)
        roofline = self.gpu.roofline(draft)
        return Part(draft, self._drafting(step, drafter), tier, roofline, self.gpu.bound(draft))

    def _drafting(self, step: Step, drafter: Predictor) -> Seconds:
        """Return what these passes take the GPU at full clock."""
        passes = [at._gpu(of) for at, of in self._drafts(step, drafter)]  # noqa: SLF001
        return Seconds(*map(sum, zip(*passes, strict=True)))

    def seconds(self, step: Step, loaded_s: float = 0.0) -> Seconds:
        """Return how long a step takes after the GPU has read prompts for `loaded_s` seconds."""
        rows = self.engine.rows(step)
        host = _known(self._around(step, rows)[1])
        eager = step.prefill and not rows
        shares = self.host.issue_spread(prompts=True) if eager else (1.0, 1.0, 1.0)
        both = zip(self._gpu(step), shares, strict=True)
        found = self._moved(step, Seconds(*(max(value, host * share) for value, share in both)))
        return self._stretched(step, found, self.power, loaded_s)

    def _moved(self, step: Step, found: Seconds) -> Seconds:
        """Return a step as other served models correct it."""
        if self.correction is None:
            return found
        factors = self.correction.of(step)
        if self.correction.bounded:
            return Seconds(*(found.value * factor for factor in factors))
        # What operators miss by themselves, beside what engines miss as a whole.
        below, above = (
            math.hypot(found[end] / found.value - 1, factors[end] / factors.value - 1)
            for end in (LOW, HIGH)
        )
        value = found.value * factors.value
        return Seconds(value, value * max(0.0, 1 - below), value * (1 + above))

    def on_gpu(self, step: Step, loaded_s: float = 0.0) -> Seconds:
        """Return how long a step of a batch takes the GPU, however long its host does."""
        return self._stretched(step, self._moved(step, self._gpu(step)), self.power, loaded_s)

    def served(self, step: Step, loaded_s: float = 0.0) -> Seconds:
        """Return how long a step of a server takes the GPU, however long its host does.

        Loads of servers are in no residuals of steps: the bounds are those of the operators.
        """
        found = self._gpu(step)
        if self.correction is not None:
            factor = self.correction.of(step).value
            found = Seconds(*(value * factor for value in found))
        return self._stretched(step, found, self.power, loaded_s)

    def issued(self, step: Step) -> Seconds:
        """Return how long the host takes to issue a step."""
        rows = self.engine.rows(step)
        host = _known(self._around(step, rows)[1])
        # What a head does is outside of graphs; a mean over hosts needs no correction for prompts.
        eager = not rows if step.prefill else self.engine.drafted > 0
        if eager and not (step.prefill and self.host.mean_speed) and self.correction is not None:
            host *= self.correction.host
        shares = self.host.issue_spread(prompts=bool(step.prefill))
        return Seconds(*(host * share for share in shares))

    def issued_at(self, step: Step, when_s: float) -> Seconds:
        """Return how long a server's host takes to issue a step that it begins at `when_s`.

        It has one of its speeds and then the other; the bounds have one of them always.
        """
        host = _known(self._around(step, self.engine.rows(step))[1])
        if not (step.prefill or self.engine.drafted):
            return Seconds(host, host, host)
        usual = MEAN_SPEEDS if self.host.mean_speed else SERVED_SPEEDS
        fast, slow = (host * speed for speed in self.host.issue_speeds[2:] or usual)
        return Seconds((fast, slow)[int(when_s / SPEED_S) % 2], fast, slow)

    def host_speeds(self) -> list[tuple[float, Predictor]]:
        """Return the same with each speed of the host, and how often it has it.

        Half of the time each, where what it needs is a mean over both; else, beyond graphs, as
        often the slower one as it takes for the mean that other models needed. Which of both lies
        above what the GPU needs decides, so that the mean of both is not that of their mean.
        """
        moved, slow = self.correction, 0.5
        moves = moved is not None and 1 < moved.host < SLOW_HOST
        if moved is not None and moves and not self.host.mean_speed:
            slow = (moved.host - 1) / (SLOW_HOST - 1)
        speeds = MEAN_SPEEDS if self.host.mean_speed else (1.0, 1.0)
        if speeds[0] == 1 and not moves:
            return [(1.0, self)]
        found = []
        for share, speed, times in zip((1 - slow, slow), speeds, (1.0, SLOW_HOST), strict=True):
            here = self._shared(host=self.host.at_speed(speed))
            if moved is not None and moves:
                here.correction = replace(moved, host=times)
            found.append((share, here))
        return found

    def at_host(self, speed: float) -> Predictor:
        """Return the same where the host takes so many times as long for all that it does."""
        if speed == 1:
            return self
        same = self._shared(host=self.host.scaled(dict.fromkeys(HOST_TIMES, speed)))
        if self.exposed.by_requests:  # it is in the times of steps that were worked out
            same.exposed = self.exposed.scaled(speed)
            same._kernels = {}
        return same

    def of(self, work: Workload) -> Predictor:
        """Return the predictor of a load: batches have the host of an offline engine."""
        host = self.host.of_batches() if work.batch else self.host
        return self if host is self.host else self._shared(host=host)

    def _shared(self, **changed: Any) -> Predictor:
        """Return the same but for what changes no kernel, with all that was worked out already."""
        same = replace(self, **changed)
        same._estimates, same._kernels = self._estimates, self._kernels
        return same

    @property
    def points(self) -> dict[str, Factors]:
        """What whole points of other engines and servers missed, by their kind."""
        return {**self.hosts, **(self.correction.points if self.correction else {})}

    def waits_for(self, work: Workload) -> str:
        """Return what the first token of a batch may wait for: GPU, HOST or IN_GRAPHS."""
        prefill, decode = work.steps()
        if math.isnan(self.host.overhead_s):
            return GPU if prefill.tokens >= LONG_TOKENS else HOST
        issued = self.of(work).issued
        host = sum(issued(step)[HIGH] for step in (prefill, decode))
        if host < self.on_gpu(prefill).value:
            return GPU
        return IN_GRAPHS if self.engine.rows(prefill) else HOST

    def _stretched(self, step: Step, found: Seconds, power: Power, loaded_s: float) -> Seconds:
        if self.engine.tokens(step) < LOADING_TOKENS:
            return found
        return Seconds(*(power.stretched(value, loaded_s) for value in found))

    def _gpu(self, step: Step) -> Seconds:
        """Return what the kernels of a step and the gaps between them take at full clock."""
        key = step.prefill, step.decode, known_context(step)
        if key not in self._kernels:
            step = Step(*key)
            rows = self.engine.rows(step)
            gap = _known(self._around(step, rows)[0])
            times = []
            for item in self._operators(step, rows):
                found = self._estimate(item)
                times.append(
                    [item.calls * value for value in (found.seconds, found.low, found.high)]
                )
            if self.correction is None or self.correction.bounded:
                gpu = [gap + sum(ends) for ends in zip(*times, strict=True)]
            else:  # each by itself; what they miss together is in the correction
                value = gap + sum(time[VALUE] for time in times)
                low, high = (math.hypot(*(time[end] - time[VALUE] for time in times))
                             for end in (LOW, HIGH))  # fmt: skip
                gpu = [value, value - low, value + high]
            scale = 1.0 if step.prefill else self.host.untraced
            more = [self.exposed.of(step)]
            if self.drafter is not None:
                more.append(self._drafting(step, self.drafter))
            self._kernels[key] = Seconds(
                *(end * scale + sum(ends) for end, *ends in zip(gpu, *more, strict=True))
            )
        return self._kernels[key]

    def _around(self, step: Step, rows: int) -> tuple[float, float]:
        """Return gap and least time of the host of a step."""
        host = self.host
        gap, issuing = host.gap_decode_s, host.decode_s
        if step.prefill:
            gap = host.gap_prefill_s
            issuing = host.in_graphs_s if rows else host.beyond_graphs_s
        more = _known(host.each_s) * (step.requests - 1)
        if self.shape.tensor_parallel > 1:  # other processes issue while the engine's schedules
            return gap, max(_known(issuing), more)
        return gap, issuing + more


def known_context(step: Step) -> int:
    """Return the context for which a step is worked out."""
    return max(1, round(step.context / CONTEXT_STEP)) * CONTEXT_STEP if step.decode else 0


def _smallest(seconds: Iterable[float]) -> float:
    """Return the least of what is known, NaN where nothing is."""
    return min((value for value in seconds if not math.isnan(value)), default=math.nan)


def _known(seconds: float) -> float:
    return 0.0 if math.isnan(seconds) else seconds


class Request(NamedTuple):
    """One request: when it comes (s; of a closed loop when a client is free), tokens in and out."""

    arrival_s: float
    prompt: int
    output: int


class Served(NamedTuple):
    """One request: when it came, when its first and last token were there, its tokens out."""

    arrival_s: float
    first_s: float
    finish_s: float
    output: int


@dataclass
class _Live:
    """A request in the engine: tokens in the cache (`done`) and generated so far.

    `accepted`: the part of a token by which its drafts are ahead of their mean.
    """

    arrival_s: float
    prompt: int
    output: int
    done: int = 0
    generated: int = 0
    first_s: float = math.nan
    accepted: float = 0.0

    @property
    def tokens_needed(self) -> int:
        """Tokens that must be in the cache before the next one is generated."""
        return self.prompt + self.generated


class Tokens(NamedTuple):
    """The tokens of a step: how many, and whose first or last one is among them."""

    number: int
    firsts: Sequence[_Live]
    lasts: Sequence[_Live]


@dataclass
class Queue:
    """Requests as an engine has them: to come, waiting for a place in a step, and generating.

    `clients`: at most so many are there at a time, and the next one comes when one is done; 0:
    each comes at its time. `kv_tokens`: what the KV cache holds. `front`: the server before it.
    `_demand`: tokens that those need which generate. In the next `_quiet` steps none of them ends;
    of these, `_behind` are not in their own count of tokens, as nobody asks before one ends.
    """

    engine: Engine
    pending: deque[Request]
    clients: int = 0
    kv_tokens: float = math.inf
    front: FrontEnd[_Live] = field(default_factory=FrontEnd)
    arriving: deque[tuple[float, _Live]] = field(default_factory=deque)
    waiting: deque[_Live] = field(default_factory=deque)
    running: list[_Live] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    preempted: int = 0
    _demand: int = 0
    _behind: int = 0
    _quiet: int = 0

    def __post_init__(self) -> None:
        """Let the first request of each client come, of an open loop all."""
        for _ in range(min(self.clients or len(self.pending), len(self.pending))):
            self._come(0.0)

    def _come(self, now: float) -> None:
        request = self.pending.popleft()
        came = now if self.clients else request.arrival_s
        self.front.receive(_Live(came, request.prompt, request.output), came)

    def admit(self, now: float, *, idle: bool) -> float:
        """Let in the requests that are there at `now`; return when the next step is made.

        An `idle` engine waits for the next request, and begins with it alone, however many come
        right behind it; where none comes any more, all tokens are sent.
        """
        while self.front.next_s <= now:
            self._turn()
        if idle and not self.waiting and not self.running:
            while not self.arriving and self.front.next_s < math.inf:
                self._turn()
            if self.arriving and self.arriving[0][0] > now:
                now, first = self.arriving.popleft()
                self.waiting.append(first)
                return now
        while self.arriving and self.arriving[0][0] <= now:
            self.waiting.append(self.arriving.popleft()[1])
        return now

    def _turn(self) -> None:
        """Let the server do what it has to do: pass requests on, and send tokens."""
        turn = self.front.turn()
        for live in turn.requests:
            self.arriving.append((turn.end_s + self.front.fixed_s, live))
        for live in turn.firsts:
            live.first_s = turn.end_s
        for live in turn.lasts:
            self.served.append(Served(live.arrival_s, live.first_s, turn.end_s, live.output))
            if self.clients and self.pending:
                self._come(turn.end_s)

    def schedule(self) -> tuple[list[tuple[_Live, int]], Step]:
        """Choose the next step: chunks of prompts beside the requests that generate.

        Where the cache is full, the request that came last gives its place up, and is computed
        again later (vLLM preempts by recomputation).
        """
        count, demand = len(self.running), self._demand
        if self._quiet and not self.waiting and (demand + count <= self.kv_tokens or count == 1):
            return [], Step((), count, demand / count)  # millions of times
        before = self.preempted
        used = demand + (sum([live.done for live in self.waiting]) if self.waiting else 0)
        each = 1 + self.engine.drafted  # tokens of a request that generates
        while used + each * len(self.running) > self.kv_tokens and len(self.running) > 1:
            self._catch_up()
            last = self.running.pop()
            demand -= last.tokens_needed
            used -= last.tokens_needed
            last.done = 0
            self.waiting.appendleft(last)
            self.preempted += 1
        self._demand = demand
        used += each * len(self.running)
        budget = self.engine.batched_tokens - each * len(self.running)
        if self.preempted > before:  # a step that takes a place away gives none
            budget = 0
        free = self.engine.max_requests - len(self.running)
        chunks: list[tuple[_Live, int]] = []
        for live in self.waiting:
            new = min(live.tokens_needed - live.done, budget)
            if new <= 0 or len(chunks) >= free or used + new > self.kv_tokens:
                break
            chunks.append((live, new))
            budget -= new
            used += new
        count = len(self.running)
        context = demand / count if count else 0.0
        return chunks, Step(tuple((new, live.done) for live, new in chunks), count, context)

    def advance(self, chunks: list[tuple[_Live, int]]) -> Tokens:
        """Do a step; return the tokens that it gives."""
        if self._quiet and not chunks:  # millions of times
            self._quiet -= 1
            self._behind += 1
            self._demand += len(self.running)
            return Tokens(len(self.running), (), ())
        self._catch_up()
        generating = self.running
        running: list[_Live] = []
        firsts: list[_Live] = []
        lasts: list[_Live] = []
        if self.engine.drafted:
            for live in generating:
                live.accepted += self.engine.accept - 1
                live.generated += int(live.accepted)
                live.accepted %= 1
        for live, new in chunks:
            live.done += new
            if live.done == live.tokens_needed:
                self.waiting.popleft()
                generating.append(live)
                if not live.generated:
                    firsts.append(live)
        for live in generating:
            live.generated += 1
            (running if live.generated < live.output else lasts).append(live)
        self.running = running
        self._demand = sum(live.tokens_needed for live in running)
        if not self.engine.drafted:
            self._quiet = min((live.output - live.generated for live in running), default=1) - 1
        return Tokens(len(generating), firsts, lasts)

    def _catch_up(self) -> None:
        """Count the tokens of the steps in which nobody asked."""
        for live in self.running if self._behind else ():
            live.generated += self._behind
        self._behind = 0


def at_once(_: Step, __: float) -> float:
    """Return the seconds of a host that needs none."""
    return 0.0


def simulate(
    seconds: Callable[[Step, float], float],
    queue: Queue,
    issued: Callable[[Step, float], float] = at_once,
    lead_s: float = 0.0,
    *,
    ahead: bool = True,
    workers: bool = False,
) -> list[Served]:
    """Return how the requests of `queue` are served.

    `seconds` gives the time of a step on the GPU after so many seconds of prompts; other steps and
    idle time cool it as long as these heat it. `issued`: in which the host issues its kernels, by
    when it begins. An idle GPU waits `lead_s` for them.

    The host is vLLM 0.20's loop with asynchronous scheduling (`EngineCore.step_with_batch_queue`):
    it schedules and issues a step while the GPU computes the one before, and only then sends the
    tokens of that one. So a step that is long to issue holds the tokens of another back. Not
    `ahead`, as with n-grams that are looked up in what a step gave, it sends them before, and
    what the GPU waits for it is in the time of each step that generates. `workers`: each GPU has a
    process that issues (`WorkerProc`), so that the loop holds nothing back.
    """
    host_s = gpu_s = issued_s = loaded = 0.0
    on_gpu: deque[tuple[float, Tokens]] = deque()
    while True:
        host_s = queue.admit(host_s, idle=not on_gpu)
        chunks, step = queue.schedule()
        if step.tokens:
            begin = max(gpu_s, host_s + (lead_s if ahead or not step.decode else 0.0))
            loaded = max(0.0, loaded - (begin - gpu_s))
            took = seconds(step, loaded)
            heats = queue.engine.tokens(step) >= LOADING_TOKENS
            loaded = max(0.0, loaded + (took if heats else -took))
            issued_s = max(issued_s, host_s) + issued(step, host_s)
            gpu_s = max(begin + took, issued_s)
            if not workers:
                host_s = issued_s
            on_gpu.append((gpu_s, queue.advance(chunks)))
            if ahead and len(on_gpu) == 1:
                continue
        elif not on_gpu:
            if not queue.waiting:
                return queue.served
            tokens = queue.waiting[0].tokens_needed
            raise UsageError(
                stored(
                    "a request of {tokens:,} tokens does not fit the KV cache of {kv_tokens:,.0f}",
                    tokens=tokens,
                    kv_tokens=queue.kv_tokens,
                ),
                "give shorter prompts, more GPUs (--tp) or more of their memory",
            )
        done_s, tokens_given = on_gpu.popleft()
        host_s = max(host_s, done_s)
        queue.front.send(host_s, *tokens_given)


GOODPUT = "goodput_requests_per_s"
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True)
class Workload:
    """What is asked for: lengths in tokens, and how requests come.

    Attributes:
        prompt, output: tokens of each request; of a trace, their means.
        batch: requests that come at once.
        concurrency: clients of a closed loop, each of which sends its next request when the last
            one is done.
        rate: requests per second of an open loop; they come at random (a Poisson process).
        arrivals: the requests themselves, as of a recorded trace.
        label: name of the trace.
        warmups: so many of the requests that come first are served and not counted.
    """

    prompt: int
    output: int
    batch: int = 0
    concurrency: int = 0
    rate: float = 0.0
    arrivals: tuple[Request, ...] = ()
    count: int = 0
    label: str = ""
    warmups: int = 0

    ROUNDS = 4
    """Requests of each client of a closed loop."""
    OPEN_S = 20.0
    """Seconds for which requests of an open loop come, and the least number of them."""
    LEAST = 200
    SEED = 20
    MOST_REQUESTS = MOST_OUTPUT = 100_000
    MOST_PROMPT = 10_000_000
    """Requests, and tokens of each, up to which a load is served within minutes."""

    def __post_init__(self) -> None:
        """Refuse what would take hours.

        Raises:
            UsageError: too many requests, or too long ones.
        """
        prompt = max((request.prompt for request in self.arrivals), default=self.prompt)
        output = max((request.output for request in self.arrivals), default=self.output)
        for given, limit, what in (
            (self._requests, self.MOST_REQUESTS, "requests in one load"),
            (prompt, self.MOST_PROMPT, "prompt tokens per request"),
            (output, self.MOST_OUTPUT, "output tokens per request"),
        ):
            if given > limit:
                raise UsageError(
                    stored(
                        "{given:,} {what} were asked for, and at most {limit:,} are predicted",
                        given=given,
                        what=what,
                        limit=limit,
                    ),
                    "give fewer; a closed loop sends 4 requests per client, an open one those of "
                    "20 s",
                )

    @property
    def _requests(self) -> int:
        if self.arrivals or self.count:
            return len(self.arrivals) or self.count
        if self.rate:
            return max(self.LEAST, round(self.rate * self.OPEN_S))
        return self.batch or self.concurrency * self.ROUNDS

    @property
    def together(self) -> int:
        """Requests that are there at a time; of an open loop not known before it is served."""
        return self.batch or self.concurrency

    def requests(self) -> tuple[Request, ...]:
        """Return all requests."""
        if self.arrivals:
            return self.arrivals
        if not self.rate:
            return (Request(0.0, self.prompt, self.output),) * self._requests
        waits = np.random.default_rng(self.SEED).exponential(1 / self.rate, self._requests)
        return tuple(Request(float(t), self.prompt, self.output) for t in np.cumsum(waits))

    @property
    def experiment(self) -> str:
        """How requests come: batch, closed, open or trace."""
        if self.label:
            return "trace"
        return "batch" if self.batch else "closed" if self.concurrency else "open"

    @property
    def name(self) -> str:
        """Name of the point."""
        if self.label:
            return f"trace/{self.label}"
        kinds = {
            "batch": f"b{self.batch}",
            "closed": f"c{self.concurrency}",
            "open": f"r{self.rate:g}",
        }
        return f"{self.experiment}/{kinds[self.experiment]}/p{self.prompt}/o{self.output}"

    def steps(self) -> tuple[Step, Step]:
        """Return the steps that stand for it: all prompts at once, and decode half way.

        Of an open loop or a trace: one prompt alone, and one request.
        """
        together = self.together or 1
        return (
            Step(prefill=((self.prompt, 0),) * together),
            Step(decode=together, context=self.prompt + max(0, self.output - 1) / 2),
        )


@dataclass(frozen=True)
class Goal:
    """Latencies that a request must keep to count for the goodput, in seconds; inf: any."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for."""
        return self != Goal()


def point(
    predictor: Predictor,
    workload: Workload,
    kv_tokens: float = math.inf,
    goal: Goal | None = None,
    *,
    medians: bool = False,
) -> dict[str, float]:
    """Return the numbers of a serving point by column, each with its bounds (`_low`, `_high`).

    Bounds are the point with every operator at the lower, and at the upper end of its interval, and
    where the host that will serve is not known, those of the fastest and the slowest one beside
    them: they contain the bounds of a host that is known to be as the recorded one. Nobody asks for
    other bounds than those of `medians` and rates: what other engines missed may tell them all.

    Raises:
        UsageError: a request alone needs more KV cache than there is.
    """
    predictor = predictor.of(workload)

    def at(host: Predictor, which: int) -> dict[str, float]:
        return _numbers(host, workload, which, kv_tokens, goal)

    speeds = predictor.host_speeds() if workload.batch else [(1.0, predictor)]
    each = [(share, at(host, VALUE)) for share, host in speeds]
    found = {name: sum(share * numbers[name] for share, numbers in each) for name in NUMBERS}
    kinds = {kind_of(predictor, workload, quantity) for quantity in QUANTITY_OF.values()}
    if medians and not predictor.host.issue_speeds and predictor.points.keys() >= kinds:
        return found | _bounds(predictor, workload, found)
    time = predictor.seconds if workload.batch else predictor.served
    bounded = all(math.isfinite(time(step).high) for step in workload.steps())
    for which, host in zip((LOW, HIGH), predictor.host_range, strict=True):
        if which == HIGH and not bounded:
            ends = [dict.fromkeys(NUMBERS, math.nan)]
        else:  # a host between the ends, too: with it requests may meet in longer steps
            ends = [at(predictor.at_host(times), which) for times in dict.fromkeys((host, 1.0))]
        for name in NUMBERS:
            smallest = (which == LOW) != (name in RATES)
            found[f"{name}_{'low' if smallest else 'high'}"] = (min if smallest else max)(
                numbers[name] for numbers in ends
            )
    return found | _bounds(predictor, workload, found)


def _bounds(predictor: Predictor, work: Workload, found: Mapping[str, float]) -> dict[str, float]:
    """Return the bounds of the numbers `found` by what such points of other engines missed."""
    points = predictor.points
    bounds: dict[str, float] = {}
    for name in NUMBERS:
        kind = kind_of(predictor, work, QUANTITY_OF.get(name, ""))
        if (factors := points.get(kind)) is not None:
            low, high = min(1.0, factors.low), max(1.0, factors.high)
            bounds |= {f"{name}_low": found[name] * low, f"{name}_high": found[name] * high}
            if work.batch and predictor.host.issue_speeds:  # and what the host of a busy GPU took
                bounds[f"{name}_low"] = min(bounds[f"{name}_low"], found[f"{name}_low"])
                bounds[f"{name}_high"] = max(bounds[f"{name}_high"], found[f"{name}_high"])
    if points and work.batch and predictor.waits_for(work) != GPU:
        bounds |= _with_first_tokens({**found, **bounds})
    return bounds


def _with_first_tokens(found: Mapping[str, float]) -> dict[str, float]:
    """Return the bounds of rates of a batch with what its first tokens may miss, by their share.

    Residuals of rates are of requests of many tokens, in which a first token that waits for the
    host hardly counts; of few tokens it is much of the time. Both are taken to be independent.
    """
    moved, first, duration = {}, found["ttft_p50_s"], found["duration_s"]
    for end, opposite, sign in (("low", "high", -1), ("high", "low", 1)):
        shifted = max(0.1 * duration, duration + found[f"ttft_p50_s_{opposite}"] - first)
        by_first = math.log(duration / shifted)
        for name in (name for name in NUMBERS if QUANTITY_OF.get(name) == THROUGHPUT):
            by_rate = math.log(found[f"{name}_{end}"] / found[name])
            moved[f"{name}_{end}"] = found[name] * math.exp(sign * math.hypot(by_rate, by_first))
    return moved


def kind_of(predictor: Predictor, work: Workload, quantity: str) -> str:
    """Return how residuals of whole points name a quantity of a load: what they differ by."""
    waits = []
    if work.batch and quantity == "ttft":
        waits = [predictor.waits_for(work)]
    elif work.concurrency * work.prompt > predictor.engine.batched_tokens:
        waits = [QUEUED]
    return " ".join([work.experiment, quantity, *waits])


def _numbers(
    predictor: Predictor, work: Workload, which: int, kv_tokens: float, goal: Goal | None
) -> dict[str, float]:
    requests = work.requests()
    front: FrontEnd[_Live] = FrontEnd() if work.batch else predictor.host.front_end()
    queue = Queue(predictor.engine, deque(requests), work.concurrency, kv_tokens, front)
    time = predictor.on_gpu if work.batch else predictor.served
    drafted = predictor.engine.drafted

    # Of steps that generate, which are nearly all, few differ.
    @cache
    def generated(decode: int, context: float) -> float:
        return time(Step((), decode, context))[which]

    @cache
    def issued_graph(decode: int) -> float:
        return issued_at(Step((), decode), 0.0)

    def issued_at(step: Step, when_s: float) -> float:
        found = predictor.issued(step) if work.batch else predictor.issued_at(step, when_s)
        return found[which]

    def seconds(step: Step, loaded_s: float) -> float:
        if step.prefill or predictor.engine.tokens(step) >= LOADING_TOKENS:
            return time(step, loaded_s)[which]
        return generated(step.decode, known_context(step))

    def issued(step: Step, when_s: float) -> float:
        return issued_at(step, when_s) if step.prefill or drafted else issued_graph(step.decode)

    ahead = not predictor.exposed.by_requests
    workers = work.batch > 0 and predictor.shape.tensor_parallel > 1
    lead_s = 0.0 if workers else _known(predictor.host.lead_s)
    served = simulate(seconds, queue, issued, lead_s, ahead=ahead, workers=workers)
    if not all(math.isfinite(item.finish_s) for item in served):
        return dict.fromkeys(NUMBERS, math.nan)
    if work.warmups:
        served = sorted(served, key=lambda item: item.arrival_s)[work.warmups :]
        requests = requests[work.warmups :]
    extra = _known(predictor.host.overhead_s)
    first = np.array([item.first_s - item.arrival_s + extra for item in served])
    last = np.array([item.finish_s - item.arrival_s + extra for item in served])
    start = min(item.arrival_s for item in served)
    found = {"duration_s": max(item.finish_s for item in served) - start + extra}
    prompts, outputs = (sum(r[index] for r in requests) for index in (1, 2))
    found["output_tokens_per_s"] = outputs / found["duration_s"]
    found["total_tokens_per_s"] = (outputs + prompts) / found["duration_s"]
    found["requests_per_s"] = len(served) / found["duration_s"]
    found |= _spread("ttft", first) | _spread("e2e", last)
    steps = np.array([item.output - 1 for item in served])
    tpot = ((last - first) / np.maximum(steps, 1))[steps > 0]
    found |= _spread("tpot", tpot if len(tpot) else np.full(1, math.nan))
    found[GOODPUT] = math.nan
    if goal is not None and goal.is_set:
        good = (first <= goal.ttft_s) & (last <= goal.e2e_s)
        good &= (last - first) / np.maximum(steps, 1) <= goal.tpot_s
        found[GOODPUT] = float(good.sum()) / found["duration_s"]
    found["decode_step_s"] = (
        predictor.seconds(work.steps()[1])[which] if work.together else math.nan
    )
    found["prefill_s"] = float(first.max()) if work.batch else math.nan
    found["preempted_requests"] = queue.preempted
    return found


def _spread(name: str, values: Sequence[float] | np.typing.NDArray[np.float64]) -> dict[str, float]:
    ordered = np.sort(values).tolist()
    return {f"{name}_mean_s": float(np.mean(values))} | {
        f"{name}_{label}_s": _percentile(ordered, percent) for label, percent in PERCENTILES.items()
    }


def _percentile(ordered: Sequence[float], percent: float) -> float:
    """Return what np.percentile does, which needs a tenth of the time of a point for all it can."""
    position = (len(ordered) - 1) * (percent / 100)
    low, high = ordered[int(position)], ordered[math.ceil(position)]
    share = position - int(position)
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


NUMBERS = (
    "duration_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s",
    *(f"{name}_{q}_s" for name in ("ttft", "e2e", "tpot") for q in ("mean", *PERCENTILES)),
    "decode_step_s", "prefill_s", "preempted_requests", GOODPUT,
)  # fmt: skip


RATES = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s", GOODPUT)
"""Those of them that are the higher the faster all else is."""
QUANTITY_OF = {
    "ttft_p50_s": "ttft", "tpot_p50_s": "tpot", "output_tokens_per_s": THROUGHPUT,
    "total_tokens_per_s": THROUGHPUT, "requests_per_s": THROUGHPUT,
}  # fmt: skip
"""Number of a point -> what residuals of whole points call it."""


class SingleStep(NamedTuple):
    """A measured point whose prompts fit one step: medians of TTFT and decode step, in seconds."""

    workload: Workload
    ttft_s: float
    decode_s: float


def fitted_host(predictor: Predictor, points: Sequence[SingleStep], host_s: float = 0.0) -> Host:
    """Return the host's part of the times of measured points.

    `host_s`: the shortest step of engines of fewer layers; the host needs no longer for one.
    What no point tells stays as it was.
    """
    known = _without_profiler(predictor, points, host_s)
    gap, lead = _known(known.gap_prefill_s), _known(known.lead_s)
    rows = []
    for work, ttft, _ in points:
        prefill, _ = work.steps()
        if 0 < work.batch <= FEW and ttft > 0:
            rows.append((prefill, ttft, ttft - lead - predictor.on_gpu(prefill).value))
    long = [row for row in rows if not predictor.engine.rows(row[0])]
    busy = [unexplained for _, ttft, unexplained in long if unexplained < HOST_BOUND * ttft]
    # Under nsys the gaps are longer than without: the overhead may take some of them back.
    overhead = known.overhead_s
    if math.isnan(overhead) and busy:
        overhead = max(-gap, float(np.median(busy)))

    def host_time(chosen: list[tuple[Step, float, float]]) -> float:
        """Return the time of single prompts that the GPU does not explain: the same for all.

        The host issues the next step before it waits for this one.
        """
        waits = [
            ttft - _known(overhead) - _known(known.decode_s)
            for step, ttft, unexplained in chosen
            if step.requests == 1 and unexplained - _known(overhead) >= HOST_BOUND * ttft
        ]
        return max(0.0, float(np.median(waits))) if waits else math.nan

    short = [row for row in rows if predictor.engine.rows(row[0])]
    return replace(known, overhead_s=overhead, eager_s=host_time(long), graph_s=host_time(short))


def _without_profiler(predictor: Predictor, points: Sequence[SingleStep], host_s: float) -> Host:
    """Return the host with what measured points tell of steps without the profiler.

    `untraced` is NaN where none of them waited for the GPU alone.
    """
    known = predictor.host
    gpu = replace(predictor, host=replace(known, decode_s=math.nan, untraced=1.0))
    waiting, busy = [], []
    for work, _, measured in points:
        decode = work.steps()[1]
        expected = gpu.seconds(decode).value
        single = 0 < work.batch <= (FEW if predictor.engine.drafted else 1)
        if single and measured - expected >= HOST_BOUND * measured:
            waiting.append(measured)
        elif work.batch and expected > HIDDEN * host_s and abs(measured / expected - 1) < GPU_BOUND:
            busy.append(measured / expected)
    if waiting:
        known = replace(known, decode_s=min(waiting))
        if predictor.engine.drafted:
            known = replace(known, decode_slow=max(waiting) / min(waiting))
        known = replace(known, each_s=_each_s(gpu, points, known.decode_s))
    # Steps of a whole engine are too long for the host to be seen in them.
    level = UNDISTURBED if host_s else 50
    untraced = min(1.0, float(np.percentile(busy, level))) if busy else math.nan
    return replace(known, untraced=untraced)


def _each_s(gpu: Predictor, points: Sequence[SingleStep], alone_s: float) -> float:
    """Return what each further request adds to steps that wait for the host; NaN: not known.

    The host has one of two speeds: of each number of requests the shortest step counts.
    `alone_s`: that of one.
    """
    shortest: dict[int, float] = {}
    for work, _, measured in points:
        waited = measured - gpu.seconds(work.steps()[1]).value
        if work.batch > FEW and waited >= HOST_BOUND * measured:
            shortest[work.batch] = min(measured, shortest.get(work.batch, measured))
    found = [(seconds - alone_s) / (batch - 1) for batch, seconds in shortest.items()]
    return max(0.0, float(np.median(found))) if found else math.nan


def narrow_host(
    known: Host,
    points: Sequence[tuple[Engine, SingleStep]],
    within: Sequence[float] = (),
    beyond: Sequence[float] = (),
) -> Host:
    """Return the host's part as engines tell whose GPU waits for the host in every step.

    They have all layers of the model, and no profiler was beside them. Times are means over points
    of a few requests: the host has one of two speeds, and which of them a step meets is not known.
    `within` and `beyond`: in how long they issued single prompts within CUDA graphs and beyond
    them, by their own clock. Without it that is what is left of the time to first token.
    """
    few = [(engine, point) for engine, point in points if point.workload.batch <= FEW]
    steps = [point.decode_s for _, point in few if point.decode_s > 0]
    decode = float(np.mean(steps)) if steps else math.nan

    def issued(*, in_graphs: bool) -> float:
        """Return the time of single prompts, beside the next step, which is issued before them."""
        found = [
            point.ttft_s - _known(known.overhead_s) - _known(decode)
            for engine, point in few
            if point.workload.batch == 1 and point.ttft_s > 0
            and bool(engine.rows(point.workload.steps()[0])) == in_graphs
        ]  # fmt: skip
        return max(0.0, float(np.mean(found))) if found else math.nan

    return replace(
        known,
        decode_s=decode,
        decode_slow=SLOW_HOST,
        eager_s=float(np.median(beyond)) if len(beyond) else issued(in_graphs=False),
        graph_s=float(np.median(within)) if len(within) else issued(in_graphs=True),
        issue_s=math.nan,
        issue_graph_s=math.nan,
    )


ISSUE_BOUNDS = (5, 95)
"""Percentiles of measured prompts that bound in how long a host issues one."""


def busy_host(known: Host, within: Sequence[float], beyond: Sequence[float]) -> Host:
    """Return the host as an engine tells whose GPU was busy as long as the whole model's is.

    `within` and `beyond`: in how long it issued single prompts within CUDA graphs and beyond them,
    by its own clock, so that no wait for the GPU is in it. `known`: by the same engine whose GPU
    was not busy; what it needs for a step that generates is so many times longer as prompts are.
    """
    times = {"graph_s": within, "eager_s": beyond}
    medians = {name: float(np.median(of)) for name, of in times.items() if len(of)}
    slower = [seconds / getattr(known, name) for name, seconds in medians.items()
              if getattr(known, name) > 0]  # fmt: skip
    each = np.sort(
        np.concatenate([np.divide(of, np.median(of)) for of in times.values() if len(of)])
    )
    halves = each[: len(each) // 2], each[len(each) // 2 :]
    speeds = (*np.percentile(each, ISSUE_BOUNDS), *(half.mean() for half in halves))
    found = replace(
        known,
        graph_s=medians.get("graph_s", known.graph_s),
        eager_s=medians.get("eager_s", known.eager_s),
        issue_speeds=tuple(float(speed) for speed in speeds),
    )
    return found.scaled({"decode_s": float(np.mean(slower))}) if slower else found


def host_of(known: Host, engines: Mapping[int, Host], layers: int) -> Host:
    """Return the host's part of an engine of `layers` layers.

    `engines`: of measured engines by their layers. What an engine of other numbers of layers needs
    for prompts grows with them: it launches the parts of each layer, as a trace tells; without one
    it is extrapolated from two engines, and where one alone tells, it stays as it is. A step that
    generates is one CUDA graph, however many layers are in it: the least of what engines needed
    counts.
    """
    found = [host.untraced for _, host in sorted(engines.items()) if not math.isnan(host.untraced)]
    untraced = found[-1] if found else known.untraced
    if layers in engines:
        return replace(engines[layers], untraced=untraced)

    def at(name: str) -> float:
        found = {n: t for n, host in engines.items() if math.isfinite(t := getattr(host, name))}
        if len(found) < 2:
            return next(iter(found.values()), math.nan)
        low, high = min(found), max(found)
        slope = max(0.0, (found[high] - found[low]) / (high - low))
        return float(found[high] + slope * (layers - high))

    overheads = [host.overhead_s for _, host in sorted(engines.items()) if host.overhead_s >= 0]
    return replace(
        known,
        overhead_s=overheads[-1] if overheads else math.nan,
        eager_s=at("eager_s") if math.isnan(known.issue_s) else math.nan,
        graph_s=at("graph_s") if math.isnan(known.issue_graph_s) else math.nan,
        decode_s=_smallest(host.decode_s for host in engines.values())
        if engines
        else known.decode_s,
        each_s=_smallest(host.each_s for host in engines.values()),
        decode_slow=max((host.decode_slow for host in engines.values()), default=1.0),
        untraced=untraced,
    )
