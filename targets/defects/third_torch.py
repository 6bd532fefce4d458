"""Third set: the pairs of torch and Triton programs, and of programs that wait for the host."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from nsight_prof.targets.defects.host_programs import graph_of
from nsight_prof.targets.defects.pair import Pair
from nsight_prof.targets.defects.parts import normal, zeros

MATRICES, MATRIX = 64, 512
SAMPLES, FEATURES, PADDED, OUTPUTS = 8192, 4098, 4104, 4096
HEADS = (4, 16, 2048, 128)
"""Sequences, heads, tokens and values of a head."""
PARAMETERS, GRADIENTS = 1 << 26, 1 << 27
PROJECTED, POSITIONS = (8192, 4096, 8192), 2048
"""Tokens, values of a token before and after; positions that the table of biases has."""
RECURRENCES, CHANNELS = 1024, 1 << 15
LAYERS, WIDTH = 64, 1024
SQUARE, STEPS, WORDS = 8192, 10, 24_000
CHECKED, CHECKS = 1 << 23, 100


def gemms() -> list[dict[str, object]]:
    """List the matrix products as {name, stage, m (rows), n (columns), k, calls}."""
    sizes = {"defect/misaligned_gemm": FEATURES, "twin/misaligned_gemm": PADDED}
    return [
        {"name": "misaligned_gemm", "stage": stage, "m": SAMPLES, "n": OUTPUTS, "k": k, "calls": 1}
        for stage, k in sizes.items()
    ]


def fp32_gemm() -> Pair:
    """Many products of 512 x 512 in Triton: of FP32, or of TF32."""
    from nsight_prof.targets.defects.third_triton import multiply

    a, b = (normal(MATRICES, MATRIX, MATRIX, dtype="float32") for _ in range(2))
    out = zeros(*a.shape)
    return Pair(
        "fp32_gemm",
        lambda: multiply(a, b, out[0], tf32=False),
        lambda: multiply(a, b, out[1], tf32=True),
        results=lambda: out,
        tolerance=1e-2,
    )


def misaligned_gemm() -> Pair:
    """A linear layer of 4096 features and two coordinates, in fp16, padded or not."""
    import torch
    import torch.nn.functional as F

    x, w = (normal(rows, FEATURES, dtype="float16") for rows in (SAMPLES, OUTPUTS))
    padded = [F.pad(one, (0, PADDED - FEATURES)) for one in (x, w)]
    out = zeros(SAMPLES, OUTPUTS, dtype="float16")
    return Pair(
        "misaligned_gemm",
        lambda: torch.mm(x, w.t(), out=out[0]),
        lambda: torch.mm(padded[0], padded[1].t(), out=out[1]),
        results=lambda: out,
        tolerance=1e-2,
    )


def math_attention() -> Pair:
    """Causal attention in bf16: the mask is a tensor, which flash attention does not take."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (normal(*HEADS) for _ in range(3))
    tokens = HEADS[2]
    mask = torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).tril()
    out: dict[str, Any] = {}

    def masked() -> None:
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            out["defect"] = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def causal() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out["twin"] = F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Pair(
        "math_attention",
        masked,
        causal,
        results=lambda: (out["defect"], out["twin"]),
        tolerance=2e-2,
    )


def elementwise_chain() -> Pair:
    """A step of SGD with momentum: three operations of torch, or one Triton kernel."""
    from nsight_prof.targets.defects.third_triton import momentum_step

    p, other = zeros(PARAMETERS)
    v, others = zeros(PARAMETERS)
    g = normal(PARAMETERS, dtype="float32")

    def spelt_out() -> None:
        v.mul_(0.9)
        v.add_(g)
        p.sub_(v, alpha=0.01)

    return Pair(
        "elementwise_chain",
        spelt_out,
        lambda: momentum_step(other, others, g, 0.9, 0.01),
        results=lambda: (p, other),
        tolerance=1e-4,
    )


def casts() -> Pair:
    """The norm of bf16 gradients: of an FP32 copy, or with sums of FP32."""
    import torch

    g = normal(GRADIENTS)
    out: dict[str, Any] = {}

    def of_a_copy() -> None:
        out["defect"] = torch.linalg.vector_norm(g.float())

    def direct() -> None:
        out["twin"] = torch.linalg.vector_norm(g, dtype=torch.float32)

    return Pair(
        "casts", of_a_copy, direct, results=lambda: (out["defect"], out["twin"]), tolerance=1e-3
    )


def host_copies() -> Pair:
    """A projection whose table of biases lives in pinned host memory, or on the GPU."""
    import torch

    tokens, before, after = PROJECTED
    x, w, kept = normal(tokens, before), normal(before, after), normal(POSITIONS, after)
    pinned = kept.cpu().pin_memory()
    out = zeros(tokens, after, dtype="bfloat16")

    def project(to: Any, table: Any) -> None:
        torch.mm(x, w, out=to)
        to.view(-1, POSITIONS, after).add_(table)

    return Pair(
        "host_copies",
        lambda: project(out[0], pinned.to("cuda", non_blocking=True)),
        lambda: project(out[1], kept),
        results=lambda: out,
        tolerance=1e-2,
    )


def small_kernels() -> Pair:
    """y[t] = x[t] + decay y[t - 1]: a kernel for each step, in a CUDA graph, or one for all."""
    import torch

    from nsight_prof.targets.defects.third_triton import recur

    x = normal(RECURRENCES, CHANNELS, dtype="float32")
    decay = torch.rand(CHANNELS, device="cuda")
    out = zeros(*x.shape)

    def step_by_step() -> None:
        torch.mul(x[0], 1.0, out=out[0][0])
        for t in range(1, RECURRENCES):
            torch.addcmul(x[t], decay, out[0][t - 1], out=out[0][t])

    return Pair(
        "small_kernels",
        graph_of(step_by_step).replay,
        lambda: recur(x, decay, out[1]),
        repeats=2,
        results=lambda: out,
        tolerance=1e-4,
    )


def launch_bound() -> Pair:
    """A network of 64 layers for one token: its kernels one by one, or in a CUDA graph."""
    import torch

    weights = [normal(WIDTH, WIDTH) * WIDTH**-0.5 for _ in range(LAYERS)]
    token = normal(1, WIDTH)
    out = zeros(1, WIDTH, dtype="bfloat16")

    def infer(to: Any) -> None:
        h = token
        for weight in weights:
            h = h + torch.nn.functional.gelu(h @ weight)
        to.copy_(h)

    graph = graph_of(lambda: infer(out[1]))
    return Pair(
        "launch_bound",
        lambda: infer(out[0]),
        graph.replay,
        repeats=3,
        results=lambda: out,
        tolerance=5e-2,
    )


def text() -> str:
    """Return the words that the host counts for a step: a few milliseconds of work."""
    return " ".join(f"word{i * i % 997}" for i in range(WORDS))


def scale_of(words: str) -> float:
    """Return how often the most frequent word of a text occurs, by its number of words."""
    found = re.findall(r"\w+", words.lower())
    return Counter(found).most_common(1)[0][1] / len(found)


def host_bound() -> Pair:
    """Products whose scale is a word count: the host counts in each step, or once before."""
    import torch

    a, b = (normal(SQUARE, SQUARE) for _ in range(2))
    out = zeros(SQUARE, SQUARE, dtype="bfloat16")
    words = text()
    known = scale_of(words)

    def multiply(scale: float, to: Any) -> None:
        torch.addmm(to, a, b, beta=0.0, alpha=scale, out=to)

    def counting() -> None:
        for _ in range(STEPS):
            multiply(scale_of(words), out[0])

    def counted() -> None:
        for _ in range(STEPS):
            multiply(known, out[1])

    return Pair("host_bound", counting, counted, repeats=1, results=lambda: out, tolerance=1e-3)


def sync_stalls() -> Pair:
    """Values are checked for NaN after each step: by the host at once, or once behind all steps."""
    import torch

    x = normal(CHECKED, dtype="float32")
    other = x.clone()

    def check_each() -> None:
        for _ in range(CHECKS):
            x.mul_(0.999)
            if torch.isnan(x).any():
                raise FloatingPointError("a value is not a number")

    def check_last() -> None:
        wrong = torch.zeros((), device="cuda", dtype=torch.bool)
        for _ in range(CHECKS):
            other.mul_(0.999)
            wrong |= torch.isnan(other).any()
        if wrong:
            raise FloatingPointError("a value is not a number")

    return Pair("sync_stalls", check_each, check_last, repeats=1, results=lambda: (x, other))


MAKERS = (
    *(fp32_gemm, misaligned_gemm, math_attention, elementwise_chain, casts),
    *(host_copies, small_kernels, launch_bound, host_bound, sync_stalls),
)
