"""The pairs of torch programs: a kernel that is not the right one, and work not needed."""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.defects.pair import Pair, Step

PRODUCT, MISALIGNED, ALIGNED = 4096, 6143, 6144
CHAIN = 1 << 27
WEIGHT, TOKENS = 8192, 64


def gemms() -> list[dict[str, object]]:
    """List the matrix products as {name, stage, m (rows), n (columns), k, calls}."""
    rows = {
        "defect/fp32_gemm": (PRODUCT, PRODUCT, PRODUCT),
        "twin/fp32_gemm": (PRODUCT, PRODUCT, PRODUCT),
        "defect/misaligned_gemm": (MISALIGNED, MISALIGNED, MISALIGNED),
        "twin/misaligned_gemm": (ALIGNED, ALIGNED, ALIGNED),
    }
    return [
        {"name": stage.partition("/")[2], "stage": stage, "m": m, "n": n, "k": k, "calls": 1}
        for stage, (m, n, k) in rows.items()
    ]


def _normal(*shape: int, dtype: str = "bfloat16") -> Any:
    import torch

    return torch.empty(*shape, dtype=getattr(torch, dtype), device="cuda").normal_()


def _product(tf32: bool) -> Step:
    import torch

    a, b = (_normal(PRODUCT, PRODUCT, dtype="float32") for _ in range(2))
    out = torch.empty_like(a)

    def run() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.mm(a, b, out=out)

    return run


def _square(size: int) -> Step:
    import torch

    a, b = (_normal(size, size) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _attention(backend: str) -> Step:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (_normal(2, 32, 2048, 128) for _ in range(3))
    chosen = getattr(SDPBackend, backend)

    def run() -> None:
        with sdpa_kernel(chosen), torch.inference_mode():
            F.scaled_dot_product_attention(q, k, v)

    return run


def _chain() -> tuple[Step, Step]:
    import torch

    from nsight_prof.targets.defects.fused_chain import fused_chain

    x = _normal(CHAIN, dtype="float32")
    y = torch.empty_like(x)

    def run() -> None:
        torch.mul(x, 1.5, out=y)
        y.add_(0.5)
        y.sigmoid_()
        y.mul_(x)
        y.sub_(0.25)
        y.relu_()

    return run, lambda: fused_chain(x, y)


def _casts() -> tuple[Step, Step]:
    import torch
    import torch.nn.functional as F

    x, stored = _normal(TOKENS, WEIGHT), _normal(WEIGHT, WEIGHT, dtype="float32")
    small = stored.to(torch.bfloat16)
    return lambda: F.linear(x, stored.to(torch.bfloat16)), lambda: F.linear(x, small)


def _host_copies() -> tuple[Step, Step]:
    import torch

    host = torch.ones(1 << 24)
    kept = host.to("cuda")
    out = torch.empty_like(kept)
    return lambda: torch.mul(host.to("cuda"), 2.0, out=out), lambda: torch.mul(kept, 2.0, out=out)


def library_pairs() -> list[Pair]:
    """Return the pairs of torch programs; allocates their tensors."""
    return [
        Pair("fp32_gemm", _product(tf32=False), _product(tf32=True)),
        Pair("misaligned_gemm", _square(MISALIGNED), _square(ALIGNED)),
        Pair("math_attention", _attention("MATH"), _attention("FLASH_ATTENTION")),
        Pair("elementwise_chain", *_chain()),
        Pair("casts", *_casts(), repeats=10),
        Pair("host_copies", *_host_copies()),
    ]
