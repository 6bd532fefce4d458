"""Norms, activations, softmax, rotary embedding, gathers and sampling: eager, compiled, graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from nsight_prof.targets.harness import Case, Setup, Work
from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.llm_kernels import formulas
from nsight_prof.targets.llm_kernels.data import Maker, compiled, name_of
from nsight_prof.targets.llm_kernels.models import Model
from nsight_prof.targets.llm_kernels.plan import VARIANTS, Plan, is_compiled, launch_of

ELEMENT = torch.bfloat16.itemsize
TOP_K = 50
"""Of huggingface.co's GenerationConfig.top_k."""
ROWS = 128
"""Most sequences that are sampled in one step here."""
HOT_TOKENS = (16, 1024)
"""Measured hot too: what a kernel finds that runs right after its producer."""


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Normalize (tokens, hidden) by the root mean square."""
    return F.rms_norm(x, weight.shape, weight, 1e-5)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to the residual stream and normalize: both (tokens, hidden)."""
    h = x + residual
    return h, F.rms_norm(h, weight.shape, weight, 1e-5)


def layer_norm_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Normalize (tokens, hidden) by mean and variance, then GELU."""
    return F.gelu(F.layer_norm(x, weight.shape, weight, bias))


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Gate (tokens, 2 x intermediate) to (tokens, intermediate)."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def softmax(scores: torch.Tensor) -> torch.Tensor:
    """Softmax along the columns."""
    return torch.softmax(scores, -1)


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k, (tokens, heads, head_dim), by angles (tokens, 1, head_dim / 2)."""

    def rotate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    return rotate(q), rotate(k)


def embedding(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gather rows (tokens,) of a table (vocab, hidden)."""
    return F.embedding(rows, table)


def sample_top_k(logits: torch.Tensor) -> torch.Tensor:
    """Draw from the k most likely of (rows, vocab): an exponential race, which needs no sync."""
    values, index = torch.topk(logits, min(TOP_K, logits.shape[-1]))
    probabilities = torch.softmax(values.float(), -1)
    race = probabilities / torch.empty_like(probabilities).exponential_()
    return index.gather(-1, race.argmax(-1, keepdim=True))


@dataclass(frozen=True)
class Operation:
    """An operation, its inputs and its work at a number of tokens of a model.

    Attributes:
        key: part of the case name.
        name: what a reader calls it.
        family: of plan.FAMILIES.
        function: the operation.
        inputs: makes the arguments of one copy.
        work: FLOPs and compulsory bytes.
        dtype: of its data.
        compiles: also measured as torch.compile makes it.
        most: largest number of tokens that it is swept to.
    """

    key: str
    name: str
    family: str
    function: Callable[..., Any]
    inputs: Callable[[Maker, Model, int], tuple[torch.Tensor, ...]]
    work: Callable[[Model, int], Work]
    dtype: torch.dtype = torch.bfloat16
    compiles: bool = True
    most: int = 1 << 30


def _rotary_inputs(make: Maker, m: Model, tokens: int) -> tuple[torch.Tensor, ...]:
    q = make.normal(tokens, m.heads, m.head_dim)
    k = make.normal(tokens, m.kv_heads, m.head_dim)
    angles = make.normal(tokens, 1, m.head_dim // 2, dtype=torch.float32)
    return q, k, angles.cos().to(q.dtype), angles.sin().to(q.dtype)


SOFTMAX_COLUMNS = 4096
"""A row of the softmax is the scores of a token over this many positions."""

OPERATIONS = (
    Operation(
        "rms-norm", "RMSNorm", "norm", rms_norm,
        lambda make, m, t: (make.normal(t, m.hidden), make.normal(m.hidden)),
        lambda m, t: formulas.rms_norm(t, m.hidden, ELEMENT),
    ),
    Operation(
        "add-rms-norm", "residual add + RMSNorm", "norm", add_rms_norm,
        lambda make, m, t: (*(make.normal(t, m.hidden) for _ in range(2)), make.normal(m.hidden)),
        lambda m, t: formulas.add_rms_norm(t, m.hidden, ELEMENT),
    ),
    Operation(
        "layernorm-gelu", "LayerNorm + GELU", "norm", layer_norm_gelu,
        lambda make, m, t: (make.normal(t, m.hidden), *(make.normal(m.hidden) for _ in range(2))),
        lambda m, t: formulas.layer_norm_gelu(t, m.hidden, ELEMENT),
    ),
    Operation(
        "silu-mul", "SiLU-mul", "elementwise", silu_mul,
        lambda make, m, t: (make.normal(t, 2 * m.intermediate),),
        lambda m, t: formulas.silu_mul(t, m.intermediate, ELEMENT),
    ),
    Operation(
        "softmax", "softmax", "elementwise", softmax,
        lambda make, m, t: (make.normal(t * m.heads, SOFTMAX_COLUMNS),),
        lambda m, t: formulas.softmax(t * m.heads, SOFTMAX_COLUMNS, ELEMENT),
        most=1024,
    ),
    Operation(
        "rotary", "rotary embedding", "elementwise", rotary,
        _rotary_inputs,
        lambda m, t: formulas.rotary(t, m.heads + m.kv_heads, m.head_dim, ELEMENT),
    ),
    Operation(
        "embedding", "embedding", "sampling", embedding,
        lambda make, m, t: (make.normal(m.vocab, m.hidden), make.distinct(t, m.vocab)),
        lambda m, t: formulas.embedding(t, m.hidden, ELEMENT),
        compiles=False,
    ),
    Operation(
        "top-k", f"sampling, top-{TOP_K}", "sampling", sample_top_k,
        lambda make, m, t: (make.normal(t, m.vocab, dtype=torch.float32),),
        lambda m, t: formulas.sample_top_k(t, m.vocab, formulas.FP32_BYTES),
        dtype=torch.float32,
        most=ROWS,
    ),
)  # fmt: skip


def pointwise_cases(plan: Plan) -> Iterator[Case]:
    """Make the operations of the families that were asked for, at the reference model's sizes."""
    for operation in OPERATIONS:
        if operation.family in plan.families:
            swept = [tokens for tokens in plan.tokens if tokens <= operation.most]
            for tokens in swept:
                for variant in _variants(plan, operation, tokens, swept):
                    yield _case(plan, operation, tokens, variant, swept)


def compiled_sizes(swept: list[int]) -> set[int]:
    """Return the sizes that are compiled: a batch of decoding sequences, and the largest prompt.

    Each size is compiled on its own (dynamic=False), which takes seconds.
    """
    return {swept[min(1, len(swept) - 1)], swept[-1]} if swept else set()


def _variants(plan: Plan, operation: Operation, tokens: int, swept: list[int]) -> list[str]:
    if operation.compiles and tokens in compiled_sizes(swept):
        return plan.among(*VARIANTS)
    return plan.among("eager", "graph")


def _case(plan: Plan, op: Operation, tokens: int, variant: str, swept: list[int]) -> Case:
    model = plan.reference
    work = op.work(model, tokens)
    hot = tokens in HOT_TOKENS and variant in ("graph", "compiled-graph")

    def prepare(setup: Setup) -> list[Call]:
        make = Maker(setup)
        copies = _copies(op, make, model, tokens)
        function = compiled(op.function, copies[0]) if is_compiled(variant) else op.function
        return [_bind(function, inputs) for inputs in copies]

    return Case(
        name=f"{op.family}/{op.key}/{model.key}/t{tokens}/{variant}",
        operation=op.name,
        prepare=prepare,
        work=work,
        footprint_bytes=work.bytes or 0,
        params={
            "family": op.family,
            "op": op.key,
            "model": model.key,
            "tokens": tokens,
            "variant": variant,
        },
        dtype=name_of(op.dtype),
        level="dram",
        modes=("cold", "hot") if hot else ("cold",),
        launch=launch_of(variant),
        # A graph launches the same kernels as the variant that it is made from.
        counted=not variant.endswith("graph") and tokens in {*compiled_sizes(swept)},
    )


def _copies(op: Operation, make: Maker, model: Model, tokens: int) -> list[tuple[Any, ...]]:
    """Return the arguments of each copy; copies of a gather take other rows of one table."""
    if op.function is embedding:
        table = make.normal(model.vocab, model.hidden)
        rows = make.distinct(make.setup.copies * tokens, model.vocab)
        return [(table, part.clone()) for part in rows.split(tokens)]
    return [op.inputs(make, model, tokens) for _ in range(make.setup.copies)]


def _bind(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Call:
    return lambda: function(*inputs)
