"""The operations at all their sizes, each with the call that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.llm_kernels.data import Maker, compiled
from nsight_prof.targets.network_kernels import operations, plan
from nsight_prof.targets.network_kernels.operations import CHANNELS_FIRST, CHANNELS_LAST, Operation
from nsight_prof.targets.network_kernels.plan import Plan

BF16, FP32 = torch.bfloat16, torch.float32
COUNTED = (plan.RESNET[0], plan.RESNET[2], plan.RESNET[3], plan.RESNET[16], plan.RESNET[21])
"""Convolutions whose kernels are counted: the stem, and both kinds at large and at small images."""


@dataclass(frozen=True)
class Swept:
    """An operation at a size.

    Attributes:
        family: of plan.FAMILIES.
        operation: its sizes and work.
        dtype: of its data; FP32 products and convolutions are in TF32, as torch's convolutions.
        make: returns a call on buffers of its own.
        eager: also launched by the host: the smallest of its kind, which shows the host's time.
        counted: its kernels are counted.
    """

    family: str
    operation: Operation
    dtype: torch.dtype
    make: Callable[[Maker], Call]
    eager: bool = False
    counted: bool = False


def sweep(chosen: Plan) -> Iterator[Swept]:
    """Give all operations of the plan's families, but whole networks."""
    for family, swept in SWEEPS.items():
        if family in chosen.families:
            yield from swept(chosen)


def _module(module: nn.Module, **parameters: torch.Tensor) -> nn.Module:
    """Give a module that was made without memory its parameters and buffers."""
    for name, value in parameters.items():
        if name in module._buffers:
            module._buffers[name] = value
        else:
            module._parameters[name] = nn.Parameter(value, requires_grad=False)
    return module.eval()


def _bound(function: Callable[..., Any], *inputs: torch.Tensor) -> Call:
    return lambda: function(*inputs)


def _ordered(x: torch.Tensor, layout: str) -> torch.Tensor:
    last = layout == CHANNELS_LAST
    return x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _in_layouts(chosen: Plan) -> Iterator[tuple[str, torch.dtype, tuple[int, ...]]]:
    """Give layout, type and batches: all of them in bf16 channels-last, fewer of the others."""
    if chosen.tiny:
        yield CHANNELS_LAST, FP32, chosen.batches
        yield CHANNELS_FIRST, FP32, chosen.batches
        return
    fewer = tuple(batch for batch in chosen.batches if batch in plan.FEWER)
    yield CHANNELS_LAST, BF16, chosen.batches
    yield CHANNELS_FIRST, BF16, fewer
    yield CHANNELS_LAST, FP32, fewer


def _convolution(
    family: str, shape: tuple[int, int, int, int, int], batch: int, layout: str,
    dtype: torch.dtype, *, padding: int, groups: int = 1, **more: bool,
) -> Swept:  # fmt: skip
    channels, filters, size, kernel, stride = shape
    out = (size + 2 * padding - kernel) // stride + 1
    images, weights = (batch, channels, size, size), (filters, channels // groups, kernel, kernel)
    operation = operations.conv2d(images, weights, (out, out), stride, dtype.itemsize, layout)

    def make(maker: Maker) -> Call:
        x = maker.normal(*images, dtype=dtype)
        taps = channels // groups * kernel**2
        weight = maker.normal(*weights, dtype=dtype, scale=taps**-0.5)
        module = nn.Conv2d(
            channels, filters, kernel, stride, padding, groups=groups, bias=False, device="meta"
        )
        return _bound(_module(module, weight=_ordered(weight, layout)), _ordered(x, layout))

    return Swept(family, operation, dtype, make, **more)


def convolutions(chosen: Plan) -> Iterator[Swept]:
    """Give convolutions of a ResNet-50, of other widths, and of patches."""
    shapes = ((4, 8, 8, 3, 1), (3, 8, 16, 7, 2)) if chosen.tiny else (*plan.RESNET, *plan.OTHERS)
    patches = ((16, 8, 8),) if chosen.tiny else plan.PATCHES
    for layout, dtype, batches in _in_layouts(chosen):
        usual = layout == CHANNELS_LAST and dtype is not FP32
        for shape in shapes:
            if not usual and shape in plan.OTHERS:
                continue
            for batch in batches:
                yield _convolution(
                    "conv", shape, batch, layout, dtype, padding=shape[3] // 2,
                    eager=batch == batches[0] and shape == shapes[1],
                    counted=batch == batches[-1] and shape in COUNTED and usual or chosen.tiny,
                )  # fmt: skip
        if layout == CHANNELS_FIRST:
            for size, patch, hidden in patches:
                for batch in chosen.batches:
                    shape = (3, hidden, size, patch, patch)
                    yield _convolution("conv", shape, batch, layout, dtype, padding=0)


def depthwise(chosen: Plan) -> Iterator[Swept]:
    """Give depthwise convolutions of MobileNetV2."""
    dtype = FP32 if chosen.tiny else BF16
    shapes = ((8, 8, 1),) if chosen.tiny else plan.DEPTHWISE
    for channels, size, stride in shapes:
        for batch in chosen.batches:
            shape = (channels, channels, size, 3, stride)
            yield _convolution(
                "depthwise", shape, batch, CHANNELS_LAST, dtype, padding=1, groups=channels,
                eager=(channels, size, stride) == shapes[-1] and batch == chosen.batches[0],
                counted=(channels, size, stride) == shapes[-1] and batch == chosen.batches[-1],
            )  # fmt: skip


def linears(chosen: Plan) -> Iterator[Swept]:
    """Give the linear layers of ViTs, in bf16 and a few in TF32, and of heads."""
    if chosen.tiny:
        yield _linear(2, 8, 4, FP32, eager=True, counted=True)
        yield _linear(4, 8, 4, FP32)
        return
    shapes = [shape for h in plan.HIDDEN for shape in ((3 * h, h), (h, h), (4 * h, h), (h, 4 * h))]
    for n, k in shapes:
        for batch in chosen.batches:
            yield _linear(
                197 * batch, n, k, BF16, eager=(n, k) == shapes[0] and batch == chosen.batches[0],
                counted=n == 3 * 768 and batch == chosen.batches[-1],
            )  # fmt: skip
            if k == plan.HIDDEN[0] and batch in plan.FEWER:
                yield _linear(197 * batch, n, k, FP32)
    for n, k in plan.HEADS:
        for rows in plan.HEAD_ROWS:
            yield _linear(rows, n, k, BF16)
    for rows in plan.HEAD_ROWS[:2]:
        yield _linear(rows, *plan.HEADS[1], FP32)


def _linear(tokens: int, n: int, k: int, dtype: torch.dtype, **more: bool) -> Swept:
    def make(maker: Maker) -> Call:
        x, weight = (
            maker.normal(tokens, k, dtype=dtype),
            maker.normal(n, k, dtype=dtype, scale=k**-0.5),
        )
        module = _module(
            nn.Linear(k, n, device="meta"), weight=weight, bias=maker.normal(n, dtype=dtype)
        )
        return _bound(module, x)

    operation = operations.linear(tokens, n, k, dtype.itemsize)
    return Swept("linear", operation, dtype, make, **more)


def attentions(chosen: Plan) -> Iterator[Swept]:
    """Give the attention of ViTs: all pairs of tokens."""
    dtype = FP32 if chosen.tiny else BF16
    shapes = ((2, 8),) if chosen.tiny else plan.ATTENTION
    for heads, tokens in shapes:
        for batch in chosen.batches:
            first = batch == chosen.batches[0] and (heads, tokens) == shapes[0]
            yield _attention(
                batch, heads, tokens, 64, dtype, eager=first,
                counted=batch == chosen.batches[-1] and heads == 16,
            )  # fmt: skip


def _attention(
    batch: int, heads: int, tokens: int, width: int, dtype: torch.dtype, **more: bool
) -> Swept:
    def make(maker: Maker) -> Call:
        # As a projection to all three leaves them.
        qkv = maker.normal(batch, tokens, 3, heads, width, dtype=dtype)
        return _bound(F.scaled_dot_product_attention, *qkv.permute(2, 0, 3, 1, 4).unbind(0))

    sizes = batch, heads, tokens, tokens, width, False
    operation = operations.attention(*sizes, dtype.itemsize)
    return Swept("attention", operation, dtype, make, **more)


def lstms(chosen: Plan) -> Iterator[Swept]:
    """Give LSTMs as torch gives them to cuDNN, fp16 on a GPU: it gives it no bf16 there."""
    dtype = FP32 if chosen.tiny else torch.float16
    shapes = ((8, 1, 2, 4), (8, 2, 2, 4)) if chosen.tiny else plan.LSTMS
    for shape in shapes:
        yield _lstm(*shape, dtype, eager=shape == shapes[0], counted=shape == (1024, 2, 16, 8))
    if not chosen.tiny:
        for batch in (16, 64):
            yield _lstm(1024, 2, batch, 32, FP32)


def _lstm(
    hidden: int, layers: int, batch: int, steps: int, dtype: torch.dtype, **more: bool
) -> Swept:
    def make(maker: Maker) -> Call:
        layer = nn.LSTM(hidden, hidden, layers, dtype=dtype, device=maker.setup.device)
        layer.requires_grad_(False).eval()
        for parameter in layer.parameters():
            parameter.copy_(maker.normal(*parameter.shape, dtype=dtype, scale=hidden**-0.5))
        return _bound(layer, maker.normal(steps, batch, hidden, dtype=dtype))

    operation = operations.lstm(batch, steps, hidden, hidden, layers, dtype.itemsize)
    return Swept("lstm", operation, dtype, make, **more)


def norms(chosen: Plan) -> Iterator[Swept]:
    """Give batch, group, layer and RMS norm."""
    images = ((8, 16), (16, 4)) if chosen.tiny else plan.IMAGES
    for layout, dtype, batches in _in_layouts(chosen):
        for channels, pixels in images:
            for batch in batches:
                yield _batch_norm(
                    batch, channels, pixels, dtype, layout,
                    eager=(channels, pixels) == images[-1] and batch == batches[0],
                    counted=(channels, pixels) == images[2 % len(images)] and batch == batches[-1],
                )  # fmt: skip
    dtype = FP32 if chosen.tiny else BF16
    for channels, pixels in images[:1] if chosen.tiny else plan.GROUPED:
        for layout in (CHANNELS_LAST, CHANNELS_FIRST):
            for batch in chosen.batches[:3]:
                eager = (batch, pixels) == (chosen.batches[0], 14**2)
                yield _group_norm(
                    batch, channels, pixels, dtype, layout, eager=eager,
                    counted=batch == plan.FEWER[-1] and pixels == 28**2,
                )  # fmt: skip
    for columns in (16,) if chosen.tiny else plan.NORM_COLUMNS:
        for batch in chosen.batches:
            rows = 4 * batch if chosen.tiny else 197 * batch
            for kind in ("layer-norm", "rms-norm"):
                yield _row_norm(
                    kind, rows, columns, dtype, eager=(rows, columns) == (197, 768),
                    counted=batch == chosen.batches[-1] and columns == 1024,
                )  # fmt: skip


def _side(pixels: int) -> int:
    return int(pixels**0.5)


def _batch_norm(
    batch: int, channels: int, pixels: int, dtype: torch.dtype, layout: str, **more: bool
) -> Swept:
    def make(maker: Maker) -> Call:
        x = maker.normal(batch, channels, _side(pixels), _side(pixels), dtype=dtype)
        own = {
            name: maker.normal(channels, dtype=dtype) for name in ("weight", "bias", "running_mean")
        }
        own["running_var"] = maker.normal(channels, dtype=dtype).abs() + 0.5
        return _bound(_module(nn.BatchNorm2d(channels, device="meta"), **own), _ordered(x, layout))

    operation = operations.batch_norm(batch, channels, pixels, dtype.itemsize, layout)
    return Swept("norm", operation, dtype, make, **more)


def _group_norm(
    batch: int, channels: int, pixels: int, dtype: torch.dtype, layout: str, **more: bool
) -> Swept:
    groups = min(32, channels // 2)  # 32: arXiv 1803.08494, section 3.2

    def make(maker: Maker) -> Call:
        x = maker.normal(batch, channels, _side(pixels), _side(pixels), dtype=dtype)
        own = {name: maker.normal(channels, dtype=dtype) for name in ("weight", "bias")}
        module = _module(nn.GroupNorm(groups, channels, device="meta"), **own)
        return _bound(module, _ordered(x, layout))

    operation = operations.group_norm(batch, channels, pixels, groups, dtype.itemsize, layout)
    return Swept("norm", operation, dtype, make, **more)


def _row_norm(kind: str, rows: int, columns: int, dtype: torch.dtype, **more: bool) -> Swept:
    layered = kind == "layer-norm"

    def make(maker: Maker) -> Call:
        own = {"weight": maker.normal(columns, dtype=dtype)}
        if layered:
            own["bias"] = maker.normal(columns, dtype=dtype)
        made = (nn.LayerNorm if layered else nn.RMSNorm)(columns, device="meta")
        return _bound(_module(made, **own), maker.normal(rows, columns, dtype=dtype))

    formula = operations.layer_norm if layered else operations.rms_norm
    return Swept("norm", formula(rows, columns, dtype.itemsize), dtype, make, **more)


def softmaxes(chosen: Plan) -> Iterator[Swept]:
    """Give softmax along rows, short and long."""
    dtype = FP32 if chosen.tiny else BF16
    shapes = ((16, 4), (16, 8)) if chosen.tiny else plan.SOFTMAX
    for columns, rows in shapes:

        def make(maker: Maker, columns: int = columns, rows: int = rows) -> Call:
            return _bound(nn.Softmax(-1), maker.normal(rows, columns, dtype=dtype))

        operation = operations.softmax(rows, columns, dtype.itemsize)
        smallest = (columns, rows) == shapes[0]
        yield Swept("softmax", operation, dtype, make, smallest, rows == 64)


def pools(chosen: Plan) -> Iterator[Swept]:
    """Give the maximum behind the stem of a ResNet, and the average before its head."""
    for layout, dtype, batches in _in_layouts(chosen):
        for batch in batches:
            for kind in ("max-pool2d", "avg-pool2d"):
                for channels, size in _pooled(kind, chosen.tiny):
                    yield _pool(
                        kind, batch, channels, size, dtype, layout, eager=batch == batches[0],
                        counted=batch == batches[-1] and channels == 64,
                    )  # fmt: skip


def _pooled(kind: str, tiny: bool) -> tuple[tuple[int, int], ...]:
    if tiny:
        return ((4, 8),)
    return ((64, 112), (192, 56)) if kind == "max-pool2d" else ((512, 7), (2048, 7))


def _pool(
    kind: str, batch: int, channels: int, size: int, dtype: torch.dtype, layout: str, **more: bool
) -> Swept:
    largest = kind == "max-pool2d"
    module = nn.MaxPool2d(3, 2, 1) if largest else nn.AdaptiveAvgPool2d(1)

    def make(maker: Maker) -> Call:
        x = maker.normal(batch, channels, size, size, dtype=dtype)
        return _bound(module, _ordered(x, layout))

    outputs, taps = ((size // 2) ** 2, 9) if largest else (1, size**2)
    operation = operations.pool2d(
        kind, batch, channels, size**2, outputs, taps, dtype.itemsize, layout
    )
    return Swept("pooling", operation, dtype, make, **more)


def elementwise(chosen: Plan) -> Iterator[Swept]:
    """Give activations, the residual sum, copies and gathers over the number of elements."""
    sizes = (16, 64) if chosen.tiny else plan.ELEMENTS
    for op, function, inputs in (
        ("relu", torch.relu_, 1),  # in place, as networks have it
        ("gelu", F.gelu, 1),
        ("silu", F.silu, 1),
        ("add", torch.add, 2),
        ("copy", torch.clone, 1),
    ):
        for dtype in (FP32,) if chosen.tiny else (BF16, FP32):
            for elements in sizes:
                if dtype is FP32 and not chosen.tiny and op not in ("relu", "add"):
                    continue
                yield _elementwise(
                    op, function, inputs, elements, dtype, eager=elements == sizes[0],
                    counted=elements == sizes[-1],
                )  # fmt: skip
    for width, tokens in ((8, 4),) if chosen.tiny else plan.EMBEDDINGS:
        yield _embedding(width, tokens, FP32 if chosen.tiny else BF16)


def _elementwise(
    op: str, function: Callable[..., Any], inputs: int, elements: int, dtype: torch.dtype,
    family: str = "elementwise", **more: bool,
) -> Swept:  # fmt: skip
    def make(maker: Maker) -> Call:
        return _bound(function, *(maker.normal(elements, dtype=dtype) for _ in range(inputs)))

    operation = operations.elementwise(op, elements, inputs, dtype.itemsize)
    return Swept(family, operation, dtype, make, **more)


VOCABULARY = 10_000


def _embedding(width: int, tokens: int, dtype: torch.dtype) -> Swept:
    def make(maker: Maker) -> Call:
        table = maker.normal(VOCABULARY, width, dtype=dtype)
        return _bound(F.embedding, maker.distinct(tokens, VOCABULARY), table)

    operation = operations.embedding(tokens, width, dtype.itemsize)
    return Swept("elementwise", operation, dtype, make, eager=tokens == plan.EMBEDDINGS[0][1])


def _normalize_relu(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * scale + shift)


def _normalize_add_relu(
    x: torch.Tensor, kept: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    return torch.relu(x * scale + shift + kept)


def fused(chosen: Plan) -> Iterator[Swept]:
    """Give what stands between the products of a network as one compiled kernel."""
    dtype = FP32 if chosen.tiny else BF16
    sizes = ((4, 8),) if chosen.tiny else ((784, 512), (12544, 512), (200704, 256))
    for rows, columns in sizes:
        for name, function, inputs in (
            ("norm-relu", _normalize_relu, 1),
            ("norm-add-relu", _normalize_add_relu, 2),
        ):
            yield _fused(name, function, inputs, rows, columns, dtype)


def _fused(
    name: str, function: Callable[..., Any], inputs: int, rows: int, columns: int,
    dtype: torch.dtype,
) -> Swept:  # fmt: skip
    made: list[Callable[..., Any]] = []

    def make(maker: Maker) -> Call:
        wide = [maker.normal(rows, columns, dtype=dtype) for _ in range(inputs)]
        arguments = (*wide, *(maker.normal(columns, dtype=dtype) for _ in range(2)))
        if not made:
            made.append(compiled(function, arguments))
        return _bound(made[0], *arguments)

    work = operations.elementwise("add", rows * columns, inputs, dtype.itemsize)
    operation = Operation(name, work.rows, {}, (inputs + 2) * work.flops, work.activation_bytes)
    return Swept("fused", operation, dtype, make)


def fine(chosen: Plan) -> Iterator[Swept]:
    """Give a convolution and a copy at evenly spaced sizes."""
    dtype, batches, sizes = BF16, plan.FINE_BATCHES, plan.FINE_ELEMENTS
    if chosen.tiny:
        dtype, batches, sizes = FP32, (1, 2), (16, 32)
    for batch in batches:
        yield _convolution("fine", plan.FINE_CONVOLUTION, batch, CHANNELS_LAST, dtype, padding=1)
    for elements in sizes:
        yield _elementwise("copy", torch.clone, 1, elements, dtype, family="fine")


SWEEPS: dict[str, Callable[[Plan], Iterator[Swept]]] = {
    "conv": convolutions,
    "fine": fine,
    "depthwise": depthwise,
    "linear": linears,
    "attention": attentions,
    "lstm": lstms,
    "norm": norms,
    "softmax": softmaxes,
    "pooling": pools,
    "elementwise": elementwise,
    "fused": fused,
}
