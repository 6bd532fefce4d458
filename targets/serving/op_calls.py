"""The operators of a decoder as vLLM calls them: (kernel before, call) pairs on their own buffers.

Products are those of vLLM's layers in 16 bits; attention and the write of keys and values are its
FlashAttention back end over a paged cache, with its scheduling ahead of time; norms, rotary
embedding and activation are compiled by torch.compile for any number of tokens, as vLLM compiles
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch

from nsight_prof.targets.harness import Call, Setup
from nsight_prof.targets.serving.op_shapes import Attended, Decoder

BLOCK = 16
"""Tokens of a block of the KV cache, vLLM's own size."""
GRAPH_TOKENS = 512
"""Tokens of the largest step that vLLM captures by itself."""
SPLITS = 32
"""Most parts of the keys within a graph (vLLM 0.20: flash_attn_max_num_splits_for_cuda_graph)."""
Pairs = tuple[Sequence[Call], Sequence[Call]]
"""Kernels before, and the calls."""


def _normal(setup: Setup, *shape: int, scale: float = 1.0) -> torch.Tensor:
    made = torch.empty(*shape, dtype=torch.bfloat16, device=setup.device)
    return made.normal_(0.0, scale)


def _touched(tensor: torch.Tensor) -> Call:
    """Return a kernel that writes a tensor: the call after it finds it in the cache."""
    return lambda: tensor.mul_(1.0)


def product(setup: Setup, tokens: int, outputs: int, inputs: int) -> Pairs:
    """Return y = x W^T, x just written and each W from DRAM."""
    x = _normal(setup, tokens, inputs)
    weights = [_normal(setup, outputs, inputs, scale=inputs**-0.5) for _ in range(setup.copies)]
    multiply = torch.nn.functional.linear
    return [_touched(x)] * len(weights), [partial(multiply, x, w) for w in weights]


def attention(setup: Setup, decoder: Decoder, size: Attended) -> Pairs:
    """Return attention over a paged cache, the queries just written and each cache from DRAM."""
    from vllm.v1.attention.backends.fa_utils import (
        flash_attn_varlen_func,
        get_flash_attn_version,
        get_scheduler_metadata,
    )

    requests, tokens = size.requests, size.requests * size.new
    longest = size.new + size.before
    blocks = math.ceil(longest / BLOCK)
    layer = (requests * blocks, BLOCK, decoder.kv_heads, decoder.head_dim)
    q = _normal(setup, tokens, decoder.heads, decoder.head_dim)
    out = torch.empty_like(q)
    caches = [(_normal(setup, *layer), _normal(setup, *layer)) for _ in range(setup.copies)]

    def whole(values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=setup.device)

    starts = whole([size.new * i for i in range(requests + 1)])
    lengths = whole([longest] * requests)
    table = torch.randperm(requests * blocks, device=setup.device).int().view(requests, blocks)
    scale_shape = (requests, decoder.kv_heads)
    one = torch.ones(1, device=setup.device).expand(scale_shape)
    splits = SPLITS if tokens <= GRAPH_TOKENS else 0
    version = get_flash_attn_version()
    ahead = None
    if version == 3:
        ahead = get_scheduler_metadata(
            batch_size=requests, max_seqlen_q=size.new, max_seqlen_k=longest,
            num_heads_q=decoder.heads, num_heads_kv=decoder.kv_heads, headdim=decoder.head_dim,
            cache_seqlens=lengths, qkv_dtype=torch.bfloat16, cu_seqlens_q=starts,
            page_size=BLOCK, causal=True, window_size=(-1, -1), num_splits=splits,
        )  # fmt: skip

    def call(keys: torch.Tensor, values: torch.Tensor) -> object:
        return flash_attn_varlen_func(
            q=q, k=keys, v=values, out=out, cu_seqlens_q=starts, max_seqlen_q=size.new,
            seqused_k=lengths, max_seqlen_k=longest, softmax_scale=decoder.head_dim**-0.5,
            causal=True, alibi_slopes=None, window_size=[-1, -1], block_table=table, softcap=0,
            scheduler_metadata=ahead, fa_version=version, q_descale=one, k_descale=one,
            v_descale=one, num_splits=splits, s_aux=None,
        )  # fmt: skip

    return [_touched(q)] * len(caches), [partial(call, *pair) for pair in caches]


def kv_write(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the write of new keys and values into the paged cache."""
    from vllm._custom_ops import reshape_and_cache_flash

    shape = (tokens, decoder.kv_heads, decoder.head_dim)
    key, value = _normal(setup, *shape), _normal(setup, *shape)
    blocks = 4 * math.ceil(tokens / BLOCK)
    layer = (blocks, BLOCK, *shape[1:])
    slots = torch.randperm(blocks * BLOCK, device=setup.device)[:tokens]
    one = torch.ones(1, device=setup.device)
    caches = [(_normal(setup, *layer), _normal(setup, *layer)) for _ in range(setup.copies)]

    def call(keys: torch.Tensor, values: torch.Tensor) -> object:
        return reshape_and_cache_flash(key, value, keys, values, slots, "auto", one, one)

    return [_touched(key)] * len(caches), [partial(call, *pair) for pair in caches]


def norm(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the sum with the residual and its RMS norm."""
    x, residual = (_normal(setup, tokens, decoder.hidden) for _ in range(2))
    weight = _normal(setup, decoder.hidden)
    _any_number(x, residual)
    return _repeated(setup, x, _compiled(_add_norm), x, residual, weight)


def silu_mul(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the activation of gate and up."""
    x = _normal(setup, tokens, 2 * decoder.intermediate)
    _any_number(x)
    return _repeated(setup, x, _compiled(_silu_mul), x)


def rotary(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the rotary embedding of queries and keys, with their norms where the model has any."""
    heads = decoder.heads + decoder.kv_heads
    qkv = _normal(setup, tokens, heads + decoder.kv_heads, decoder.head_dim)
    angles = _normal(setup, 8192, decoder.head_dim)
    at = torch.arange(tokens, device=setup.device) % len(angles)
    weight = _normal(setup, decoder.head_dim) if decoder.qk_norm else None
    _any_number(qkv, at)
    return _repeated(setup, qkv, _compiled(_rotary), qkv, heads, angles, at, weight)


def embedding(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the rows of the table of embeddings, from DRAM."""
    table = _normal(setup, decoder.vocabulary, decoder.hidden)
    ids = [
        torch.randint(decoder.vocabulary, (tokens,), device=setup.device)
        for _ in range(setup.copies)
    ]
    return [_touched(ids[0].float())] * len(ids), [partial(torch.embedding, table, i) for i in ids]


def sampling(setup: Setup, decoder: Decoder, tokens: int) -> Pairs:
    """Return the most probable tokens, as vLLM's sampler finds them: in fp32."""
    logits = _normal(setup, tokens, decoder.vocabulary)
    return _repeated(setup, logits, lambda x: x.float().argmax(dim=-1), logits)


SMALL: dict[str, Callable[[Setup, Decoder, int], Pairs]] = {
    "norm": norm, "silu_mul": silu_mul, "rotary": rotary, "kv_write": kv_write,
    "embedding": embedding, "sampling": sampling,
}  # fmt: skip
"""Small operators by the names that predictions have for them."""


def _repeated(setup: Setup, first: torch.Tensor, function: Any, *arguments: Any) -> Pairs:
    """Return the same call so many times: what it reads was just written, in an engine too."""
    return [_touched(first)] * setup.copies, [lambda: function(*arguments)] * setup.copies


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled for the sizes that it is called with, but for `_any_number`."""
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made


def _any_number(*tensors: torch.Tensor) -> None:
    """Let a kernel take any number of tokens, the first size, as vLLM does.

    Were all sizes free, its indices would be divided by numbers that the compiler does not know,
    which takes longer than moving the data.
    """
    for tensor in tensors:
        if len(tensor) > 1:  # torch compiles for one token by itself
            torch._dynamo.mark_dynamic(tensor, 0)


def _rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return scaled.to(x.dtype) * weight


def _add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return _rms(total, weight), total


def _silu_mul(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _rotary(
    qkv: torch.Tensor, heads: int, angles: torch.Tensor, at: torch.Tensor,
    weight: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    x = qkv[:, :heads]
    if weight is not None:
        x = _rms(x, weight)
    cos, sin = angles[at].unsqueeze(1).chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
