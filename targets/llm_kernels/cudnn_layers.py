"""Conv2d and LSTM, as torch gives them to cuDNN."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from nsight_prof.targets.harness import Case, Setup
from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.llm_kernels import formulas
from nsight_prof.targets.llm_kernels.data import Maker, name_of
from nsight_prof.targets.llm_kernels.models import CONVOLUTIONS, TINY_CONVOLUTION, Convolution
from nsight_prof.targets.llm_kernels.plan import Plan, launch_of

LAYOUTS = ("channels-last", "channels-first")


def convolution_cases(plan: Plan) -> Iterator[Case]:
    """Make convolutions, bf16; channels-last as recommended for Tensor Cores, and NCHW."""
    for layer in (TINY_CONVOLUTION,) if plan.tiny else CONVOLUTIONS:
        for layout in LAYOUTS:
            # The default layout of torch is compared on one layer.
            if layout == LAYOUTS[0] or layer in (CONVOLUTIONS[-1], TINY_CONVOLUTION):
                for variant in plan.among("eager", "graph"):
                    yield _convolution(layer, layout, variant)


def _convolution(layer: Convolution, layout: str, variant: str) -> Case:
    work = formulas.conv2d(
        layer.batch,
        layer.channels,
        layer.filters,
        layer.size**2,
        layer.output**2,
        layer.kernel**2,
        torch.bfloat16.itemsize,
    )
    order = torch.channels_last if layout == "channels-last" else torch.contiguous_format

    def prepare(setup: Setup) -> list[Call]:
        make = Maker(setup)

        def one() -> Call:
            side, taps = layer.size, layer.channels * layer.kernel**2
            x = make.normal(layer.batch, layer.channels, side, side)
            weight = make.normal(
                layer.filters, layer.channels, layer.kernel, layer.kernel, scale=taps**-0.5
            )
            x, weight = (t.contiguous(memory_format=order) for t in (x, weight))
            return lambda: F.conv2d(x, weight, None, layer.stride, layer.padding)

        return [one() for _ in range(setup.copies)]

    return Case(
        name=f"conv/{layer.key}/{layout}/{variant}",
        operation="Conv2d",
        prepare=prepare,
        work=work,
        footprint_bytes=work.bytes or 0,
        params={
            "family": "conv",
            "layer": layer.key,
            "batch": layer.batch,
            "channels": layer.channels,
            "filters": layer.filters,
            "size": layer.size,
            "kernel": layer.kernel,
            "stride": layer.stride,
            "layout": layout,
            "variant": variant,
        },
        dtype="bf16",
        level="tensor",
        launch=launch_of(variant),
        counted=variant == "eager",
    )


LSTMS = ((1, 32, 1024, 1024), (32, 32, 1024, 1024), (128, 32, 1024, 1024))
"""(batch, steps, inputs, hidden)."""
TINY_LSTMS = ((2, 4, 8, 8),)
COUNTED_LSTM = 32
"""The batch whose kernels are counted: a layer is a kernel or more for each step."""


def lstm_cases(plan: Plan) -> Iterator[Case]:
    """Make one LSTM layer, fp16 on a GPU: torch gives cuDNN no bf16 there."""
    for batch, steps, inputs, hidden in TINY_LSTMS if plan.tiny else LSTMS:
        for variant in plan.among("eager", "graph"):
            dtype = torch.float32 if plan.tiny else torch.float16
            yield _lstm(batch, steps, inputs, hidden, dtype, variant)


def _lstm(
    batch: int, steps: int, inputs: int, hidden: int, dtype: torch.dtype, variant: str
) -> Case:
    work = formulas.lstm(steps, batch, inputs, hidden, dtype.itemsize)

    def prepare(setup: Setup) -> list[Call]:
        make = Maker(setup)

        def one() -> Call:
            layer = torch.nn.LSTM(inputs, hidden, dtype=dtype, device=setup.device)
            layer.requires_grad_(False).eval()
            for parameter in layer.parameters():
                parameter.copy_(make.normal(*parameter.shape, dtype=dtype, scale=hidden**-0.5))
            x = make.normal(steps, batch, inputs, dtype=dtype)
            return lambda: layer(x)

        return [one() for _ in range(setup.copies)]

    return Case(
        name=f"lstm/b{batch}-s{steps}-i{inputs}-h{hidden}/{variant}",
        operation="LSTM",
        prepare=prepare,
        work=work,
        footprint_bytes=work.bytes or 0,
        params={
            "family": "lstm",
            "batch": batch,
            "steps": steps,
            "inputs": inputs,
            "hidden": hidden,
            "variant": variant,
        },
        dtype=name_of(dtype),
        level="tensor",
        launch=launch_of(variant),
        counted=variant == "eager" and batch in (COUNTED_LSTM, TINY_LSTMS[0][0]),
    )
