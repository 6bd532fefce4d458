"""Lists the operators of one engine step of a decoder, with their work.

FLOPs and bytes are what an operator must do: every operand once. Names follow vLLM's modules and
the order is that of a forward pass. The model is the shard of one GPU for tensor parallelism.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import Adapters, Latent, Linear, ModelShape, Quantized

BF16, FP8 = "bf16", "fp8"
"""Types of products, as the tables `bench` and `imported_operators` name them; fp16 takes as long
as bf16."""
LOGIT_BYTES = 10
"""Bytes that sampling moves for each logit: bf16 read, fp32 written, fp32 read (argmax)."""


STATIC, DYNAMIC = "static quantization", "dynamic quantization"
"""How activations are quantized: by a scale of the checkpoint, or by one of each token."""
QUANTIZE = "quantize_"
"""Begins the names of quantizations, which end with the name of the product."""


ROUTER, SHARED = "router", "shared_"
"""What chooses experts; begins the names of what belongs to the expert that every token uses."""
FEW = 8
"""Requests that come at once; to take more of them in delays the first token by itself."""
ABSORBED_TOKENS = 512
"""Prompts, and chunks of them, of at most so many tokens attend to the latent vectors themselves,
as requests that generate do; of longer ones keys and values are computed (vLLM 0.20 on Hopper:
v1/attention/backends/mla/flashattn_mla.py)."""
ABSORBED = "_absorbed"
"""Ends the name of attention of such prompts."""
WINDOWED = "_window"
"""Ends the names of attention to a window, where other layers attend to all tokens."""


class Kind(StrEnum):
    """What decides how long an operator takes."""

    PRODUCT = "product"
    ROUTED = "routed products"
    PREFILL = "prefill attention"
    DECODE = "decode attention"
    POINTWISE = "pointwise"
    COLLECTIVE = "collective"
    DRAFT = "drafting"
    ADAPTER = "adapters"


@dataclass(frozen=True)
class Operator:
    """One operator of a step: `calls` times the same work.

    `m`, `n`, `k` are those of a product y = x W^T (m tokens, n outputs, k inputs), else `m` is the
    number of tokens; `k` of a quantization is the width of what is quantized, `n` of routed
    products the intermediate size of one expert, of drafting the tokens of a request, and of
    adapters how many of them a step reads. `flops`
    and `bytes` are of one call. `dtype` is that of the weights, and of the KV cache of attention.
    """

    name: str
    kind: Kind
    calls: int
    m: int
    n: int = 0
    k: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    dtype: str = BF16

    @property
    def quantizes(self) -> bool:
        """Whether it brings the activations of a product to fewer bits."""
        return self.name.startswith(QUANTIZE)


@dataclass(frozen=True)
class Step:
    """What one engine step computes.

    `prefill`: (new tokens, tokens already in the KV cache) of each prompt or chunk of one.
    `decode` requests get one token more each; they have `context` tokens on average.
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode: int = 0
    context: float = 0.0

    @property
    def tokens(self) -> int:
        """New tokens: rows of every product in the layers."""
        if not self.prefill:  # nearly all steps
            return self.decode
        return self.decode + sum(new for new, _ in self.prefill)

    @property
    def expanded(self) -> tuple[tuple[int, int], ...]:
        """The prompts and chunks whose keys and values are computed from latent vectors."""
        return tuple(chunk for chunk in self.prefill if chunk[0] > ABSORBED_TOKENS)

    @property
    def absorbed(self) -> tuple[tuple[int, int], ...]:
        """Those that attend to the latent vectors themselves."""
        return tuple(chunk for chunk in self.prefill if chunk[0] <= ABSORBED_TOKENS)

    @property
    def requests(self) -> int:
        """Requests of the step: rows of the output projection."""
        return self.decode + len(self.prefill)


def padded_rows(captured: Sequence[int], tokens: int) -> int:
    """Return what the tokens of a step are padded to: the next captured graph; 0 beyond them."""
    index = bisect.bisect_left(captured, tokens)
    return captured[index] if index < len(captured) else 0


def check_known(shape: ModelShape) -> None:
    """Refuse a model whose operators are not listed here.

    Raises:
        UsageError: it has quantized experts, or values of types that are not known, or a head or
            adapters beside layers of other kinds than those that were measured.
    """
    if shape.extended and (shape.experts or shape.latent or shape.window):
        raise UsageError(
            stored(
                "speculative decoding and LoRA adapters are predicted of dense models whose layers "
                "attend to all tokens: of others none were measured"
            ),
            "profile it instead: prof run vllm-kernels --set target.args.model=MODEL",
        )
    if shape.experts and shape.quantized:
        reason = stored("none were measured")
        if shape.quantized.dtype == FP8:
            reason = stored(
                "the imported tables have them 2 to 4 times slower than in bf16, and whose kernels "
                "these are is not known"
            )
        raise UsageError(
            stored(
                "experts in {dtype} ({model_type}) cannot be predicted: {reason}",
                dtype=shape.quantized.dtype,
                model_type=shape.model_type,
                reason=reason,
            ),
            "profile it instead: prof run vllm-kernels --set target.args.model=MODEL",
        )
    if shape.dtype not in ("bfloat16", "float16"):
        raise UsageError(
            stored(
                "weights of type {dtype} cannot be predicted: none were measured", dtype=shape.dtype
            ),
            "give a model in bfloat16 or float16 (dtype in config.json)",
        )
    if shape.kv_bytes not in (1, shape.weight_bytes):
        raise UsageError(
            stored(
                "a KV cache of {kv_bytes:g} bytes a value cannot be predicted: none was measured",
                kv_bytes=shape.kv_bytes,
            ),
            "leave the type of the KV cache to the model, or take fp8",
        )


@lru_cache(maxsize=4096)
def operators(shape: ModelShape, step: Step, rows: int = 0) -> tuple[Operator, ...]:
    """Return the operators of a step in the order of a forward pass.

    Args:
        shape: of the shard that one GPU holds.
        step: what is computed.
        rows: tokens that the products are padded to (a captured graph); 0: none.
    """
    tokens = max(rows, step.tokens + shape.drafted * step.decode)
    logits = step.requests + shape.drafted * step.decode
    wide, grouped = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    size, layers = shape.weight_bytes, shape.layers
    act = tokens * shape.hidden * size

    def pointwise(name: str, calls: int, moved: float) -> Operator:
        return Operator(name, Kind.POINTWISE, calls, tokens, bytes=moved)

    found = [pointwise("embedding", 1, 2 * act)]
    norms = pointwise("norm", shape.norms * layers + 1, 4 * act)
    for line in shape.linears():
        if shape.latent is not None and line.path.endswith("kv_b_proj"):
            found += _latent_attention(shape, shape.latent, step, rows, line)
            continue
        if shape.latent is None and line.path.endswith("o_proj"):
            found += [
                pointwise("rotary", layers, 2 * tokens * (wide + grouped) * size),
                pointwise("kv_write", layers, 2 * tokens * grouped * (size + shape.kv_bytes)),
                *_attention(shape, step),
            ]
        found += _module(shape, line, tokens)
    found.append(norms)
    if shape.adapters:
        found.append(_adapters(shape, shape.adapters, tokens, step.requests))
    head = shape.head()
    found.append(_product("lm_head", 1, logits, head.outputs, head.inputs, size, None))
    vocabulary = head.outputs * shape.tensor_parallel
    if shape.tensor_parallel > 1:
        found.append(Operator("all_reduce", Kind.COLLECTIVE, 2 * layers + 1, tokens, bytes=act))
        moved = logits * vocabulary * size
        found.append(Operator("all_gather", Kind.COLLECTIVE, 1, logits, bytes=moved))
    sampled = LOGIT_BYTES * logits * vocabulary
    found.append(Operator("sampling", Kind.POINTWISE, 1, logits, bytes=sampled))
    if shape.drafted:
        found.append(_draft(shape, step, tokens))
    return tuple(found)


def _adapters(shape: ModelShape, adapters: Adapters, tokens: int, requests: int) -> Operator:
    """Return what the adapters of all tokens add to the products of a layer: to a rank and back."""
    changed = [line for line in shape.linears() if adapters.values(line)]
    values = sum(map(adapters.values, changed))
    widths = sum(line.inputs + 2 * line.outputs for line in changed)
    read = min(adapters.count, requests)
    moved = (read * values + tokens * widths) * shape.weight_bytes
    flops = 2.0 * tokens * values
    layers = shape.layers
    return Operator("adapters", Kind.ADAPTER, layers, tokens, n=read, flops=flops, bytes=moved)


def _draft(shape: ModelShape, step: Step, tokens: int) -> Operator:
    """Return all passes of an EAGLE head: the first over all tokens, then one of each request.

    Each pass reads the head, the output projection, and the head's keys and values.
    """
    passes, requests, values = shape.drafted, step.requests, shape.eagle_values()
    vocabulary = shape.head().values
    keys = step.decode * step.context + sum(new + before for new, before in step.prefill)
    cached = 2 * shape.kv_heads * shape.head_dim * shape.kv_bytes
    moved = passes * ((values + vocabulary) * shape.weight_bytes + keys * cached)
    multiplied = values * (tokens + (passes - 1) * requests) + vocabulary * passes * requests
    length = 0 if step.prefill else round(step.context)
    name, m = ("draft_prefill", tokens) if step.prefill else ("draft_decode", step.decode)
    return Operator(name, Kind.DRAFT, 1, m, length, flops=2.0 * multiplied, bytes=moved)


def _module(shape: ModelShape, line: Linear, tokens: int) -> list[Operator]:
    """Return the product of a matrix, and what stands before it; of all experts one operator."""
    owner, name = line.path.split(".")[-2:]
    size, narrow = shape.weight_bytes, None if line.stays_wide else shape.quantized
    if owner == "experts":
        return [_experts(shape, line.layers, tokens)] if name == "gate_up_proj" else []
    if line.outputs == 1:  # One value per token: no Tensor Core is busy with it.
        moved = tokens * line.inputs * size
        return [Operator(name, Kind.POINTWISE, line.layers, tokens, bytes=moved)]
    name = ROUTER if name == "gate" else name
    prefix = SHARED if owner == "shared_expert" else ""
    found = []
    if name == "down_proj":
        moved = 3 * tokens * line.inputs * size
        silu = Operator(f"{prefix}silu_mul", Kind.POINTWISE, line.layers, tokens, bytes=moved)
        found.append(silu)
    name = f"{prefix}{name}"
    if narrow is not None and not narrow.wide_inputs:
        found.append(_quantization(name, line.layers, tokens, line.inputs, size, narrow))
    sizes = line.layers, tokens, line.outputs, line.inputs
    return [*found, _product(name, *sizes, size, narrow)]


def _experts(shape: ModelShape, layers: int, tokens: int) -> Operator:
    """Return both products of the experts, with choosing them and the activation between.

    Bytes are the weights of the experts that tokens which choose at random would meet.
    """
    mixture = shape.experts
    assert mixture is not None
    values = 3 * shape.hidden * mixture.width
    met = mixture.count * (1 - (1 - mixture.used / mixture.count) ** tokens)
    moved = (met * values + 2 * tokens * shape.hidden) * shape.weight_bytes
    flops = 2.0 * tokens * mixture.used * values
    sizes = tokens, mixture.width, shape.hidden
    return Operator("experts", Kind.ROUTED, layers, *sizes, flops, moved)


def _product(
    name: str, calls: int, m: int, n: int, k: int, size: float, narrow: Quantized | None
) -> Operator:
    weight = size if narrow is None else narrow.value_bytes
    activation = size if narrow is None or narrow.wide_inputs else narrow.value_bytes
    moved = m * k * activation + n * k * weight + m * n * size
    dtype = BF16 if narrow is None else narrow.dtype
    return Operator(name, Kind.PRODUCT, calls, m, n, k, 2.0 * m * n * k, moved, dtype)


def _quantization(
    name: str, calls: int, tokens: int, width: int, size: float, narrow: Quantized
) -> Operator:
    """Return what brings the activations of a product to its type: read once, written once."""
    moved = tokens * width * (size + narrow.value_bytes)
    how = DYNAMIC if narrow.dynamic else STATIC
    return Operator(
        f"{QUANTIZE}{name}", Kind.POINTWISE, calls, tokens, k=width, bytes=moved, dtype=how
    )


def _latent_attention(
    shape: ModelShape, latent: Latent, step: Step, rows: int, line: Linear
) -> list[Operator]:
    """Return latent attention with the products beside it, of `Latent.expanded` or `absorbed`.

    Computed are keys and values (`line`) of long prompts and of what they attend to; else queries
    are brought to the latent vector (`q_absorb`), and what is attended to back (`v_up`), by
    products of each head by itself.
    """
    size, heads, layers = shape.weight_bytes, shape.heads, shape.layers
    tokens = max(rows, step.tokens)
    rotated = heads * latent.rope + latent.cached
    written = tokens * latent.cached * (size + shape.kv_bytes)
    found = [
        Operator("rotary", Kind.POINTWISE, layers, tokens, bytes=2 * tokens * rotated * size),
        Operator("kv_write", Kind.POINTWISE, layers, tokens, bytes=written),
    ]
    if step.expanded:
        keys = sum(new + before for new, before in step.expanded)
        matrix = layers, keys, line.outputs, line.inputs
        found.append(_product("kv_b_proj", *matrix, size, shape.quantized))
        moved = latent.expanded * heads * size
        found.append(_latent_prefill(shape, step.expanded, latent.expanded, moved, moved, ""))
    # Attention to prompts is outside of CUDA graphs, which alone pad.
    absorbed = step.decode + sum(new for new, _ in step.absorbed) if step.prefill else tokens
    if not absorbed:
        return found
    read, queries = latent.cached * shape.kv_bytes, heads * latent.absorbed * size
    found.append(_by_heads("q_absorb", layers, absorbed, heads, latent.rank, latent.nope, size))
    if step.absorbed:
        widths = latent.absorbed, queries, read
        found.append(_latent_prefill(shape, step.absorbed, *widths, ABSORBED))
    if step.decode:
        attended = step.decode * (step.context + 1)
        flops = 2.0 * heads * latent.absorbed * attended
        moved = step.decode * queries + attended * read
        decode = "attention_decode", Kind.DECODE, layers, step.decode
        found.append(Operator(*decode, flops=flops, bytes=moved, dtype=_cache_type(shape)))
    found.append(_by_heads("v_up", layers, absorbed, heads, latent.value, latent.rank, size))
    return found


def _latent_prefill(
    shape: ModelShape,
    chunks: Sequence[tuple[int, int]],
    width: int,
    query_bytes: float,
    key_bytes: float,
    end: str,
) -> Operator:
    """Return the attention of prompts: `width` products for each head, query and key."""
    new = sum(tokens for tokens, _ in chunks)
    keys = sum(tokens + before for tokens, before in chunks)
    pairs = sum(_pairs(tokens, before, None) for tokens, before in chunks)
    flops = 2.0 * shape.heads * width * pairs
    moved = new * query_bytes + keys * key_bytes
    of = f"attention_prefill{end}", Kind.PREFILL, shape.layers, new
    return Operator(*of, flops=flops, bytes=moved, dtype=_cache_type(shape))


def _by_heads(
    name: str, calls: int, m: int, heads: int, outputs: int, inputs: int, size: float
) -> Operator:
    """Return a product of each head by itself, for m tokens."""
    moved = heads * (m * inputs + inputs * outputs + m * outputs) * size
    flops = 2.0 * heads * m * outputs * inputs
    return Operator(name, Kind.PRODUCT, calls, m, heads * outputs, inputs, flops, moved)


def _attention(shape: ModelShape, step: Step) -> list[Operator]:
    """Return the attention of prompts and that of requests that go on, where there are any.

    FLOPs: 4 x head dimension for each head and (query, key) pair, causal (FlashAttention-3,
    arXiv:2407.08608, section 4.1). Bytes: queries and outputs, keys and values once.
    """
    found = []
    wide, grouped = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    spans = shape.spans()
    for window, layers in spans:
        end = WINDOWED if window is not None and len(spans) > 1 else ""
        if step.prefill:
            new = sum(tokens for tokens, _ in step.prefill)
            keys = sum(_attended(tokens + before, window) for tokens, before in step.prefill)
            pairs = sum(_pairs(tokens, before, window) for tokens, before in step.prefill)
            moved = 2 * new * wide * shape.weight_bytes + 2 * keys * grouped * shape.kv_bytes
            name = f"attention_prefill{end}"
            found.append(_attend(name, Kind.PREFILL, shape, layers, new, pairs, moved))
        if step.decode:
            new, keys = step.decode, step.decode * _attended(step.context + 1, window)
            each = 1 + shape.drafted  # queries of a request
            moved = 2 * new * each * wide * shape.weight_bytes + 2 * keys * grouped * shape.kv_bytes
            name = f"attention_decode{end}"
            found.append(_attend(name, Kind.DECODE, shape, layers, new, keys * each, moved))
    return found


def _attend(
    name: str, kind: Kind, shape: ModelShape, layers: int, tokens: int, pairs: float, moved: float
) -> Operator:
    flops = 4.0 * shape.heads * shape.head_dim * pairs
    dtype = _cache_type(shape)
    return Operator(name, kind, layers, tokens, flops=flops, bytes=moved, dtype=dtype)


def _cache_type(shape: ModelShape) -> str:
    return BF16 if shape.kv_bytes == shape.weight_bytes else FP8


def _attended(tokens: float, window: int | None) -> float:
    return tokens if window is None else min(tokens, window)


def _pairs(new: int, before: int, window: int | None) -> float:
    if window is None or before + new <= window:
        return new * before + new * (new + 1) / 2
    return float(sum(min(before + i, window) for i in range(1, new + 1)))
