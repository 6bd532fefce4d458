"""Writes down the operations that a torch module calls, with their sizes: a list of a network.

As a dispatch mode under torch.inference_mode() it sees the functions that modules call (linear,
conv2d, layer_norm, …) before torch takes them apart; what it does not know it has taken apart, and
what remains unknown is listed without work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nsight_prof.targets.network_kernels import operations
from nsight_prof.targets.network_kernels.operations import CHANNELS_FIRST, CHANNELS_LAST, Operation

Read = Callable[[Sequence[Any], Any], Operation]
"""Arguments in the order of the schema and the result -> the operation."""
MADE = ("empty", "new_empty", "zeros", "new_zeros", "empty_like", "zeros_like", "detach", "lift")
"""Allocates, or gives a name: no work that a network repeats (zeros: first states of an LSTM)."""


class Calls(TorchDispatchMode):
    """Lists what is called inside of it, as a context; the same operation in a row once."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Write down a call, and do it."""
        kwargs = kwargs or {}
        name = function._schema.name.removeprefix("aten::").rstrip("_")
        read = READERS.get(name)
        if read is None and not function.is_view and name not in MADE:
            with self:
                taken_apart = function.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        result = function(*args, **kwargs)
        if name == "conv2d" and CHANNELS_LAST in (_layout(args[0]), _layout(args[1])):
            # As cuDNN gives it; the meta device forgets it (torch 2.13).
            result = result.contiguous(memory_format=torch.channels_last)
        if read is not None:
            self._add(read(_ordered(function, args, kwargs), result), _dtype(result))
        elif not function.is_view and name not in MADE:
            self._add(Operation(name, 1), _dtype(result))
        return result

    def _add(self, operation: Operation, dtype: str) -> None:
        call = {**asdict(operation), "dtype": dtype, "calls": 1}
        if self.found and self.found[-1] | {"calls": 1} == call:
            self.found[-1]["calls"] += 1
        else:
            self.found.append(call)


def list_calls(module: Any, inputs: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return what a forward pass calls: an operation each, "dtype", and "calls" in a row."""
    with torch.inference_mode(), Calls() as calls:
        module(*inputs)
    found: list[dict[str, Any]] = calls.found
    return found


def _ordered(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return all arguments in the order of the schema, defaults included."""
    rest = function._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(one.name, one.default_value) for one in rest)]


def _dtype(result: Any) -> str:
    first = result[0] if isinstance(result, tuple | list) else result
    name = str(getattr(first, "dtype", "")).removeprefix("torch.")
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(name, name)


def _layout(x: Any) -> str:
    if x.ndim != 4:
        return ""
    last = x.is_contiguous(memory_format=torch.channels_last)
    return CHANNELS_LAST if last and not x.is_contiguous() else CHANNELS_FIRST


def _pixels(x: Any) -> int:
    return int(math.prod(x.shape[2:]))


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def _conv2d(args: Sequence[Any], result: Any) -> Operation:
    x, weight, _, stride = args[:4]
    shapes = tuple(x.shape), tuple(weight.shape), tuple(result.shape[2:])
    return operations.conv2d(*shapes, _one(stride), x.element_size(), _layout(result))


def _linear(args: Sequence[Any], result: Any) -> Operation:
    x, weight = args[:2]
    return operations.linear(
        x.numel() // x.shape[-1], weight.shape[0], weight.shape[1], x.element_size()
    )


def _attention(args: Sequence[Any], result: Any) -> Operation:
    query, key = args[:2]
    batch, heads, queries, width = query.shape
    return operations.attention(
        batch, heads, queries, key.shape[2], width, bool(args[5]), query.element_size()
    )


def _lstm(args: Sequence[Any], result: Any) -> Operation:
    x, states, weights, biased, layers = args[:5]
    steps, batch, inputs = x.shape
    hidden = weights[1].shape[1]
    return operations.lstm(batch, steps, inputs, hidden, layers, x.element_size())


def _batch_norm(args: Sequence[Any], result: Any) -> Operation:
    x = args[0]
    return operations.batch_norm(x.shape[0], x.shape[1], _pixels(x), x.element_size(), _layout(x))


def _group_norm(args: Sequence[Any], result: Any) -> Operation:
    x, groups = args[:2]
    sizes = x.shape[0], x.shape[1], _pixels(x), groups
    return operations.group_norm(*sizes, x.element_size(), _layout(x))


def _layer_norm(args: Sequence[Any], result: Any) -> Operation:
    x, columns = args[0], math.prod(args[1])
    return operations.layer_norm(x.numel() // columns, columns, x.element_size())


def _rms_norm(args: Sequence[Any], result: Any) -> Operation:
    x, columns = args[0], math.prod(args[1])
    return operations.rms_norm(x.numel() // columns, columns, x.element_size())


def _softmax(args: Sequence[Any], result: Any) -> Operation:
    x = args[0]
    columns = x.shape[args[1]]
    return operations.softmax(x.numel() // columns, columns, x.element_size())


def _pool(kind: str, args: Sequence[Any], result: Any) -> Operation:
    x = args[0]
    out = result[0] if isinstance(result, tuple) else result
    pixels, outputs = _pixels(x), _pixels(out)
    # An adaptive average is told its outputs, not its windows.
    window = args[1] if kind == "max-pool2d" else ()
    taps = _one(window) ** 2 if window else pixels // outputs
    sizes = x.shape[0], x.shape[1], pixels, outputs, taps
    return operations.pool2d(kind, *sizes, x.element_size(), _layout(x))


def _elementwise(op: str, inputs: int) -> Read:
    def read(args: Sequence[Any], result: Any) -> Operation:
        # What is broadcast is small, and not counted.
        wide = [a for a in args if isinstance(a, torch.Tensor) and a.shape == result.shape]
        count = min(inputs, max(1, len(wide)))
        layout = _layout(result)
        return operations.elementwise(op, result.numel(), count, result.element_size(), layout)

    return read


def _embedding(args: Sequence[Any], result: Any) -> Operation:
    width = result.shape[-1]
    return operations.embedding(result.numel() // width, width, result.element_size())


READERS: dict[str, Read] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "lstm": _lstm,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
    "max_pool2d": lambda args, result: _pool("max-pool2d", args, result),
    "adaptive_avg_pool2d": lambda args, result: _pool("avg-pool2d", args, result),
    "relu": _elementwise("relu", 1),
    "gelu": _elementwise("gelu", 1),
    "silu": _elementwise("silu", 1),
    "add": _elementwise("add", 2),
    "mul": _elementwise("mul", 2),
    "clone": _elementwise("copy", 1),
    "copy": _elementwise("copy", 1),
    "cat": _elementwise("copy", 1),
    "_to_copy": _elementwise("copy", 1),
    "embedding": _embedding,
}
