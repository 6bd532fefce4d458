"""A step of a forecast of storms: each cell of the globe adds up what cells around it say, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def send(x, sources, targets, weights, out, links, WIDTH: tl.constexpr, LINKS: tl.constexpr):
    link = tl.program_id(0) * LINKS + tl.arange(0, LINKS)
    cols = tl.arange(0, WIDTH)
    mask = link < links
    source = tl.load(sources + link, mask=mask, other=0)
    target = tl.load(targets + link, mask=mask, other=0)
    weight = tl.load(weights + link, mask=mask, other=0.0)
    said = tl.load(x + source[:, None] * WIDTH + cols[None, :], mask=mask[:, None], other=0.0)
    at = target[:, None] * WIDTH + cols[None, :]
    tl.atomic_add(out + at, weight[:, None] * said, mask=mask[:, None])


@triton.jit
def collect(x, sources, starts, weights, out, WIDTH: tl.constexpr, LINKS: tl.constexpr):
    cell = tl.program_id(0)
    cols = tl.arange(0, WIDTH)
    begin, end = tl.load(starts + cell), tl.load(starts + cell + 1)
    total = tl.zeros((WIDTH,), tl.float32)
    for first in range(begin, end, LINKS):
        link = first + tl.arange(0, LINKS)
        mask = link < end
        source = tl.load(sources + link, mask=mask, other=0)
        weight = tl.load(weights + link, mask=mask, other=0.0)
        said = tl.load(x + source[:, None] * WIDTH + cols[None, :], mask=mask[:, None], other=0.0)
        total += tl.sum(weight[:, None] * said, 0)
    tl.store(out + cell * WIDTH + cols, total)


class Globe:
    """Links between cells, in the order of the cells that they lead to."""

    def __init__(self, cells, links, device):
        self.cells = cells
        self.targets = torch.randint(cells, (links,), device=device, dtype=torch.int32).sort()[0]
        far = torch.randint(-3000, 3001, (links,), device=device, dtype=torch.int32)
        self.sources = (self.targets + far) % cells
        self.weights = torch.rand(links, device=device) / (links / cells)
        counts = torch.bincount(self.targets, minlength=cells).cumsum(0)
        self.starts = torch.cat((counts.new_zeros(1), counts)).int()

    def by_link(self, x):
        out, links = torch.zeros_like(x), len(self.sources)
        send[(triton.cdiv(links, 32),)](
            x,
            self.sources,
            self.targets,
            self.weights,
            out,
            links,
            WIDTH=x.shape[1],
            LINKS=32,
        )
        return out

    def by_cell(self, x):
        out = torch.empty_like(x)
        collect[(self.cells,)](
            x,
            self.sources,
            self.starts,
            self.weights,
            out,
            WIDTH=x.shape[1],
            LINKS=16,
            num_warps=2,
        )
        return out


def prepare(device, repaired):
    cells, links, width = (160000, 2600000, 64) if device == "cuda" else (12, 70, 16)
    globe = Globe(cells, links, device)
    x = torch.randn(cells, width, device=device)
    return globe.by_cell if repaired else globe.by_link, x


def run(state, steps, repaired):
    hear, x = state
    total = torch.zeros((), device=x.device)
    y = x
    for _ in range(steps):
        y = 0.9 * x + 0.1 * hear(y)
        total += y.abs().mean()
    return total / steps


main(prepare, run, steps=500)
