"""Second set: the pairs of torch and Triton programs, and of programs that wait for the host."""

from __future__ import annotations

import json
from typing import Any

from nsight_prof.targets.defects.host_programs import graph_of
from nsight_prof.targets.defects.pair import Pair
from nsight_prof.targets.defects.parts import normal as _normal

ROWS, COLUMNS, PARTS = 8, 1 << 25, 128
VOCABULARY, PADDED, HIDDEN, PREDICTED = 50257, 50304, 1024, 4096
HEADS = (4, 16, 2048, 64)
"""Sequences, heads, tokens and values of a head."""
ACTIVATIONS = 1 << 27
SOFTMAX = (8192, 16384)
OFFLOADED, BATCH = (8192, 4096), 512
SMALL_ROWS, SMALL_COLUMNS = 1024, 2048
PARAMETERS, VALUES = 600, 1 << 16
SQUARE, STEPS, RECORDS = 4096, 12, 8000
IMAGES, WEIGHTS = (32, 256, 56, 56), (256, 256, 3, 3)
LOSSES, RESIDUALS = 50, 1 << 23


def gemms() -> list[dict[str, object]]:
    """List the matrix products as {name, stage, m (rows), n (columns), k, calls}."""
    sizes = {"defect/misaligned_gemm": VOCABULARY, "twin/misaligned_gemm": PADDED}
    return [
        {"name": "misaligned_gemm", "stage": stage, "m": PREDICTED, "n": n, "k": HIDDEN, "calls": 1}
        for stage, n in sizes.items()
    ]


def small_grid() -> Pair:
    """Sums of exponentials of eight rows: a program a row, or 128 of them."""
    import torch

    from nsight_prof.targets.defects.second_triton import by_parts, by_rows

    x = _normal(ROWS, COLUMNS)
    out = tuple(torch.zeros(ROWS, device="cuda") for _ in range(2))
    return Pair(
        "small_grid",
        lambda: by_rows(x, out[0]),
        lambda: by_parts(x, out[1], PARTS),
        results=lambda: (out[0], out[1]),
        tolerance=1e-3,
    )


def fp32_gemm() -> Pair:
    """A convolution of FP32 images, TF32 allowed or not; cuDNN has a flag of its own."""
    import torch
    import torch.nn.functional as F

    form = torch.channels_last
    x = _normal(*IMAGES, dtype="float32").to(memory_format=form)
    w = _normal(*WEIGHTS, dtype="float32").to(memory_format=form)
    out: dict[bool, Any] = {}

    def convolve(tf32: bool) -> None:
        torch.backends.cudnn.allow_tf32 = tf32
        with torch.inference_mode():
            out[tf32] = F.conv2d(x, w, padding=1)

    return Pair(
        "fp32_gemm",
        lambda: convolve(False),
        lambda: convolve(True),
        results=lambda: (out[False], out[True]),
        tolerance=1e-2,
    )


def misaligned_gemm() -> Pair:
    """Logits of a vocabulary of 50257, or padded to a multiple of 64."""
    import torch

    x, w = _normal(PREDICTED, HIDDEN), torch.zeros(PADDED, HIDDEN, device="cuda").bfloat16()
    w[:VOCABULARY] = _normal(VOCABULARY, HIDDEN)
    exact = w[:VOCABULARY].clone()
    out = [torch.empty(PREDICTED, n, device="cuda").bfloat16() for n in (VOCABULARY, PADDED)]
    return Pair(
        "misaligned_gemm",
        lambda: torch.mm(x, exact.t(), out=out[0]),
        lambda: torch.mm(x, w.t(), out=out[1]),
        results=lambda: (out[0], out[1][:, :VOCABULARY]),
        tolerance=1e-2,
    )


def math_attention() -> Pair:
    """Causal attention in fp16: written out, as models do without a fused back end, or fused."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (_normal(*HEADS, dtype="float16") for _ in range(3))
    tokens, size = HEADS[-2:]
    mask = torch.full((tokens, tokens), float("-inf"), device="cuda").triu(1).half()
    out: dict[str, Any] = {}

    def written_out() -> None:
        scores = torch.matmul(q, k.transpose(-2, -1)) * size**-0.5 + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        out["defect"] = torch.matmul(weights, v)

    def fused() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out["twin"] = F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Pair(
        "math_attention",
        written_out,
        fused,
        results=lambda: (out["defect"], out["twin"]),
        tolerance=1e-2,
    )


def elementwise_chain() -> Pair:
    """GELU (tanh form) in bf16: spelt out in nine operations, or torch's own kernel."""
    import torch
    import torch.nn.functional as F

    x = _normal(ACTIVATIONS)
    out: dict[str, Any] = {}

    def spelt_out() -> None:
        inner = 0.7978845608 * (x + 0.044715 * (x * x * x))
        out["defect"] = 0.5 * x * (1.0 + torch.tanh(inner))

    def fused() -> None:
        out["twin"] = F.gelu(x, approximate="tanh")

    return Pair(
        "elementwise_chain",
        spelt_out,
        fused,
        results=lambda: (out["defect"], out["twin"]),
        tolerance=3e-2,
    )


def casts() -> Pair:
    """Softmax of bf16 by way of FP32 copies, or direct (its sums are of FP32 in any case)."""
    import torch

    x = _normal(*SOFTMAX)
    out: dict[str, Any] = {}

    def by_copies() -> None:
        out["defect"] = torch.softmax(x.float(), dim=-1).to(x.dtype)

    def direct() -> None:
        out["twin"] = torch.softmax(x, dim=-1)

    return Pair(
        "casts", by_copies, direct, results=lambda: (out["defect"], out["twin"]), tolerance=1e-2
    )


def host_copies() -> Pair:
    """A weight that lives in pinned host memory, or on the GPU."""
    import torch.nn.functional as F

    x, kept = _normal(BATCH, OFFLOADED[1]), _normal(*OFFLOADED)
    offloaded = kept.cpu().pin_memory()
    out: dict[str, Any] = {}

    def fetched() -> None:
        out["defect"] = F.linear(x, offloaded.to("cuda", non_blocking=True))

    def resident() -> None:
        out["twin"] = F.linear(x, kept)

    return Pair(
        "host_copies",
        fetched,
        resident,
        results=lambda: (out["defect"], out["twin"]),
        tolerance=1e-2,
    )


def small_kernels() -> Pair:
    """Softmax of a thousand rows in a CUDA graph, row by row, or all at once."""
    import torch

    x = _normal(SMALL_ROWS, SMALL_COLUMNS, dtype="float16")
    by_row, at_once = torch.empty_like(x), torch.empty_like(x)

    def row_by_row() -> None:
        for source, to in zip(x, by_row, strict=True):
            torch.softmax(source, dim=-1, out=to)

    return Pair(
        "small_kernels",
        graph_of(row_by_row).replay,
        lambda: torch.softmax(x, dim=-1, out=at_once),
        repeats=2,
        results=lambda: (by_row, at_once),
        tolerance=1e-2,
    )


def launch_bound() -> Pair:
    """A step of SGD over 600 parameters: one by one, or with torch's multi-tensor kernels."""
    import torch

    one_by_one = [_normal(VALUES, dtype="float32") for _ in range(PARAMETERS)]
    together = [parameter.clone() for parameter in one_by_one]
    gradients = [_normal(VALUES, dtype="float32") for _ in range(PARAMETERS)]

    def step() -> None:
        for parameter, gradient in zip(one_by_one, gradients, strict=True):
            parameter.add_(gradient, alpha=-1e-3)

    return Pair(
        "launch_bound",
        step,
        lambda: torch._foreach_add_(together, gradients, alpha=-1e-3),
        repeats=3,
        results=lambda: (torch.stack(one_by_one), torch.stack(together)),
        tolerance=1e-5,
    )


def records() -> str:
    """Return the JSON that the host parses for a step: a few milliseconds of work."""
    return json.dumps(
        [{"id": i, "weight": i % 97 / 97, "tags": ["a", "b"]} for i in range(RECORDS)]
    )


def scale_of(text: str) -> float:
    """Return the mean weight of the records of a JSON text."""
    parsed = json.loads(text)
    return sum(float(record["weight"]) for record in parsed) / len(parsed)


def host_bound() -> Pair:
    """Products whose scale the host reads from JSON: in each step, or once before."""
    import torch

    a, b = (_normal(SQUARE, SQUARE, dtype="float16") for _ in range(2))
    out = [torch.zeros_like(a) for _ in range(2)]
    text = records()
    known = scale_of(text)

    def multiply(scale: float, to: Any) -> None:
        torch.addmm(to, a, b, beta=0.0, alpha=scale, out=to)

    def parsing() -> None:
        for _ in range(STEPS):
            multiply(scale_of(text), out[0])

    def prepared() -> None:
        for _ in range(STEPS):
            multiply(known, out[1])

    return Pair(
        "host_bound",
        parsing,
        prepared,
        repeats=1,
        results=lambda: (out[0], out[1]),
        tolerance=1e-3,
    )


def sync_stalls() -> Pair:
    """A loss of each of 50 steps: read by the host at once, or added up on the GPU."""
    import torch

    x = _normal(RESIDUALS, dtype="float32")
    y = torch.empty_like(x)
    out = {"defect": 0.0, "twin": 0.0}

    def loss(step: int) -> Any:
        torch.mul(x, 1.0 / (step + 1), out=y)
        return torch.dot(y, y)

    def read_each() -> None:
        out["defect"] = sum(loss(step).item() for step in range(LOSSES))

    def read_last() -> None:
        total = loss(0)
        for step in range(1, LOSSES):
            total += loss(step)
        out["twin"] = total.item()

    return Pair(
        "sync_stalls",
        read_each,
        read_last,
        results=lambda: (torch.tensor(out["defect"]), torch.tensor(out["twin"])),
        tolerance=1e-4,
    )


MAKERS = (
    *(small_grid, fp32_gemm, misaligned_gemm, math_attention, elementwise_chain, casts),
    *(host_copies, small_kernels, launch_bound, host_bound, sync_stalls),
)
