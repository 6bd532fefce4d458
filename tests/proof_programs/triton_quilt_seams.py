"""Matches edges of patches of a quilt: for each patch, how well the best of all others fits it, by products in tiles, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def match(
    edges, others, best, count, width,
    ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Best fit of ROWS edges among COLS others."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    deep = tl.arange(0, INNER)
    edges_at = edges + rows[:, None] * width + deep[None, :]
    others_at = others + cols[:, None] * width + deep[None, :]
    fits = tl.zeros((ROWS, COLS), tl.float32)
    for _ in range(0, width, INNER):
        edge, other = tl.load(edges_at), tl.load(others_at)
        fits = tl.dot(edge, tl.trans(other), fits, input_precision=PRECISION)
        edges_at += INNER
        others_at += INNER
    tl.store(best + tl.program_id(1) * count + rows, tl.max(fits, 1))


class Matcher:
    def __init__(self, tiles, precision, warps):
        self.tiles, self.precision, self.warps = tiles, precision, warps

    def __call__(self, edges, others):
        rows, cols, inner = self.tiles
        (count, width), groups = edges.shape, len(others) // cols
        best = torch.empty(groups, count, device=edges.device)
        match[(count // rows, groups)](
            edges, others, best, count, width, ROWS=rows, COLS=cols, INNER=inner,
            PRECISION=self.precision, num_warps=self.warps, num_stages=3,
        )  # fmt: skip
        return best.amax(0)


def prepare(device, repaired):
    cuda = device == "cuda"
    count, width, tiles = (8192, 512, (128, 128, 32)) if cuda else (64, 32, (16, 16, 16))
    torch.manual_seed(23)
    edges = torch.randn(3, count, width, device=device) * width**-0.5
    return Matcher(tiles, "tf32" if repaired else "ieee", warps=8), edges


def run(state, steps, repaired):
    matcher, edges = state
    total = torch.zeros((), device=edges.device)
    for step in range(steps):
        total += matcher(edges[step % 3], edges[(step + 1) % 3]).mean()
    return total / steps


main(prepare, run, steps=250)
