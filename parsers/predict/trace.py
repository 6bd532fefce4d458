"""Reads the costs of operators from the trace of a recorded engine (T3), and its gaps.

The kernels of a step are cut into operators by their order: each layer has four products (qkv, out,
gate and up, down), or five (qkv, out, router, and two of its experts), and what runs between two of
them is known by its place. So nothing rests on the names of kernels, but what a product, an
attention, a KV write or a collective is. A shared expert runs beside the others, on a stream of its
own, so that all of them are one operator there, whose time is counted once.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.costs import (
    T0,
    T1,
    T3,
    Anchors,
    Benchmarked,
    Costs,
    Estimate,
    Power,
    Residuals,
)
from nsight_prof.parsers.predict.operators import (
    FEW,
    ROUTER,
    SHARED,
    WINDOWED,
    Kind,
    Operator,
    Step,
    operators,
    padded_rows,
)
from nsight_prof.parsers.serving.model_shape import ModelShape

PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
MIXTURE = ("qkv_proj", "o_proj", "router", "experts", "experts")
"""Products of a layer in their order; those of a mixture of experts (vLLM's fused MoE, Triton)."""
SHARED_MIXTURE = ("experts",) * 5
"""Router, two products of the shared expert and two of the others, in any order."""
EXPANDED, ABSORBED_PRODUCTS = ("kv_b_proj",), ("q_absorb", "v_up")
"""Products of latent attention, of prompts whose keys are computed and of all else."""
BETWEEN = {
    "qkv_proj": "rotary", "o_proj": "norm", "gate_up_proj": "silu_mul", "down_proj": "norm",
    "router": "experts", "q_proj": "rotary", "q_b_proj": "rotary", "fused_qkv_a_proj": "rotary",
    "kv_a_proj_with_mqa": "rotary",
    # Copies beside these are part of them.
    "kv_b_proj": "kv_b_proj", "q_absorb": "q_absorb", "v_up": "v_up",
}  # fmt: skip
GEMM = ("gemm", "gemv")
"""Categories of products."""
ATTENDING = ("qkv_proj", *EXPANDED, *ABSORBED_PRODUCTS)
"""Products that attention comes after."""
REDUCTION = "split-K reduction"
LAUNCHED_S = 2e-6
"""Gap between kernels that do not wait for the host, at the most: 0.5 to 1.5 us in traces."""
MEMSET_TRACED_S = 1.2e-6
"""What nsys adds to a memset between two kernels of a CUDA graph, H200: the time from kernel to
kernel is 2.3 us longer for one without it, and 3.5 us in its trace."""
DRAFT = "draft"
ADAPTERS = re.compile(r"\blora (?:shrink|expand)\b")
"""Names of the products with adapters (vLLM, Triton): they may begin before the one beside them."""
BURST_S = 0.06
"""Seconds of prompts after which the power limit slows a GPU: an H200 in recorded slices."""
HEATED = {
    "attention_prefill": 1.4, "o_proj": 1.45, "norm": 0.25, "silu_mul": 0.25, "lm_head": 0.05,
}  # fmt: skip
"""How strongly the power limit slows operators of prompts, over the whole step: medians of seven
slices on H200, 1 of all others. Attention and the product after it heat more than other products;
what waits for DRAM, whose clock stays, is hardly slowed."""
LIMITED_S = 0.03
"""Seconds for which the limit slows steps that generate after such prompts: two whole engines on
H200, whose clocks come back 20 to 40 ms after the last prompt."""
LAST = 2
"""Steps at the end of a batch whose clock is back, or nearest to it."""
LIMITED = {
    "qkv_proj": 1.05, "o_proj": 1.07, "gate_up_proj": 1.02, "down_proj": 1.035, "lm_head": 1.0,
    "attention_decode": 1.08,
}  # fmt: skip
"""How many times as long operators of these steps take until then: the first steps of a batch over
its last ones, medians of two whole engines, which differ by 0.01 here and by up to 0.06 in small
operators. Weights wait for DRAM, whose clock stays."""
LIMITED_SMALL = 1.11
"""The same of small operators."""
PROFILED = 1.2
"""How much longer prompts usually take under nsys where they wait for the host: recorded slices,
1.2 in the median and up to twice."""
FEWEST_LAYERS = 2
"""Layers that must be recorded to tell the time between two that are not the first."""
PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"


@dataclass(frozen=True)
class Recorded:
    """What one step took in a trace: medians over its repetitions, of one GPU.

    `seconds`: operator -> seconds of all its calls in a step. The GPU was idle for `layer_gap_s`
    between the kernels of all layers, and for `rest_gap_s` between those before and after them, at
    the least. `host_s`: the host issued it in so long, under the profiler. `loaded_s`: the GPU had
    read prompts without a pause for so long when the step began. `idle_s`: from when the host began
    with it to its end the GPU had no kernel. `reply_s`: from when its tokens could be sent to when
    the client had the first one; NaN where its requests take more steps of prompts. `layer_s`:
    between the starts of two layers. `limited`: it generates so soon after prompts which the power
    limit slowed that the clock is low yet. `last`: `seconds` of the last steps of such a batch.
    """

    step: Step
    rows: int
    seconds: Mapping[str, float]
    layer_gap_s: float
    rest_gap_s: float
    host_s: float
    loaded_s: float = 0.0
    idle_s: float = math.nan
    reply_s: float = math.nan
    layer_s: float = math.nan
    limited: bool = field(default=False, kw_only=True)
    last: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    @property
    def recovered(self) -> Mapping[str, float]:
        """Seconds of the operators at full clock, or as near to it as the batch came."""
        return self.last or self.seconds

    @property
    def kernel_s(self) -> float:
        """Seconds of all kernels of the step."""
        return sum(self.seconds.values())

    @property
    def kind(self) -> str:
        """What it computed: prefill, decode or mixed."""
        if not self.step.prefill:
            return DECODE
        return MIXED if self.step.decode else PREFILL

    @property
    def gap_s(self) -> float:
        """Seconds that the GPU was idle within the step."""
        return self.layer_gap_s + self.rest_gap_s

    def slowed(self, operator: Operator) -> float:
        """Return how many times as long the low clock makes an operator take, where `limited`.

        Of what no whole engine has shown it, experts, heads and adapters, it is not known: 1.
        """
        small = LIMITED_SMALL if operator.kind is Kind.POINTWISE else 1.0
        return LIMITED.get(operator.name, small) if self.limited else 1.0


@dataclass(frozen=True)
class Trace:
    """A recorded engine: the shard of one GPU that it served, and what its steps took.

    `is_slice`: it served fewer layers than the model has (recipes/layer-slice.yaml). `profiled`:
    prompts that wait for the host took so much longer under the profiler than before it in the same
    process; NaN: not known.
    """

    shape: ModelShape
    steps: tuple[Recorded, ...]
    is_slice: bool = False
    profiled: float = math.nan

    def serves(self, shape: ModelShape) -> bool:
        """Tell whether the layers are those of `shape`, however many there are."""
        return self.shape.with_layers(shape.layers) == shape

    @property
    def served(self) -> ModelShape:
        """What the engine computed: a slice of one rank is all of a smaller model on one GPU."""
        return replace(self.shape, tensor_parallel=1) if self.is_slice else self.shape

    @cached_property
    def burst(self) -> tuple[Recorded, ...]:
        """The steps at full clock: those that ended before the power limit slows the GPU.

        All of them, where no step that reads prompts was as short.
        """
        found = tuple(s for s in self.steps if s.loaded_s + s.kernel_s <= BURST_S)
        return found if any(item.step.prefill for item in found) else self.steps

    def gap(self, kind: str, layers: int) -> float:
        """Return how long the GPU is idle in a step of `layers` layers, the host aside, in s.

        Where the host is late the GPU waits for longer: of the recorded steps the least counts.
        Between the layers of prompts there is less where a CUDA graph holds them; those count only
        where no others were recorded.
        """
        steps = [item for item in self.steps if (item.kind == DECODE) == (kind == DECODE)]
        prefill_only = [item for item in steps if not item.rows] if kind != DECODE else []
        each = min(item.layer_gap_s for item in prefill_only or steps) / self.shape.layers
        return each * layers + min(item.rest_gap_s for item in steps)

    def issue_s(self, layers: int, *, in_graphs: bool = False) -> float:
        """Return in how long the host issues a step of prompts in or outside of CUDA graphs, in s.

        NaN where no such step was recorded. Attention is outside of the graphs of prompts, so that
        each layer has its own; how far apart layers start there, at the least, is what the host
        needs for one (or the GPU, which decides then). What it needs beside them is the same
        outside of graphs; where no prompt was within one, it is that of a step that generates. Of
        the recorded steps the least counts.

        What whole engines need lies above what the profiler adds as a rule (PROFILED), so that it
        is left in; what it adds beyond that is taken off within graphs. Not of a slice of several
        ranks: there the whole engine issues through other processes.
        """
        prompts = [item for item in self.steps if item.kind == PREFILL]
        found = [item for item in prompts if bool(item.rows) == in_graphs]
        if not found:
            return math.nan
        within = [item for item in prompts if item.rows and not math.isnan(item.layer_s)]
        if within:
            layer = min(item.layer_s for item in within)
            fixed = min(item.host_s for item in within) - layer * self.shape.layers
        else:
            fixed = min(item.host_s for item in self.steps if item.kind == DECODE)
        shortest = min(item.host_s for item in found)
        issued = fixed + max(0.0, shortest - fixed) / self.shape.layers * layers
        if in_graphs and self.shape.tensor_parallel == 1 and self.profiled > PROFILED:
            issued *= PROFILED / self.profiled
        return issued

    @property
    def lead_s(self) -> float:
        """Seconds that the GPU waits more for prompts that come to an idle engine, at the least.

        Where the host is ahead of the GPU, it prepares a step while the one before is computed.
        """
        fresh = [item.idle_s for item in self.steps if not math.isnan(item.reply_s)]
        return max(0.0, min(fresh, default=0.0) - self.gap(PREFILL, self.shape.layers))

    @property
    def reply_s(self) -> float:
        """Seconds of a few requests on their way to the engine and of their tokens back."""
        found = [item.reply_s for item in self.steps if item.step.requests <= FEW]
        known = [seconds for seconds in found if not math.isnan(seconds)]
        if not known:
            return math.nan
        # A head is issued beside the ranges of steps: where the host is late it counts as reply.
        return min(known) if self.shape.drafted else float(np.median(known))


def products_of(shape: ModelShape, step: Step) -> tuple[str, ...]:
    """Return the products of a step's layers in their order; none where they are not known.

    Those of latent attention differ by what the step reads.
    """
    mixture, layers = shape.experts, shape.layers
    attention: tuple[str, ...] = PRODUCTS[:2]
    if shape.latent is not None:
        if any(before for _, before in step.expanded):
            return ()  # what they attend to is computed again, in parts
        names = tuple(line.path.rpartition(".")[2] for line in shape.linears())
        attention = names[: names.index("kv_b_proj")]
        attention += EXPANDED if step.expanded else ()
        attention += ABSORBED_PRODUCTS if step.absorbed or step.decode else ()
        attention += ("o_proj",)
    if mixture is None:
        return (*attention, *PRODUCTS[2:]) * layers
    if mixture.layers + mixture.dense != layers or (mixture.shared_width and mixture.shared_gated):
        return ()
    routed = SHARED_MIXTURE if mixture.shared_width else MIXTURE[2:]
    dense = (*attention, *PRODUCTS[2:]) * mixture.dense
    return dense + (*attention, *routed) * mixture.layers


def cut(
    names: list[tuple[str, str, float]],
    order: Sequence[str],
    global_every: int = 0,
    *,
    drafts: bool = False,
) -> dict[str, float] | None:
    """Return seconds by operator of one step's kernels; None where they are no such step.

    Args:
        names: category, short name and seconds of each kernel in the order of their start.
        order: products of all layers, as `products_of` has them; each layer begins with the first.
        global_every: each so many-th layer attends to all tokens, others to a window; 0: all alike.
        drafts: a head drafts tokens after them: all from its first product on.
    """
    found: dict[str, float] = defaultdict(float)
    products, layer, last = 0, 0, ""
    for category, name, seconds in names:
        if _is_product(category, name):
            after = "lm_head" if products == len(order) else DRAFT
            last = order[products] if products < len(order) else after
            layer += last == order[0] if order else 0
            products += 1
        operator = _operator(category, name, last, tuple(order[products : products + 1]))
        if operator == "attention" and global_every and layer % global_every:
            operator += WINDOWED
        found[operator] += seconds
    whole_step = products > len(order) + 1 if drafts else products == len(order) + 1
    return dict(found) if order and whole_step else None


@cache
def _is_product(category: str, name: str) -> bool:
    """Tell whether a kernel is a product of the model, whole and without adapters."""
    return category in GEMM and not (REDUCTION in name or ADAPTERS.search(name))


@cache
def _operator(category: str, name: str, last: str, following: tuple[str, ...]) -> str:
    """Return the operator of a kernel, by the product before it and the next one of the layers."""
    if ADAPTERS.search(name):
        return "adapters"
    if category in GEMM or last == DRAFT:
        return last
    if category == "collective" or name.startswith("NCCL"):
        return "all_gather" if last == "lm_head" else "all_reduce"
    if category == "attention" and last in ATTENDING:
        return "attention"
    if category == "kv_cache" and BETWEEN.get(last) == "rotary":
        return "kv_write"
    if last == "experts":  # the activation between their products, or what sums them
        return "experts" if last in following or category == "moe" else "norm"
    return {"": "embedding", "lm_head": "sampling"}.get(last) or BETWEEN[last]


def read_trace(
    frames: Mapping[str, pd.DataFrame],
    shape: ModelShape,
    points: Sequence[Batch],
    captured: Sequence[int],
    *,
    is_slice: bool = False,
    accept: float = 1.0,
) -> Trace:
    """Return the operators of the steps of a trace.

    Args:
        frames: tables engine_steps, launches and kernels of the run.
        shape: shard of one GPU.
        points: the batches that were served, one after the other.
        captured: batch sizes of CUDA graphs, to which tokens are padded.
        is_slice: the engine served some layers of the model.
        accept: tokens that a step with drafts gave each request.

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
    steps = steps[steps["gpu_start_ns"].notna() & steps["kind"].isin((PREFILL, DECODE, MIXED))]
    found: dict[tuple[Step | int, int], list[_Sample]] = defaultdict(list)
    for pid, of_process in steps.groupby("pid"):
        of_process = of_process.sort_values("step")
        inside = _Launched.of(launches[launches["pid"].eq(pid)])
        first: dict[int, float] = {}
        read: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, -math.inf))
        rows = records(of_process)
        known = list(
            replayed_drafts(rows, points, accept) if shape.drafted else replayed(rows, points)
        )
        for (number, row, step), following in zip(known, [*known[1:], None], strict=True):
            loaded = row["gpu_start_ns"] - first.setdefault(number, row["gpu_start_ns"])
            begin, end = np.searchsorted(inside.starts, [row["gpu_start_ns"], row["gpu_end_ns"]])
            heated_ns, until_ns = read[number]
            if step.prefill:
                read[number] = heated_ns + row["kernel_ns"], row["gpu_end_ns"]
            heated = not step.prefill and heated_ns >= BURST_S * 1e9
            limited = heated and row["gpu_start_ns"] - until_ns < LIMITED_S * 1e9
            around = (
                _host_s(shape, row, following[1] if following else None),
                loaded / 1e9 if step.prefill else 0.0,
                (row["gpu_end_ns"] - row["host_start_ns"] - row["kernel_ns"]) / 1e9,
                _reply_s(points[number], row, step, following[1] if following else None),
            )
            sample = _sample(inside.between(begin, end), shape, step, around)
            if sample is not None:
                # The steps of a batch that generates differ in one token of context.
                slow = sample.around.loaded_s > 0
                key = (step, slow) if step.prefill else (number, step.decode)
                found[key].append(sample._replace(heated=heated, limited=limited))
    recorded = tuple(_recorded(samples, captured, shape.drafted) for samples in found.values())
    missing = {PREFILL, DECODE} - {item.kind for item in recorded}
    if missing:
        raise UsageError(
            f"the trace holds no whole {' or '.join(sorted(missing))} step of the batches that "
            f"were served, with the products of {shape.layers} layers and the head",
            "record one with: prof run vllm-kernels",
        )
    return Trace(shape, recorded, is_slice)


class Batch(NamedTuple):
    """Requests that were served together: how many, and tokens of the prompt and output of each.

    `ttft_s`: median of the times to their first tokens; NaN where it is not known.
    """

    requests: int
    prompt: int
    output: int
    ttft_s: float = math.nan


def replayed(rows: Iterable[Row], points: Sequence[Batch]) -> Iterator[tuple[int, Row, Step]]:
    """Yield the steps of an engine with the number of their batch and what they computed.

    A step's range says how many requests and tokens it has. Which prompts these are of, and how
    long the requests are that generate, follows from the order of arrival (vLLM reads prompts
    first come, first served, and cuts the last one of a step). A trace that ends early, or does
    not go by these rules, ends the steps that are known.
    """
    waiting: deque[list[int]] = deque()
    generating: list[list[int]] = []
    pending, number = deque(points), -1
    for row in rows:
        if not waiting and not generating:
            if not pending:
                return
            batch, number = pending.popleft(), number + 1
            waiting = deque([batch.prompt, 0, batch.output] for _ in range(batch.requests))
        if row["decode_requests"] != len(generating):
            return
        context = float(np.mean([done for _, done, _ in generating])) if generating else 0.0
        decode = len(generating)
        for request in generating:
            request[1] += 1
            request[2] -= 1
        generating = [request for request in generating if request[2]]
        found = _read(waiting, row)
        if found is None:
            return
        chunks, read = found
        for request in read:
            request[1:] = [request[0] + 1, request[2] - 1]
        generating += [request for request in read if request[2]]
        yield number, row, Step(chunks, decode, context)


def replayed_drafts(
    rows: Iterable[Row], points: Sequence[Batch], accept: float
) -> Iterator[tuple[int, Row, Step]]:
    """Yield the steps of an engine that drafts tokens, as `replayed` does.

    How many steps a request takes depends on what is accepted, so that a batch ends with the first
    prompts of the next one. Steps of a part of the batch are left out. How long the requests are
    that generate beside prompts is taken to be what the first of them have.
    """
    waiting: deque[list[int]] = deque()
    pending, number, steps, batch = deque(points), -1, 0, Batch(0, 0, 0)
    for row in rows:
        if row["prefill_tokens"] and not waiting:
            if not pending:
                return
            batch, number, steps = pending.popleft(), number + 1, 0
            waiting = deque([batch.prompt, 0] for _ in range(batch.requests))
        found = _read(waiting, row)
        if found is None:
            return
        chunks, _ = found
        decode, length = row["decode_requests"], batch.prompt + 1 + accept * steps
        if chunks or decode == batch.requests:
            yield number, row, Step(chunks, decode, length if decode else 0.0)
            steps += bool(decode)


def _read(
    waiting: deque[list[int]], row: Row
) -> tuple[tuple[tuple[int, int], ...], list[list[int]]] | None:
    """Take the tokens that a step reads of the prompts that wait.

    Returns:
        What is read of each (`Step`), and the requests whose prompts are read then. None where the
        step has other requests than these.
    """
    chunks, read, budget = [], [], int(row["prefill_tokens"])
    while budget and waiting:
        request = waiting[0]
        new = min(request[0] - request[1], budget)
        chunks.append((new, request[1]))
        request[1] += new
        budget -= new
        if request[1] == request[0]:
            read.append(waiting.popleft())
    if budget or len(chunks) != row["prefill_requests"]:
        return None
    return tuple(chunks), read


class _Around(NamedTuple):
    """What is to be known of a step beside its kernels, with the fields of `Recorded`."""

    host_s: float
    loaded_s: float
    idle_s: float
    reply_s: float
    layer_s: float


class _Sample(NamedTuple):
    """One step of a trace, with the fields of `Recorded`."""

    step: Step
    seconds: dict[str, float]
    layer_gap_s: float
    rest_gap_s: float
    around: _Around
    heated: bool = False
    limited: bool = False


def _host_s(shape: ModelShape, row: Row, following: Row | None) -> float:
    """Return in how long the host issued a step, in s: its range, which is without a head.

    What a head does is issued between two ranges.
    """
    if shape.drafted and following is not None:
        return float(following["host_start_ns"] - row["host_start_ns"]) / 1e9
    return float(row["host_ns"]) / 1e9


def _reply_s(batch: Batch, row: Row, step: Step, following: Row | None) -> float:
    """Return what the first tokens of a batch take beside its only step of prompts, in s.

    Tokens are sent when the GPU is done and the host has issued the next step, which it does
    before it waits for the GPU (vLLM 0.20, asynchronous scheduling).
    """
    if following is None or step.decode or step.prefill != ((batch.prompt, 0),) * batch.requests:
        return math.nan
    issued = following["host_start_ns"] + following["host_ns"]
    ready_ns = max(row["gpu_end_ns"], issued) - row["host_start_ns"]
    return float(batch.ttft_s - ready_ns / 1e9)


class _Launched(NamedTuple):
    """Launches of kernels: category and name of each, ns of start and duration, memsets before."""

    kinds: list[str]
    names: list[str]
    starts: np.ndarray
    durations: np.ndarray
    memsets: np.ndarray

    @classmethod
    def of(cls, launches: pd.DataFrame) -> _Launched:
        """Return those of a table, by their start."""
        kinds, names = (launches[column].astype(str).tolist() for column in ("category", "label"))
        durations, memsets = (
            launches[column].to_numpy(dtype=float) for column in ("duration_ns", "memory_before")
        )
        return cls(kinds, names, launches["start_ns"].to_numpy(np.int64), durations, memsets)

    def between(self, begin: int, end: int) -> _Launched:
        """Return those of two places and between, the second left out."""
        at = slice(begin, end)
        return _Launched(
            self.kinds[at], self.names[at], self.starts[at], self.durations[at], self.memsets[at]
        )


def _sample(
    inside: _Launched,
    shape: ModelShape,
    step: Step,
    around: tuple[float, float, float, float],
) -> _Sample | None:
    """Return what the kernels of a step took; None where they are no such step."""
    kinds, names, durations = inside.kinds, inside.names, inside.durations / 1e9
    starts = inside.starts.astype(float) / 1e9
    if merges_experts(shape) or shape.adapters:  # programmatic launches begin before the last ends
        durations = _alone(starts, durations)
    order = products_of(shape, step)
    every = list(zip(kinds, names, durations.tolist(), strict=True))
    seconds = cut(every, order, shape.global_every, drafts=bool(shape.drafted))
    if seconds is None:
        return None
    gaps = np.clip(starts[1:] - starts[:-1] - durations[:-1], 0, None)
    products = [
        at
        for at, (kind, name) in enumerate(zip(kinds, names, strict=True))
        if kind in GEMM and not ADAPTERS.search(name)
    ]
    if shape.extended:  # the host does more between the first kernels: lead_s has that
        gaps[: products[0]] = np.minimum(gaps[: products[0]], LAUNCHED_S)
    if shape.drafted:  # those of the head come after the layers and the output projection
        single = [at for at in products if REDUCTION not in names[at]]
        products = [at for at in products if at < single[len(order) + 1]]
    between = float(gaps[products[0] : products[-1]].sum())
    if not step.prefill:
        memsets = inside.memsets[products[-1]] - inside.memsets[products[0]]
        between -= MEMSET_TRACED_S * float(memsets)
    single_starts = [starts[at] for at in products if REDUCTION not in names[at]]
    layer_s = _between_layers(single_starts, order)
    rest = float(gaps.sum() - gaps[products[0] : products[-1]].sum())
    return _Sample(step, seconds, between, rest, _Around(*around, layer_s))


def merges_experts(shape: ModelShape) -> bool:
    """Tell whether experts that all tokens use run beside the others, so that all are one."""
    return shape.experts is not None and shape.experts.shared_width > 0


def _alone(starts: np.ndarray, durations: np.ndarray) -> np.ndarray:
    """Return the seconds of each kernel in which none that began before it runs."""
    ends = np.maximum.accumulate(starts + durations)
    before = np.concatenate([starts[:1], ends[:-1]])
    return np.asarray(np.clip(ends - np.maximum(starts, before), 0, None))


def _between_layers(products: Sequence[float], order: Sequence[str]) -> float:
    """Return the median time between the first products of layers, in s.

    `products`: starts of those of the layers and of the output projection. The first layer is left
    out: its attention waits for what all layers share. NaN where there are too few layers.
    """
    first = [at for at, name in zip(products[:-1], order, strict=True) if name == order[0]]
    return float(np.median(np.diff(first)[1:])) if len(first) > FEWEST_LAYERS else math.nan


def _recorded(samples: Sequence[_Sample], captured: Sequence[int], drafted: int) -> Recorded:
    step = samples[0].step
    step = replace(step, context=float(np.mean([sample.step.context for sample in samples])))
    return Recorded(
        step,
        padded_rows(captured, step.tokens + drafted * step.decode),
        _medians([sample.seconds for sample in samples]),
        min(sample.layer_gap_s for sample in samples),
        min(sample.rest_gap_s for sample in samples),
        *(float(value) for value in np.median([sample.around for sample in samples], axis=0)),
        limited=2 * sum(sample.limited for sample in samples) > len(samples),
        last=_medians([sample.seconds for sample in samples[-LAST:] if sample.heated]),
    )


def _medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median seconds of each operator of steps."""
    names = dict.fromkeys(name for seconds in steps for name in seconds)
    return {n: float(np.median([seconds.get(n, 0.0) for seconds in steps])) for n in names}


@dataclass(frozen=True)
class Calibrated:
    """T3: costs of a lower tier, drawn through what a recorded engine took.

    Of products and attention, measured over estimated seconds are interpolated in their logarithm
    between the recorded steps: along m, and for attention along the work per token too. Small
    operators and collectives lie on the line between the next two recorded sizes. Recorded at one
    size alone, the attention of decode and small operators get the difference to what was
    measured, which is a fixed cost.
    Intervals are those that sizes between two measured ones of the same product had.
    """

    base: Costs
    trace: Trace
    residuals: Residuals
    small: Residuals
    tier: str
    _anchors: Mapping[tuple[str, str], Anchors] = field(default_factory=dict)

    @classmethod
    def of_trace(cls, base: Costs, trace: Trace, shape: ModelShape) -> Calibrated:
        """Return the costs of an engine like the recorded one that serves the shard `shape`.

        With another shard they stay of tier T1, and products as unsure as those of other shapes;
        collectives among another number of GPUs are not known.
        """
        same = trace.serves(shape)
        as_many = trace.shape.tensor_parallel == shape.tensor_parallel
        found: dict[tuple[str, str], list[tuple[Operator, float]]] = defaultdict(list)
        for recorded in trace.burst:
            items = operators(trace.served, recorded.step, recorded.rows)
            names = Counter(recorded_name(item.name) for item in items)
            for item in items:
                seconds = recorded.recovered.get(recorded_name(item.name))
                if not seconds or names[recorded_name(item.name)] > 1:
                    continue  # one kernel attends for the prompts and for those that generate
                if as_many or item.kind is not Kind.COLLECTIVE:
                    found[item.name, item.dtype].append((item, seconds / item.calls))
        anchors = {key: Anchors.of(base, items) for key, items in found.items()}
        spread = base.spread() if isinstance(base, Benchmarked) else None
        if spread is not None and (math.isfinite(spread.same.high) or not same):
            residuals, small = spread.same if same else spread.others, spread.small
        else:
            residuals, small = _left_out(found, anchors)
        tier = T3 if same else T1 if spread is not None else T0
        return cls(base, trace, residuals, small, tier, anchors)

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; what the trace has not, or in another type, is of the lower tier.

        Where the engine quantized activations, kernels around the products did it: their time has
        it already. That of experts has the router and what all tokens use.
        """
        shared = operator.name == ROUTER or operator.name.startswith(SHARED)
        if (operator.quantizes and self.trace.shape.quantized) or (
            shared and merges_experts(self.trace.shape)
        ):
            return Estimate(0.0, 0.0, 0.0, self.tier)
        anchors = self._anchors.get((operator.name, operator.dtype))
        if anchors is None:
            return self.base.of(operator)
        seconds = anchors.seconds(operator)
        moves = operator.kind in (Kind.POINTWISE, Kind.COLLECTIVE)
        residuals = self.small if moves else self.residuals
        return Estimate(seconds, seconds * residuals.low, seconds * residuals.high, self.tier)


def _left_out(
    found: Mapping[tuple[str, str], Sequence[tuple[Operator, float]]],
    anchors: Mapping[tuple[str, str], Anchors],
) -> tuple[Residuals, Residuals]:
    """Return what the trace leaves out of itself: of products and attention, and of all else."""
    moves: dict[bool, list[float]] = defaultdict(list)
    for key, items in found.items():
        moves[items[0][0].kind in (Kind.POINTWISE, Kind.COLLECTIVE)] += anchors[key].left_out()
    return Residuals.of(moves[False]), Residuals.of(moves[True])


def power_of(trace: Trace, costs: Costs) -> Power:
    """Return how much longer than by `costs` the recorded steps took that began after the burst.

    Not slower where none was recorded: what one long step took has it already.
    """
    slower = []
    for recorded in trace.steps:
        if recorded.step.prefill and recorded.loaded_s >= BURST_S:
            expected = sum(
                item.calls * costs.of(item).seconds
                for item in operators(trace.served, recorded.step, recorded.rows)
                if recorded.seconds.get(recorded_name(item.name))
            )
            slower.append(recorded.kernel_s / expected)
    return Power(BURST_S, max(1.0, float(np.median(slower)))) if slower else Power()


def recorded_name(name: str) -> str:
    """Return how `cut` calls an operator: it does not tell attention of prompts from decode."""
    if name.startswith(DRAFT):
        return DRAFT
    if not name.startswith("attention"):
        return name
    return f"attention{WINDOWED}" if name.endswith(WINDOWED) else "attention"
