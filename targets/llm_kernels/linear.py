"""Linear layers of public models, bf16 and fp8, and batched products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from nsight_prof.targets.harness import Case, Setup, Unsupported
from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.llm_kernels import formulas
from nsight_prof.targets.llm_kernels.data import Maker, first_line
from nsight_prof.targets.llm_kernels.models import REFERENCE, Model
from nsight_prof.targets.llm_kernels.plan import Plan, launch_of

HEAD_TOKENS = 128
"""A server computes logits for the sampled rows only, so the head sees no prefill."""
EAGER_MODELS = (REFERENCE, "qwen2.5-0.5b", "tiny")
"""Launched by the host too: a large model and one small enough to be bound by launches."""
HOT_MODEL, HOT_TOKENS = "qwen2.5-0.5b", 16
"""Measured hot too: layers that fit the L2 cache."""
ZEROS = "gate-up"
"""The projection measured on zeros too, at most tokens: what data do to power and clocks."""


def linear_cases(plan: Plan) -> Iterator[Case]:
    """Make the linear layers of the models; a shape that models share is measured once."""
    for projection, shape, models in shared_shapes(plan.models):
        for tokens in plan.tokens:
            if projection == "head" and tokens > HEAD_TOKENS:
                continue
            for variant in _variants(plan, models, tokens):
                yield _linear(plan, projection, shape, models, tokens, variant, torch.bfloat16)
            if any(m.key in (REFERENCE, "tiny") for m in models) and projection != "head":
                for variant in plan.among("graph"):
                    yield _linear(
                        plan, projection, shape, models, tokens, variant, torch.float8_e4m3fn
                    )


def shared_shapes(
    models: tuple[Model, ...],
) -> list[tuple[str, tuple[int, int], tuple[Model, ...]]]:
    """Return (projection, (n, k), models that have it) without repeated shapes."""
    found: dict[tuple[str, tuple[int, int]], list[Model]] = {}
    for model in models:
        for projection, shape in model.projections().items():
            found.setdefault((projection, shape), []).append(model)
    return [(*key, tuple(owners)) for key, owners in found.items()]


def _variants(plan: Plan, models: tuple[Model, ...], tokens: int) -> list[str]:
    ends = (plan.tokens[0], 128, plan.tokens[-1])
    launched = any(m.key in EAGER_MODELS for m in models) and tokens in ends
    return plan.among("eager", "graph") if launched else plan.among("graph")


def _linear(
    plan: Plan,
    projection: str,
    shape: tuple[int, int],
    models: tuple[Model, ...],
    tokens: int,
    variant: str,
    dtype: torch.dtype,
) -> Case:
    (n, k), owner, narrow = shape, models[0], dtype is torch.float8_e4m3fn
    work = formulas.linear(tokens, n, k, dtype.itemsize, torch.bfloat16.itemsize)
    kind = "fp8" if narrow else "bf16"

    def prepare(setup: Setup) -> list[Call]:
        make = Maker(setup)
        calls = [_product(make, tokens, n, k, dtype) for _ in range(setup.copies)]
        _try(calls[0], "this fp8 product")
        return calls

    zeros = projection == ZEROS and tokens == plan.tokens[-1] and variant == "graph"
    hot = owner.key in (HOT_MODEL, "tiny") and tokens == HOT_TOKENS and variant == "graph"
    # The kernels are those of the graph where both variants are there.
    counted = variant == "eager" or "eager" not in _variants(plan, models, tokens) or narrow
    return Case(
        name=f"linear/{owner.key}/{projection}/t{tokens}/{kind}/{variant}",
        operation=f"linear {projection}",
        prepare=prepare,
        work=work,
        footprint_bytes=work.bytes or 0,
        params={
            "family": "linear",
            "model": owner.key,
            "models": ", ".join(m.key for m in models),
            "projection": projection,
            "tokens": tokens,
            "n": n,
            "k": k,
            "variant": variant,
        },
        dtype=kind,
        level="tensor",
        modes=("cold", "hot") if hot else ("cold",),
        data=("normal", "zeros") if zeros and owner.key in (REFERENCE, "tiny") else ("normal",),
        launch=launch_of(variant),
        counted=counted and tokens in plan.swept_by_counters,
    )


def _product(make: Maker, tokens: int, n: int, k: int, dtype: torch.dtype) -> Call:
    """Return Y = X W^T on buffers of its own: X (tokens, k), W (n, k), outputs near N(0, 1)."""
    x = make.normal(tokens, k, dtype=dtype)
    if dtype is not torch.float8_e4m3fn:
        weight = make.normal(n, k, dtype=dtype, scale=k**-0.5)
        return lambda: F.linear(x, weight)
    # The scale goes to the product, because 1 / sqrt(k) would waste the few exponents of fp8.
    weight = make.normal(n, k, dtype=dtype).t()
    one = torch.ones((), device=x.device)
    scale = torch.full((), k**-0.5, device=x.device)
    product = partial(torch._scaled_mm, x, weight, scale_a=one, scale_b=scale)
    # As the fp8 roof is measured (harness/matmul.py): sums in the Tensor Cores, not promoted.
    return partial(product, out_dtype=torch.bfloat16, use_fast_accum=True)


def _try(call: Call, what: str) -> None:
    """Call once.

    Raises:
        Unsupported: torch has no such product here, with its reason.
    """
    try:
        call()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
        raise Unsupported(f"torch does not do {what}: {first_line(error)}") from error


BATCHED = (
    # (name, what it stands for, batch, m, n, k)
    ("scores", "Q K^T of 32 heads over 2048 positions", 32, 2048, 2048, 128),
    ("context", "P V of 32 heads over 2048 positions", 32, 2048, 128, 2048),
    ("decode-scores", "Q K^T of one new token, 16 sequences of 32 heads", 512, 1, 4096, 128),
    (
        "experts",
        "8 experts of Mixtral 8x7B (arXiv 2401.04088), 128 tokens each",
        8,
        128,
        14336,
        4096,
    ),
)
TINY_BATCHED = (("scores", "sizes for tests on a CPU", 4, 16, 16, 8),)


def batched_cases(plan: Plan) -> Iterator[Case]:
    """Make batched products (batch, m, k) x (batch, k, n), bf16."""
    for name, purpose, batch, m, n, k in TINY_BATCHED if plan.tiny else BATCHED:
        for variant in plan.among("eager", "graph"):
            work = formulas.batched(batch, m, n, k, torch.bfloat16.itemsize)
            yield Case(
                name=f"bmm/{name}/b{batch}-m{m}-n{n}-k{k}/{variant}",
                operation="batched GEMM",
                prepare=_batched(batch, m, n, k),
                work=work,
                footprint_bytes=work.bytes or 0,
                params={
                    "family": "bmm",
                    "what": f"{name}: {purpose}",
                    "batch": batch,
                    "m": m,
                    "n": n,
                    "k": k,
                    "variant": variant,
                },
                dtype="bf16",
                level="tensor",
                launch=launch_of(variant),
                counted=variant == "eager",
            )


def _batched(batch: int, m: int, n: int, k: int) -> Callable[[Setup], list[Call]]:
    def prepare(setup: Setup) -> list[Call]:
        make = Maker(setup)

        def one() -> Call:
            a, b = make.normal(batch, m, k), make.normal(batch, k, n, scale=k**-0.5)
            return lambda: torch.bmm(a, b)

        return [one() for _ in range(setup.copies)]

    return prepare
