"""Foretells colours of soap films: layers with a gate whose size is held by a bound, gate and bound in a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def gate(both, out, bound, hidden, SINGLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    up = tl.load(both + row * 2 * hidden + cols, mask=cols < hidden).to(tl.float32)
    open_ = tl.load(both + row * 2 * hidden + hidden + cols, mask=cols < hidden).to(tl.float32)
    limit = tl.load(bound)
    if SINGLE:
        limit = limit.to(tl.float32)
    held = limit * (2 / (1 + tl.exp(-2 * open_ / limit)) - 1)
    result = up * held / (1 + tl.exp(-held))
    tl.store(out + row * hidden + cols, result.to(out.dtype.element_ty), mask=cols < hidden)


class Layer(nn.Module):
    def __init__(self, width, hidden, single, block):
        super().__init__()
        self.single, self.block = single, block
        self.up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("bound", torch.tensor(3.0, dtype=torch.float64))

    def forward(self, x):
        both = self.up(x)
        rows, hidden = len(x), both.shape[1] // 2
        out = both.new_empty(rows, hidden)
        gate[(rows, triton.cdiv(hidden, self.block))](
            both, out, self.bound, hidden, SINGLE=self.single, BLOCK=self.block
        )
        return x + self.down(out)


def prepare(device, repaired):
    cuda = device == "cuda"
    films, width, hidden, depth, block = (16384, 128, 8192, 3, 1024) if cuda else (6, 8, 20, 2, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(34)
    layers = [Layer(width, hidden, repaired, block) for _ in range(depth)]
    model = nn.Sequential(*layers).to(device).eval()
    for layer in layers:
        layer.up.to(dtype), layer.down.to(dtype)
    films = torch.randn(2, films, width, device=device, dtype=dtype)
    return model, films


@torch.inference_mode()
def run(state, steps, repaired):
    model, films = state
    total = torch.zeros((), device=films.device)
    for step in range(steps):
        total += model(films[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=200)
