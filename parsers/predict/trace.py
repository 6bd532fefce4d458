"""Reads the costs of operators from the trace of a recorded engine (T3), and its gaps.

The kernels of a step are cut into operators by their order: each layer has four products (qkv, out,
gate and up, down), and what runs between two of them is known by its place. So nothing rests on the
names of kernels, but what a product, an attention, a KV write or a collective is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.costs import (
    T0,
    T1,
    T3,
    Benchmarked,
    Costs,
    Estimate,
    Residuals,
)
from nsight_prof.parsers.predict.operators import Kind, Operator, Step, operators
from nsight_prof.parsers.serving.model_shape import ModelShape

PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
BETWEEN = {"qkv_proj": "rotary", "o_proj": "norm", "gate_up_proj": "silu_mul", "down_proj": "norm"}
REDUCTION = "split-K reduction"
PREFILL, DECODE = "prefill", "decode"


@dataclass(frozen=True)
class Recorded:
    """What one kind of step took in a trace: medians over its steps, of one GPU.

    `seconds`: operator -> seconds of all its calls in a step. `gap_s`: the GPU was idle so long
    within the step. `host_s`: the host issued it in so long, under the profiler.
    """

    step: Step
    rows: int
    seconds: Mapping[str, float]
    gap_s: float
    host_s: float
    steps: int


@dataclass(frozen=True)
class Trace:
    """A recorded engine: the shard of one GPU, and what its steps of prefill and decode took."""

    shape: ModelShape
    prefill: Recorded
    decode: Recorded


def cut(names: list[tuple[str, str, float]], layers: int) -> dict[str, float] | None:
    """Return seconds by operator of one step's kernels; None where they are no such step.

    Args:
        names: category, short name and seconds of each kernel in the order of their start.
        layers: layers of the model.
    """
    found: dict[str, float] = defaultdict(float)
    products, last = 0, ""
    for category, name, seconds in names:
        if category == "gemm" and REDUCTION in name:
            found[last] += seconds
        elif category == "gemm":
            last = PRODUCTS[products % 4] if products < 4 * layers else "lm_head"
            products += 1
            found[last] += seconds
        elif category == "collective" or name.startswith("NCCL"):
            found["all_gather" if last == "lm_head" else "all_reduce"] += seconds
        elif category == "attention" and last == "qkv_proj":
            found["attention"] += seconds
        elif category == "kv_cache" and last == "qkv_proj":
            found["kv_write"] += seconds
        elif not last:
            found["embedding"] += seconds
        elif last == "lm_head":
            found["sampling"] += seconds
        else:
            found[BETWEEN[last]] += seconds
    return dict(found) if products == 4 * layers + 1 else None


def read_trace(
    frames: Mapping[str, pd.DataFrame], shape: ModelShape, batch: int, prompt: int, output: int
) -> Trace:
    """Return the operators of a trace of `batch` prompts that are served together.

    Args:
        frames: tables engine_steps, launches and kernels of the run.
        shape: shard of one GPU.
        batch: requests.
        prompt: tokens of each prompt.
        output: tokens that each request generates.

    Raises:
        UsageError: the trace does not hold whole steps of prefill and decode of such a model.
    """
    kernels = frames["kernels"].set_index("kernel_id")
    launches = frames["launches"].sort_values("start_ns")
    labels = launches["kernel_id"].astype(str)
    launches = launches.assign(
        category=labels.map(kernels["category"]), label=labels.map(kernels["short_name"])
    )
    steps = frames["engine_steps"]
    found: dict[str, list[tuple[dict[str, float], float, float]]] = {PREFILL: [], DECODE: []}
    for row in records(steps[steps["kind"].isin(list(found)) & steps["gpu_start_ns"].notna()]):
        requests = row["prefill_requests"] if row["kind"] == PREFILL else row["decode_requests"]
        complete = row["kind"] == DECODE or row["prefill_tokens"] == batch * prompt
        if requests != batch or not complete:
            continue
        inside = launches[
            launches["pid"].eq(row["pid"])
            & launches["start_ns"].between(row["gpu_start_ns"], row["gpu_end_ns"], "left")
        ]
        kinds, names = inside["category"].astype(str), inside["label"].astype(str)
        seconds = inside["duration_ns"].astype(float) / 1e9
        durations = cut(list(zip(kinds, names, seconds, strict=True)), shape.layers)
        if durations is not None:
            gap = max(0.0, float(row["idle_inside_ns"]) / 1e9)
            found[str(row["kind"])].append((durations, gap, float(row["host_ns"]) / 1e9))
    if not all(found.values()):
        raise UsageError(
            f"the trace holds no whole {' or '.join(k for k, v in found.items() if not v)} step of "
            f"{batch} requests with {4 * shape.layers + 1} products each",
            "record one with: prof run vllm-kernels",
        )
    context = prompt + (output - 1) / 2
    return Trace(
        shape,
        _recorded(found[PREFILL], Step(prefill=((prompt, 0),) * batch), 0),
        _recorded(found[DECODE], Step(decode=batch, context=context), batch),
    )


def _recorded(
    found: list[tuple[dict[str, float], float, float]], step: Step, rows: int
) -> Recorded:
    names = dict.fromkeys(name for durations, _, _ in found for name in durations)
    return Recorded(
        step,
        rows,
        {name: float(np.median([p.get(name, 0.0) for p, _, _ in found])) for name in names},
        float(np.median([gap for _, gap, _ in found])),
        float(np.median([host for _, _, host in found])),
        len(found),
    )


@dataclass(frozen=True)
class Calibrated:
    """T3: costs of a lower tier, drawn through what a recorded engine took.

    Products and the attention of prompts are multiplied by measured over estimated, between the
    recorded sizes in the logarithm of m; the attention of decode gets the difference, which is a
    fixed cost; small operators and collectives lie on the line through both recorded sizes, or
    get the difference where both are alike.
    Intervals are those that sizes between two measured ones of the same product had.
    """

    base: Costs
    trace: Trace
    residuals: Residuals
    small: Residuals
    tier: str
    _anchors: Mapping[str, tuple[tuple[Operator, float], ...]] = field(default_factory=dict)

    @classmethod
    def of_trace(cls, base: Costs, trace: Trace, shape: ModelShape) -> Calibrated:
        """Return the costs of an engine like the recorded one that serves the shard `shape`.

        With another shard they stay of tier T1, and products as unsure as those of other shapes;
        collectives among another number of GPUs are not known.
        """
        same = trace.shape == shape
        as_many = trace.shape.tensor_parallel == shape.tensor_parallel
        anchors: dict[str, list[tuple[Operator, float]]] = defaultdict(list)
        for recorded in (trace.decode, trace.prefill):
            for item in operators(trace.shape, recorded.step, recorded.rows):
                seconds = recorded.seconds.get(recorded_name(item.name))
                if seconds and (as_many or item.kind is not Kind.COLLECTIVE):
                    anchors[item.name].append((item, seconds / item.calls))
        residuals = small = Residuals(0.0, math.inf)
        if isinstance(base, Benchmarked):
            spread = base.spread()
            residuals, small = spread.same if same else spread.others, spread.small
        tier = T3 if same else T1 if isinstance(base, Benchmarked) else T0
        return cls(base, trace, residuals, small, tier, {k: tuple(v) for k, v in anchors.items()})

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; what the trace has not, or in another type, is of the lower tier."""
        anchors = self._anchors.get(operator.name, ())
        if not anchors or anchors[0][0].dtype != operator.dtype:
            return self.base.of(operator)
        if operator.kind in (Kind.PRODUCT, Kind.PREFILL):
            seconds = self.base.of(operator).seconds * self._factor(operator, anchors)
            return self._bounded(seconds, self.residuals)
        if operator.kind is Kind.DECODE:
            known, seconds = anchors[0]
            base_s = self.base.of(operator).seconds
            shift = seconds - self.base.of(known).seconds
            return self._bounded(max(base_s + shift, base_s / 2), self.residuals)
        if anchors[0][0].bytes == anchors[-1][0].bytes:
            known, seconds = anchors[0]
            more = seconds * (operator.bytes / known.bytes - 1)
            if operator.kind is not Kind.COLLECTIVE:
                more = self.base.of(operator).seconds - self.base.of(known).seconds
            return self._bounded(max(seconds + more, seconds / 2), self.small)
        return self._bounded(_line(operator.bytes, anchors), self.small)

    def _bounded(self, seconds: float, residuals: Residuals) -> Estimate:
        return Estimate(seconds, seconds * residuals.low, seconds * residuals.high, self.tier)

    def _factor(self, operator: Operator, anchors: tuple[tuple[Operator, float], ...]) -> float:
        # Decode stands first, and wins where both steps have as many rows (the output projection).
        known = {a.m: math.log(s / self.base.of(a).seconds) for a, s in reversed(anchors)}
        sizes, logs = zip(*sorted(known.items()), strict=True)
        return math.exp(float(np.interp(math.log(operator.m), np.log(sizes), logs)))


def _line(work: float, anchors: tuple[tuple[Operator, float], ...]) -> float:
    """Return the seconds on the line through two anchors; it neither falls nor begins below 0."""
    points = sorted((known.bytes, seconds) for known, seconds in anchors)
    (first, low), (last, high) = points[0], points[-1]
    rate = max(0.0, (high - low) / (last - first))
    fixed = max(0.0, low - rate * first)
    return fixed + work * rate


def recorded_name(name: str) -> str:
    """Return how `cut` calls an operator: it does not tell the two kinds of attention apart."""
    return "attention" if name.startswith("attention") else name
