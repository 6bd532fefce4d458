"""What the schema of a torch operator says: what it writes, views, draws and looks up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

WRITES_ALONE = frozenset(
    [
        *("copy_", "zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_"),
        *("exponential_", "geometric_", "log_normal_", "cauchy_"),
    ]
)
"""Operators in place that do not read what they write over."""
LOOK_UPS = {
    "index": 0, "index_select": 0, "gather": 0, "embedding": 0, "take": 0, "_unsafe_index": 0
}  # fmt: skip
"""Operators that read only some elements of this argument, as many as they return."""
NOTHING = ("aten::detach", "aten::lift_fresh", "aten::alias", "aten::set_", "aten::resize_")
UNWRITTEN = ("empty", "new_empty")
PRODUCTS = (
    *("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "matmul", "dot"),
    *("convolution", "cudnn_convolution", "_scaled_mm", "_scaled_dot_product", "_grouped_mm"),
)


@dataclass(frozen=True)
class Operator:
    """`written`: positions and names of arguments that it writes; `dropout`: one that turns its
    random numbers off where it is 0; `source`: the argument of which it reads some elements."""

    name: str
    is_composite: bool
    is_view: bool
    is_unwritten: bool
    is_product: bool
    is_random: bool
    dropout: tuple[int, str] | None
    written: frozenset[int | str]
    writes_alone: bool
    source: int | None

    def draws(self, args: Any, kwargs: Any) -> bool:
        """Return whether a call draws random numbers."""
        if not self.is_random or self.dropout is None:
            return self.is_random
        at, name = self.dropout
        given = args[at] if at < len(args) else kwargs.get(name, 0.0)
        return bool(given)


def describe(overload: Any) -> Operator:
    """Return what is to be known of an operator."""
    schema = overload._schema
    base = schema.name.partition("::")[2]
    written: set[int | str] = set()
    out, dropout = False, None
    for at, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written |= {argument.name} if argument.kwarg_only else {at, argument.name}
            out = out or argument.kwarg_only
        if argument.name == "dropout_p":
            dropout = at, argument.name
    return Operator(
        schema.name,
        _is_composite(overload.name()),
        overload.is_view or schema.name in NOTHING or schema.name.startswith("profiler::"),
        base.startswith(UNWRITTEN),
        base.startswith(PRODUCTS) or base in PRODUCTS,
        torch.Tag.nondeterministic_seeded in overload.tags,
        dropout,
        frozenset(written),
        out or base in WRITES_ALONE,
        LOOK_UPS.get(base),
    )


def _is_composite(name: str) -> bool:
    """Return whether an operator is made of others alone: inference mode does not take it apart."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CompositeImplicitAutograd") and not (has(name, "CPU") or has(name, "CUDA"))
