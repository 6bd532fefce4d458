"""Says what an engine's memory holds beside weights and KV cache.

vLLM (0.20: v1/worker/gpu_worker.py, determine_available_memory) runs the largest step once and
gives the KV cache what is left of its part of the memory: weights, the most that PyTorch held in
that run, what is outside of PyTorch, and an estimate of the CUDA graphs.
"""

from __future__ import annotations

from nsight_prof.parsers.predict.serving import Engine
from nsight_prof.parsers.serving.model_shape import ModelShape

CONTEXT_BYTES = 1.2 * 2**30
"""Context, libraries and CUDA graphs: 1.0 to 1.8 GiB in recorded engines (vLLM 0.20, Hopper)."""
LOGIT_BYTES = 14
"""Bytes of a logit while tokens are sampled: itself in 16 bits, and in 32 bits itself, its
probability and a random number."""


def peak_bytes(shape: ModelShape, engine: Engine) -> float:
    """Return the most bytes of activations that one GPU holds in the largest step.

    Either in the feed-forward layer (gate, up and their product), in attention (what is projected
    before and after the rotary embedding, and its output), each beside three and two hidden states,
    or while the tokens of all requests are sampled. Experts have two workspaces that stay, each of
    all tokens for all experts that they use (fused_moe.py, TritonExperts.workspace_shapes).
    """
    size, hidden, mixture = shape.weight_bytes, shape.hidden, shape.experts
    queries = shape.heads * shape.head_dim
    projected = queries + 2 * shape.kv_heads * shape.head_dim
    widths = [2 * hidden + 2 * projected + queries]
    workspaces = 0
    if mixture is not None:
        each = max(mixture.width, hidden) + max(2 * mixture.width, hidden)
        workspaces = mixture.used * each
        widths.append(3 * mixture.shared_width + 3 * hidden)
    if mixture is None or mixture.layers < shape.layers:
        widths.append(3 * shape.intermediate + 3 * hidden)
    computing = engine.batched_tokens * max(widths) * size
    logits = engine.max_requests * shape.vocabulary * shape.tensor_parallel
    sampling = engine.batched_tokens * hidden * size + logits * LOGIT_BYTES
    return engine.batched_tokens * workspaces * size + max(computing, sampling)
