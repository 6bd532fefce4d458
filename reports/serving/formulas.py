"""What a decoder must compute and move in one engine step, and what share of a roof that is.

Plain functions of a `ModelShape` (of the shard of one GPU for tensor parallelism) and of the `Work`
of a step. FLOPs and bytes are the least that the model needs: no padding, no activations, no norms.
So MFU and MBU are shares of useful work, and what the hardware counts is never less.

Sources: PaLM (Chowdhery et al., arXiv:2204.02311, appendix B) for MFU and 2 FLOP a parameter and
token; Pope et al. (arXiv:2211.05102) for bytes of weights and KV cache; FlashAttention-3 (Shah et
al., arXiv:2407.08608, section 4.1) for 4 x head dimension FLOPs a head and (query, key) pair, half
of them causal. vLLM computes logits for the last position of a prompt only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from nsight_prof.parsers.serving.model_shape import Linear, ModelShape


@dataclass(frozen=True)
class Work:
    """What one engine step does: the requests of it, each in tokens.

    `prefill`: (new tokens, tokens already in the KV cache) of each prompt or chunk of one.
    `decode`: tokens already in the cache of each request that gets one token more.
    `sampled`: positions with logits; None: one per request, also of a prompt that was cut, as vLLM
    does (v1/worker/gpu_model_runner.py, 0.20).
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode: tuple[int, ...] = ()
    sampled: int | None = None

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """All requests as (new tokens, tokens already in the cache)."""
        return (*self.prefill, *((1, before) for before in self.decode))

    @property
    def tokens(self) -> int:
        """New tokens: rows of every matrix product in the layers."""
        return sum(new for new, _ in self.chunks)

    @property
    def logits(self) -> int:
        """Positions that go through the output projection."""
        return len(self.chunks) if self.sampled is None else self.sampled


def prefill(batch: int, prompt_tokens: int) -> Work:
    """Return the step that computes `batch` whole prompts."""
    return Work(prefill=((prompt_tokens, 0),) * batch)


def decode(batch: int, context: float) -> Work:
    """Return the step that gives `batch` requests one token more after `context` tokens."""
    return Work(decode=(round(context),) * batch)


@dataclass(frozen=True)
class Flops:
    """FLOPs of a step by part; `total` of all."""

    linear: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        """All FLOPs."""
        return self.linear + self.attention + self.head


@dataclass(frozen=True)
class Traffic:
    """Bytes that a step must move to or from DRAM, where nothing stays in a cache.

    `weights` and `kv_read` are read, `kv_written` is written.
    """

    weights: float
    kv_read: float
    kv_written: float

    @property
    def read(self) -> float:
        """Bytes read: weights and the KV cache of the tokens before."""
        return self.weights + self.kv_read


def flops(shape: ModelShape, work: Work) -> Flops:
    """Return the FLOPs of a step: 2 a parameter and token, attention, and the head's."""
    return Flops(
        2.0 * work.tokens * sum(linear.active for linear in shape.linears()),
        attention_flops(shape, work),
        2.0 * work.logits * shape.head().values,
    )


def attention_flops(shape: ModelShape, work: Work, *, causal: bool = True) -> float:
    """Return 4 x head dimension x heads x layers FLOPs for each (query, key) pair.

    Of latent attention 2 x what a head multiplies for a pair: keys and values are computed for
    prompts, and absorbed into the queries of requests that generate (parsers.serving.model_shape).
    With `causal` a query meets the tokens up to its own. Without it every query of a chunk meets
    the whole chunk, which is how vLLM's own estimate counts (vllm/v1/metrics/perf.py, 0.20).
    """
    products = sum(
        layers * _width(shape, new) * _pairs(new, before, window, causal)
        for window, layers in shape.spans()
        for new, before in work.chunks
    )
    return 2.0 * shape.heads * float(products)


def _width(shape: ModelShape, new: int) -> int:
    """Return how many products a head has for each (query, key) pair of a request."""
    if shape.latent is None:
        return 2 * shape.head_dim
    return shape.latent.absorbed if new == 1 else shape.latent.expanded


def _pairs(new: int, before: int, window: int | None, causal: bool) -> int:
    if not causal:
        return new * (before + new)
    if window is None:
        return new * before + new * (new + 1) // 2
    return sum(min(before + i, window) for i in range(1, new + 1))


def traffic(shape: ModelShape, work: Work) -> Traffic:
    """Return the bytes of a step: weights once, and keys and values of the tokens before.

    A prefill of whole prompts reads no KV cache here: its keys and values are new in this step.
    """
    a_token = shape.kv_bytes_per_token()
    read = (
        sum(
            layers * min(before, window or before)
            for window, layers in shape.spans()
            for _, before in work.chunks
        )
        / shape.layers
    )
    return Traffic(
        weight_bytes(shape, work.tokens, work.logits), read * a_token, work.tokens * a_token
    )


def weight_bytes(shape: ModelShape, tokens: int, logits: int | None = None) -> float:
    """Return the bytes of weights that a step of `tokens` tokens reads.

    All matrices and norms, the rows of the embedding table that the tokens name (not the table),
    and the output projection where some position has logits.
    """
    inside = sum(touched(linear, tokens) for linear in shape.linears())
    rows = min(tokens, shape.vocabulary) * shape.hidden
    head = shape.head().values if logits is None or logits > 0 else 0
    saved = sum(
        shape.saved(linear) * touched(linear, tokens) / linear.parameters
        for linear in shape.linears()
    )
    return (inside + shape.norm_parameters() + rows + head) * shape.weight_bytes - saved


def touched(linear: Linear, tokens: int) -> float:
    """Return the parameters that `tokens` tokens read: of experts, those that some token uses.

    With a router that spreads tokens evenly an expert is left out with (1 - used/copies)^tokens.
    """
    if linear.copies == linear.used:
        return float(linear.parameters)
    return linear.parameters * (1 - (1 - linear.used / linear.copies) ** tokens)


def total_flops(shape: ModelShape, steps: Iterable[Work]) -> Flops:
    """Return the FLOPs of several steps."""
    amounts = [flops(shape, work) for work in steps]
    return Flops(
        sum(step.linear for step in amounts),
        sum(step.attention for step in amounts),
        sum(step.head for step in amounts),
    )


def total_traffic(shape: ModelShape, steps: Iterable[Work]) -> Traffic:
    """Return the bytes of several steps; each reads the weights again."""
    amounts = [traffic(shape, work) for work in steps]
    return Traffic(
        sum(step.weights for step in amounts),
        sum(step.kv_read for step in amounts),
        sum(step.kv_written for step in amounts),
    )


def mfu(useful_flops: float, seconds: float, peak: float) -> float:
    """Return the model FLOPs utilisation: useful FLOP/s over a peak in FLOP/s; NaN if unknown."""
    return _ratio(useful_flops, seconds * peak)


def mbu(useful_bytes: float, seconds: float, bandwidth: float) -> float:
    """Return the memory bandwidth utilisation: needed B/s over a bandwidth; NaN if unknown."""
    return _ratio(useful_bytes, seconds * bandwidth)


def floor_s(shape: ModelShape, work: Work, bandwidth: float, peak: float) -> float:
    """Return the least seconds of a step: the larger of reading and computing; NaN if unknown."""
    reading = _ratio(traffic(shape, work).read, bandwidth)
    computing = _ratio(flops(shape, work).total, peak)
    if math.isnan(reading) or math.isnan(computing):
        return math.nan
    return max(reading, computing)


def _ratio(amount: float, total: float) -> float:
    return amount / total if total > 0 else math.nan
