"""Keeps how falcons glide: keys by heads get a common size, are turned by their moments and put into a memory, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def read(x, rows, WIDTH: tl.constexpr):
    """The two halves of rows."""
    at = rows[:, None] * WIDTH + tl.arange(0, WIDTH // 2)[None, :]
    return tl.load(x + at).to(tl.float32), tl.load(x + at + WIDTH // 2).to(tl.float32)


@triton.jit
def write(y, rows, low, high, WIDTH: tl.constexpr):
    at = rows[:, None] * WIDTH + tl.arange(0, WIDTH // 2)[None, :]
    tl.store(y + at, low.to(y.dtype.element_ty))
    tl.store(y + at + WIDTH // 2, high.to(y.dtype.element_ty))


@triton.jit
def size(low, high, sizes, WIDTH: tl.constexpr):
    cols = tl.arange(0, WIDTH // 2)
    share = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / WIDTH + 1e-6)
    low_size, high_size = tl.load(sizes + cols), tl.load(sizes + cols + WIDTH // 2)
    return low * share[:, None] * low_size[None, :], high * share[:, None] * high_size[None, :]


@triton.jit
def turn(low, high, moments, cosines, sines, WIDTH: tl.constexpr):
    at = moments[:, None] * (WIDTH // 2) + tl.arange(0, WIDTH // 2)[None, :]
    cosine, sine = tl.load(cosines + at), tl.load(sines + at)
    return low * cosine - high * sine, high * cosine + low * sine


@triton.jit
def size_rows(x, y, sizes, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low, high = read(x, rows, WIDTH)
    low, high = size(low, high, sizes, WIDTH)
    write(y, rows, low, high, WIDTH)


@triton.jit
def turn_rows(x, y, cosines, sines, heads, length, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low, high = read(x, rows, WIDTH)
    low, high = turn(low, high, rows // heads % length, cosines, sines, WIDTH)
    write(y, rows, low, high, WIDTH)


@triton.jit
def place_rows(x, memory, heads, count, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low, high = read(x, rows, WIDTH)
    write(memory, rows % heads * count + rows // heads, low, high, WIDTH)


@triton.jit
def keep_rows(
    x, memory, sizes, cosines, sines, heads, count, length, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All of it at once."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low, high = read(x, rows, WIDTH)
    low, high = size(low, high, sizes, WIDTH)
    low, high = turn(low, high, rows // heads % length, cosines, sines, WIDTH)
    write(memory, rows % heads * count + rows // heads, low, high, WIDTH)


class Memory:
    """Keys (heads, moments, width) of glides, one after the other, of `length` moments each."""

    def __init__(self, heads, count, width, length, at_once, rows, like):
        self.kept = like.new_empty(heads, count, width)
        self.sized, self.turned = (None, None) if at_once else like.new_empty(2, count, heads, width)
        self.sizes = torch.linspace(0.5, 1.5, width, device=like.device)
        pace = 10000 ** (-torch.arange(width // 2, device=like.device) / (width // 2))
        angles = torch.arange(length, device=like.device)[:, None] * pace
        self.cosines, self.sines = angles.cos(), angles.sin()
        self.length, self.at_once, self.rows = length, at_once, rows

    def keep(self, keys):
        heads, count, width = self.kept.shape
        grid, options = (count * heads // self.rows,), {"WIDTH": width, "ROWS": self.rows}
        tables, length = (self.cosines, self.sines), self.length
        if self.at_once:
            keep_rows[grid](keys, self.kept, self.sizes, *tables, heads, count, length, **options)
        else:
            size_rows[grid](keys, self.sized, self.sizes, **options)
            turn_rows[grid](self.sized, self.turned, *tables, heads, length, **options)
            place_rows[grid](self.turned, self.kept, heads, count, **options)
        return self.kept


def prepare(device, repaired):
    cuda = device == "cuda"
    heads, count, width, length, rows = (8, 131072, 128, 8192, 16) if cuda else (2, 16, 16, 8, 4)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(25)
    keys = torch.randn(2, count, heads, width, device=device, dtype=dtype)
    return Memory(heads, count, width, length, repaired, rows, keys), keys


def run(state, steps, repaired):
    memory, keys = state
    total = torch.zeros((), device=keys.device)
    for step in range(steps):
        kept = memory.keep(keys[step % 2])
        total += kept[0, step % kept.shape[1] :: 1024].float().abs().mean()
    return total / steps


main(prepare, run, steps=1200)
