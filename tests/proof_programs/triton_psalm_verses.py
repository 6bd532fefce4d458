"""Reads psalms: each word looks at those before it and itself, in blocks of queries and keys, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def look_back(
    q, k, v, out, length, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    rows, wide = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    begin = head * length * WIDTH
    query = tl.load(q + begin + rows[:, None] * WIDTH + wide[None, :])
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDTH), tl.float32)
    end = (block + 1) * ROWS if STOPS else length
    for first in range(0, end, COLS):
        cols = first + tl.arange(0, COLS)
        keys = tl.load(k + begin + cols[None, :] * WIDTH + wide[:, None])
        scores = tl.dot(query, keys) * (1.4427 * WIDTH**-0.5)
        scores = tl.where(rows[:, None] >= cols[None, :], scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        less = tl.exp2(top - higher)
        total = total * less + tl.sum(weights, 1)
        values = tl.load(v + begin + cols[:, None] * WIDTH + wide[None, :])
        found = found * less[:, None] + tl.dot(weights.to(values.dtype), values)
        top = higher
    at = begin + rows[:, None] * WIDTH + wide[None, :]
    tl.store(out + at, (found / total[:, None]).to(out.dtype.element_ty))


class LookBack:
    def __init__(self, rows, cols, stops):
        self.rows, self.cols, self.stops = rows, cols, stops

    def __call__(self, q, k, v):
        heads, length, width = q.shape
        out = torch.empty_like(q)
        look_back[(length // self.rows, heads)](
            q, k, v, out, length, WIDTH=width, ROWS=self.rows, COLS=self.cols, STOPS=self.stops,
            num_warps=8, num_stages=3,
        )  # fmt: skip
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    heads, length, width, rows, cols = (32, 8192, 64, 128, 64) if cuda else (2, 64, 16, 16, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(20)
    qkv = torch.randn(3, heads, length, width, device=device, dtype=dtype)
    return LookBack(rows, cols, stops=repaired), qkv


def run(state, steps, repaired):
    look, qkv = state
    total = torch.zeros((), device=qkv.device)
    q = qkv[0]
    for _ in range(steps):
        q = look(q, qkv[1], qkv[2])
        total += q.float().square().mean()
    return total / steps


main(prepare, run, steps=250)
