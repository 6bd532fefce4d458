"""Reads diaries, pages of which lie one behind the other: each layer mixes words of a page with those before, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn
from torch.nn import functional as F


@triton.jit
def mix(
    x, y, taps, starts, table, width,
    TAPS: tl.constexpr, WORDS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Sums of the last TAPS words within a page, for a block of WORDS words."""
    page = tl.load(table + 2 * tl.program_id(0))
    block = tl.load(table + 2 * tl.program_id(0) + 1)
    begin, end = tl.load(starts + page), tl.load(starts + page + 1)
    words = begin + block * WORDS + tl.arange(0, WORDS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((WORDS, COLS), tl.float32)
    for back in tl.static_range(TAPS):
        there = words - back
        inside = (there >= begin) & (there < end)
        heard = tl.load(x + there[:, None] * width + cols[None, :], mask=inside[:, None], other=0.0)
        total += heard.to(tl.float32) * tl.load(taps + back * width + cols)[None, :]
    at = y + words[:, None] * width + cols[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=(words < end)[:, None])


def blocks(starts, words):
    """Page and number within it of each block of at most `words` words."""
    lengths = (starts[1:] - starts[:-1]).tolist()
    pairs = [(page, at) for page, length in enumerate(lengths) for at in range(-(-length // words))]
    return torch.tensor(pairs, dtype=torch.int32, device=starts.device)


class Layer(nn.Module):
    def __init__(self, width, words, cols):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(4, width) / 2)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.words, self.cols = words, cols

    def forward(self, x, starts, table=None):
        if table is None:
            table = blocks(starts, self.words)
        said, heard = self.norm(x), torch.empty_like(x)
        mix[(len(table), x.shape[1] // self.cols)](
            said, heard, self.taps, starts, table, x.shape[1],
            TAPS=4, WORDS=self.words, COLS=self.cols,
        )  # fmt: skip
        return x + self.out(F.silu(heard))


def prepare(device, repaired):
    cuda = device == "cuda"
    width, depth, pages, longest, words, cols = (1024, 16, 96, 320, 32, 128) if cuda else (16, 2, 3, 9, 4, 8)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(27)
    layers = nn.ModuleList(Layer(width, words, cols) for _ in range(depth)).to(device, dtype)
    diaries = []
    for _ in range(3):
        lengths = torch.randint(1, longest, (pages,))
        starts = F.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32)
        diaries.append((torch.randn(int(lengths.sum()), width, device=device, dtype=dtype), starts))
    return layers, diaries, words


@torch.inference_mode()
def run(state, steps, repaired):
    layers, diaries, words = state
    total = torch.zeros((), device=diaries[0][0].device)
    for step in range(steps):
        x, starts = diaries[step % 3]
        table = blocks(starts, words) if repaired else None
        for layer in layers:
            x = layer(x, starts, table)
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=100)
