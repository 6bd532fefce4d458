"""Reads the log of barges on a river, each entry with the last few hundred before it: windowed attention in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def read_back(
    q,
    k,
    v,
    out,
    length,
    scale,
    WINDOW: tl.constexpr,
    FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    head = tl.program_id(1) * length * WIDTH
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, WIDTH)
    asked = tl.load(q + head + rows[:, None] * WIDTH + dims[None, :])
    top = tl.full((ROWS,), -1.0e30, tl.float32)
    share = tl.zeros((ROWS,), tl.float32)
    read = tl.zeros((ROWS, WIDTH), tl.float32)
    begin = 0
    if FIRST:
        begin = tl.maximum(tl.program_id(0) * ROWS - WINDOW + 1, 0) // COLS * COLS
    for first in range(begin, (tl.program_id(0) + 1) * ROWS, COLS):
        cols = first + tl.arange(0, COLS)
        keys = tl.load(k + head + cols[None, :] * WIDTH + dims[:, None])
        scores = tl.dot(asked, keys) * scale
        near = (cols[None, :] <= rows[:, None]) & (cols[None, :] > rows[:, None] - WINDOW)
        scores = tl.where(near, scores, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        chances = tl.exp(scores - higher[:, None])
        kept = tl.exp(top - higher)
        share = share * kept + tl.sum(chances, 1)
        values = tl.load(v + head + cols[:, None] * WIDTH + dims[None, :])
        read = tl.dot(chances.to(values.dtype), values, read * kept[:, None])
        top = higher
    out_at = out + head + rows[:, None] * WIDTH + dims[None, :]
    tl.store(out_at, (read / share[:, None]).to(out.dtype.element_ty))


class Layer(nn.Module):
    def __init__(self, width, heads, window, block, first):
        super().__init__()
        self.heads, self.window, self.block, self.first = heads, window, block, first
        self.norm = nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1).contiguous()

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (self.split(part(y)) for part in (self.q, self.k, self.v))
        read = torch.empty_like(q)
        heads, length, width = q.shape
        read_back[(length // self.block, heads)](
            q,
            k,
            v,
            read,
            length,
            width**-0.5,
            WINDOW=self.window,
            FIRST=self.first,
            ROWS=self.block,
            COLS=min(self.block, 64),
            WIDTH=width,
        )
        return x + self.out(read.transpose(0, 1).flatten(1))


def prepare(device, repaired):
    cuda = device == "cuda"
    length, width, heads, depth, window, block = (
        (16384, 512, 8, 4, 512, 128) if cuda else (128, 64, 2, 2, 24, 16)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(23)
    layers = [Layer(width, heads, window, block, first=repaired) for _ in range(depth)]
    entries = torch.randn(2, length, width, device=device, dtype=dtype)
    return nn.Sequential(*layers).to(device, dtype).eval(), entries


@torch.inference_mode()
def run(state, steps, repaired):
    model, entries = state
    total = torch.zeros((), device=entries.device)
    for step in range(steps):
        total += model(entries[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=150)
