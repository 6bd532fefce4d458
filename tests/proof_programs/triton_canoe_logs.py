"""Reads a long logbook of canoe trips: each word looks at the words shortly before it (a window), in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def look(
    q, keys, values, out, length, WINDOW: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr, BOUNDED: tl.constexpr,
):  # fmt: skip
    """Attention of ROWS words of a head to themselves and the WINDOW - 1 words before each."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * ROWS + tl.arange(0, ROWS)
    wide = tl.arange(0, WIDTH)
    begin_head = head * length * WIDTH
    row_at = begin_head + rows[:, None] * WIDTH + wide[None, :]
    query = tl.load(q + row_at)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDTH), tl.float32)
    begin = tl.maximum(block * ROWS - WINDOW + 1, 0) // COLS * COLS if BOUNDED else 0
    for first in range(begin, (block + 1) * ROWS, COLS):
        cols = first + tl.arange(0, COLS)
        col_at = begin_head + cols[:, None] * WIDTH + wide[None, :]
        scores = tl.dot(query, tl.trans(tl.load(keys + col_at))) * (WIDTH**-0.5)
        before = rows[:, None] - cols[None, :]
        scores = tl.where((before >= 0) & (before < WINDOW), scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        less = tl.exp(top - higher)
        total = total * less + tl.sum(weights, 1)
        v = tl.load(values + col_at)
        found = tl.dot(weights.to(v.dtype), v, found * less[:, None])
        top = higher
    tl.store(out + row_at, (found / total[:, None]).to(out.dtype.element_ty))


class Reader:
    def __init__(self, window, tiles, bounded):
        self.window, self.tiles, self.bounded = window, tiles, bounded

    def __call__(self, q, keys, values):
        heads, length, width = q.shape
        rows, cols = self.tiles
        found = torch.empty_like(q)
        look[(length // rows, heads)](
            q, keys, values, found, length, WINDOW=self.window, WIDTH=width, ROWS=rows, COLS=cols,
            BOUNDED=self.bounded, num_warps=4, num_stages=3,
        )  # fmt: skip
        return found


def prepare(device, repaired):
    cuda = device == "cuda"
    heads, length, width, window = (16, 16384, 64, 512) if cuda else (2, 96, 16, 20)
    tiles = (128, 64) if cuda else (32, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(33)
    q, keys, values = torch.randn(3, heads, length, width, device=device, dtype=dtype)
    return Reader(window, tiles, bounded=repaired), q, keys, values


def run(state, steps, repaired):
    reader, q, keys, values = state
    total = torch.zeros((), device=q.device)
    for _ in range(steps):
        total += reader(q, keys, values)[:, ::16].float().square().mean()
    return total / steps


main(prepare, run, steps=200)
