"""Reads manuals of machines to answer questions about them: attention over a whole manual at once, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def read_all(
    q,
    k,
    v,
    out,
    length,
    scale,
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
    for first in range(0, length, COLS):
        cols = first + tl.arange(0, COLS)
        keys = tl.load(k + head + cols[None, :] * WIDTH + dims[:, None])
        scores = tl.dot(asked, keys) * scale
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
    def __init__(self, width, heads, rows):
        super().__init__()
        self.heads, self.rows = heads, rows
        self.norm = nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1).contiguous()

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (self.split(part(y)) for part in (self.q, self.k, self.v))
        read = torch.empty_like(q)
        heads, length, width = q.shape
        read_all[(length // self.rows, heads)](
            q,
            k,
            v,
            read,
            length,
            width**-0.5,
            ROWS=self.rows,
            COLS=min(length, 64),
            WIDTH=width,
            num_warps=4,
        )
        return x + self.out(read.transpose(0, 1).flatten(1))


def prepare(device, repaired):
    cuda = device == "cuda"
    length, width, heads, depth, rows = (8192, 1024, 16, 3, 64) if cuda else (64, 32, 2, 2, 32)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(35)
    layers = [Layer(width, heads, rows if repaired else 16) for _ in range(depth)]
    manuals = torch.randn(2, length, width, device=device, dtype=dtype)
    return nn.Sequential(*layers).to(device, dtype).eval(), manuals


@torch.inference_mode()
def run(state, steps, repaired):
    model, manuals = state
    total = torch.zeros((), device=manuals.device)
    for step in range(steps):
        total += model(manuals[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=60)
