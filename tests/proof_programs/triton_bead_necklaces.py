"""Brings beads of many necklaces, each told by a short row of numbers, to one size, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def size_rows(x, weight, out, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Divide rows of WIDTH numbers by the root of the mean of their squares, and weigh them."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, WIDTH)
    at = rows[:, None] * WIDTH + cols[None, :]
    beads = tl.load(x + at).to(tl.float32)
    size = tl.sum(beads * beads, 1) / WIDTH
    shares = tl.load(weight + cols).to(tl.float32)
    sized = beads * tl.rsqrt(size + 1e-6)[:, None] * shares[None, :]
    tl.store(out + at, sized.to(out.dtype.element_ty))


class Norm:
    def __init__(self, weight, rows):
        self.weight, self.rows = weight, rows

    def __call__(self, x):
        """Beads (necklaces, places, numbers) of one size."""
        out = torch.empty_like(x)
        count = x.shape[0] * x.shape[1]
        size_rows[(count // self.rows,)](
            x, self.weight, out, WIDTH=x.shape[2], ROWS=self.rows, num_warps=4
        )
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    necklaces, places, width, rows = (8192, 128, 64, 32) if cuda else (4, 6, 16, 8)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(34)
    beads = torch.randn(2, necklaces, places, width, device=device, dtype=dtype)
    weight = torch.rand(width, device=device, dtype=dtype) + 0.5
    return Norm(weight, rows if repaired else 1), beads


def run(state, steps, repaired):
    norm, beads = state
    total = torch.zeros((), device=beads.device)
    for step in range(steps):
        total += norm(beads[step % 2])[0].float().square().mean()
    return total / steps


main(prepare, run, steps=500)
