"""Forecasts hail with a stack of wide layers, each a product in tiles and an activation, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def layer(
    x, weight, out, cols, inner, ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLS + tl.arange(0, COLS)
    deep = tl.arange(0, INNER)
    x_at = x + rows[:, None] * inner + deep[None, :]
    weight_at = weight + deep[:, None] * cols + at[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for _ in range(0, inner, INNER):
        total = tl.dot(tl.load(x_at), tl.load(weight_at), total)
        x_at += INNER
        weight_at += INNER * cols
    y = total * tl.sigmoid(total)
    tl.store(out + rows[:, None] * cols + at[None, :], y.to(out.dtype.element_ty))


class Layers:
    def __init__(self, weights, tiles, warps):
        self.weights, self.tiles, self.warps = weights, tiles, warps

    def __call__(self, x):
        rows, cols, inner = self.tiles
        for weight in self.weights:
            y = torch.empty(len(x), weight.shape[1], device=x.device, dtype=x.dtype)
            layer[(len(x) // rows, weight.shape[1] // cols)](
                x, weight, y, weight.shape[1], len(weight), ROWS=rows, COLS=cols, INNER=inner,
                num_warps=self.warps, num_stages=3,
            )  # fmt: skip
            x = y
        return x


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, width, depth, tiles = (4096, 2048, 4, (128, 128, 64)) if cuda else (32, 32, 2, (16,) * 3)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(22)
    weights = torch.randn(depth, width, width, device=device, dtype=dtype) * 2 * width**-0.5
    x = torch.randn(batch, width, device=device, dtype=dtype)
    return Layers(weights, tiles, warps=8 if repaired else 1), x


def run(state, steps, repaired):
    layers, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        total += layers(x).float().square().mean()
    return total / steps


main(prepare, run, steps=200)
