"""Scaled dot-product attention: causal prefill and decode with a KV cache, each back end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from nsight_prof.targets.harness import Case, Setup, Unsupported
from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.llm_kernels import formulas
from nsight_prof.targets.llm_kernels.data import Maker, first_line
from nsight_prof.targets.llm_kernels.models import Model
from nsight_prof.targets.llm_kernels.plan import Plan, launch_of

BACKENDS = ("flash", "cudnn", "math")
MATH_SHARE = 0.6
"""Part of the memory that the score matrices of the math back end may take."""
MATH_MATRICES = 3
"""Score matrices alive at a time: scores, masked scores, probabilities, in fp32."""


@dataclass(frozen=True)
class Shape:
    """A call: `queries` new tokens of `batch` sequences that see `keys` positions each."""

    stage: str
    model: Model
    batch: int
    queries: int
    keys: int
    kv_heads: int

    @property
    def causal(self) -> bool:
        """A prefill masks later keys; the one query of a decode step sees all."""
        return self.stage == "prefill"

    @property
    def name(self) -> str:
        """Part of the case name."""
        groups = "" if self.kv_heads == self.model.kv_heads else "-mha"
        return f"{self.stage}/{self.model.key}{groups}/b{self.batch}-s{self.keys}"

    @property
    def score_bytes(self) -> float:
        """Bytes of one score matrix in fp32."""
        heads = self.model.heads
        return float(self.batch * heads * self.queries * self.keys * formulas.FP32_BYTES)


PREFILL = ((1, 512), (1, 2048), (1, 8192), (1, 32768), (8, 1024), (8, 4096))
DECODE = ((1, 512), (1, 4096), (1, 32768), (16, 512), (16, 4096), (16, 32768), (128, 4096))
TINY_PREFILL, TINY_DECODE = ((1, 16), (2, 32)), ((1, 16), (2, 32))
EAGER = ((1, 512), (16, 512), (8, 1024), (1, 16))
"""(batch, keys) launched by the host too: small enough to be bound by the launch."""
MATH_BATCHED_KEYS = {"prefill": 1024, "decode": 4096}
"""Longest sequences of a batch for the math back end, which takes a second for longer ones."""
COUNTED_MATH = ((1, 2048), (16, 4096), (2, 32))
NOT_COUNTED = ((1, 32768), (8, 1024), (16, 512))
"""(batch, keys) of the fused back ends without counters: those around them say the same."""


def attention_cases(plan: Plan) -> Iterator[Case]:
    """Make prefill and decode of the reference model, and of narrow heads and many KV heads."""
    model = plan.reference
    for stage, sizes in (
        ("prefill", TINY_PREFILL if plan.tiny else PREFILL),
        ("decode", TINY_DECODE if plan.tiny else DECODE),
    ):
        for batch, keys in sizes:
            shape = _shape(stage, model, batch, keys, model.kv_heads)
            for backend in BACKENDS:
                if backend == "math" and batch > 1 and keys > MATH_BATCHED_KEYS[stage]:
                    continue
                yield from _backend_cases(plan, shape, backend)
    yield from _comparisons(plan, model)


def _comparisons(plan: Plan, model: Model) -> Iterator[Case]:
    """Yield what grouped heads save, and heads of 64 instead of 128 dimensions."""
    batch, keys = (2, 32) if plan.tiny else (16, 4096)
    yield from _backend_cases(plan, _shape("decode", model, batch, keys, model.heads), "flash")
    for narrow in plan.models:
        if narrow.head_dim < model.head_dim:
            for stage, size, length in (("prefill", 1, 8192), ("decode", 16, 4096)):
                shape = _shape(stage, narrow, size, length, narrow.kv_heads)
                for backend in ("flash", "cudnn"):
                    yield from _backend_cases(plan, shape, backend)


def _shape(stage: str, model: Model, batch: int, keys: int, kv_heads: int) -> Shape:
    return Shape(stage, model, batch, keys if stage == "prefill" else 1, keys, kv_heads)


def _backend_cases(plan: Plan, shape: Shape, backend: str) -> Iterator[Case]:
    size = (shape.batch, shape.keys)
    variants = plan.among("eager", "graph") if size in EAGER else plan.among("graph")
    for variant in variants:
        thinned = size not in COUNTED_MATH if backend == "math" else size in NOT_COUNTED
        yield _case(plan, shape, backend, variant, variant == variants[0] and not thinned)


def _case(plan: Plan, shape: Shape, backend: str, variant: str, counted: bool) -> Case:
    m, element = shape.model, torch.bfloat16.itemsize
    work = formulas.attention(
        *(shape.batch, m.heads, shape.kv_heads, shape.queries, shape.keys, m.head_dim),
        shape.causal,
        element,
    )
    groups = head_groups(shape, backend, plan.device)
    return Case(
        name=f"attention/{shape.name}/{backend}/{variant}",
        operation=f"SDPA {shape.stage}",
        prepare=lambda setup: _prepare(setup, shape, backend, groups == "expanded"),
        work=work,
        footprint_bytes=work.bytes or 0,
        params={
            "family": "attention",
            "stage": shape.stage,
            "model": m.key,
            "batch": shape.batch,
            "queries": shape.queries,
            "keys": shape.keys,
            "heads": m.heads,
            "kv_heads": shape.kv_heads,
            "head_dim": m.head_dim,
            "causal": shape.causal,
            "backend": backend,
            "kv_groups": groups,
            "variant": variant,
        },
        dtype="bf16",
        level="tensor",
        launch=launch_of(variant),
        counted=counted,
    )


def head_groups(shape: Shape, backend: str, device: str) -> str:
    """Return how the back end gets fewer KV heads than query heads.

    "none": as many KV heads; "native": enable_gqa; "expanded": each KV head repeated beforehand,
    because the back end takes equal numbers only. Found by a tiny call, so it is what this version
    of torch does.
    """
    if shape.kv_heads == shape.model.heads:
        return "none"
    native = takes_groups(backend, shape.model.head_dim, shape.causal, device)
    return "native" if native else "expanded"


@cache
def takes_groups(backend: str, head_dim: int, causal: bool, device: str) -> bool:
    """Tell whether torch's back end attends with 2 query heads for 1 KV head."""
    try:
        options: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        q = torch.zeros(1, 2, 64 if causal else 1, head_dim, **options)
        k = torch.zeros(1, 1, 64, head_dim, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attend(backend, q, k, k, causal, True)
    except (RuntimeError, AssertionError):  # Also where there is no such device at all.
        return False
    return True


def attend(
    backend: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, grouped: bool
) -> torch.Tensor:
    """Attend with one back end of torch: q (b, h, s, d), k and v (b, kv, l, d) -> (b, h, s, d).

    The switches are those that torch.nn.attention.sdpa_kernel sets. They are set at each call,
    which takes under a microsecond, where entering that context takes longer than a launch.
    """
    switches = torch.backends.cuda
    switches.enable_flash_sdp(backend == "flash")
    switches.enable_cudnn_sdp(backend == "cudnn")
    switches.enable_mem_efficient_sdp(False)
    switches.enable_math_sdp(backend == "math")
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def _prepare(setup: Setup, shape: Shape, backend: str, expanded: bool) -> list[Call]:
    """Return the calls on queries and KV caches of their own.

    Raises:
        Unsupported: no such kernel for the shape, or score matrices that do not fit the memory.
    """
    if backend == "math":
        _check_memory(setup, shape)
    make = Maker(setup)
    calls = [_attention(make, shape, backend, expanded) for _ in range(setup.copies)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            calls[0]()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            why = [str(w.message).split(" (Triggered")[0].strip() for w in said]
            told = "; ".join(w for w in why if "not used because" not in w) or first_line(error)
            raise Unsupported(f"torch's {backend} back end does not do this: {told}") from error
    return calls


def _attention(make: Maker, shape: Shape, backend: str, expanded: bool) -> Callable[[], object]:
    m = shape.model
    q = make.normal(shape.batch, m.heads, shape.queries, m.head_dim)
    k, v = (make.normal(shape.batch, shape.kv_heads, shape.keys, m.head_dim) for _ in range(2))
    if expanded:
        k, v = (x.repeat_interleave(m.heads // shape.kv_heads, dim=1) for x in (k, v))
    grouped = not expanded and shape.kv_heads != m.heads
    return lambda: attend(backend, q, k, v, shape.causal, grouped)


def _check_memory(setup: Setup, shape: Shape) -> None:
    if setup.device.type != "cuda":
        return
    needed = MATH_MATRICES * shape.score_bytes
    memory = torch.cuda.get_device_properties(setup.device).total_memory
    if needed > MATH_SHARE * memory:
        raise Unsupported(
            f"the math back end stores {MATH_MATRICES} score matrices of "
            f"{shape.score_bytes / 1e9:.1f} GB, which do not fit {memory / 1e9:.0f} GB of memory"
        )
