"""Gates the rows of a small network's activations (SwiGLU) with a kernel in Triton, a row for each program."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def gate(x, y, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    open_ = tl.load(x + row * 2 * WIDTH + column).to(tl.float32)
    value = tl.load(x + row * 2 * WIDTH + WIDTH + column).to(tl.float32)
    gated = value * open_ / (1 + tl.exp(-open_))
    tl.store(y + row * WIDTH + column, gated.to(y.dtype.element_ty))


class Gate:
    """Calls the kernel with as many warps as it was made with."""

    def __init__(self, warps):
        self.warps = warps

    def __call__(self, x):
        rows, width = x.shape[0], x.shape[1] // 2
        y = torch.empty(rows, width, dtype=x.dtype, device=x.device)
        gate[(rows,)](x, y, WIDTH=width, num_warps=self.warps)
        return y


class Layer(nn.Module):
    """A narrow feed-forward network of a model that looks at single pixels of satellites."""

    def __init__(self, bands, width, gate):
        super().__init__()
        self.up = nn.Linear(bands, 2 * width, bias=False)
        self.down = nn.Linear(width, bands, bias=False)
        self.gate = gate

    def forward(self, pixels):
        return pixels + self.down(self.gate(self.up(pixels)))


def prepare(device, repaired):
    pixels, bands, width = (1 << 18, 32, 256) if device == "cuda" else (64, 8, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = Layer(bands, width, Gate(warps=1 if repaired else 16)).to(device, dtype)
    return layer, torch.randn(2, pixels, bands, device=device).to(dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    layer, pixels = state
    total = torch.zeros((), device=pixels.device)
    for step in range(steps):
        total += layer(pixels[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=1500)
