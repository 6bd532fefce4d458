"""Puts letters of very different lengths through a layer, where they lie in one piece, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def project(
    words, weights, out, begins, lengths, width,
    STOP: tl.constexpr, WORDS: tl.constexpr, OUT: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    letter = tl.program_id(2)
    length = tl.load(lengths + letter)
    begin = tl.load(begins + letter)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    column = tl.program_id(0) * OUT + tl.arange(0, OUT)
    inside = (word < length)[:, None]
    most = width
    if STOP:
        most = tl.where(tl.program_id(1) * WORDS < length, width, 0)
    total = tl.zeros((WORDS, OUT), tl.float32)
    for start in range(0, most, DEPTH):
        deep = start + tl.arange(0, DEPTH)
        x = tl.load(words + (begin + word)[:, None] * width + deep[None, :], mask=inside, other=0.0)
        w = tl.load(weights + deep[:, None] * width + column[None, :])
        total = tl.dot(x, w, total)
    total = tl.maximum(total, 0.0)
    at = (begin + word)[:, None] * width + column[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


class Letters:
    """Words of all letters one after another; the grid has room for the longest letter in each."""

    def __init__(self, count, longest, width, device, dtype):
        drawn = torch.rand(count, generator=torch.Generator().manual_seed(6))
        lengths = (drawn**5 * longest).int().clamp(min=4)
        lengths[0] = longest
        self.begins = (lengths.cumsum(0) - lengths).int().to(device)
        self.lengths, self.longest = lengths.to(device), longest
        self.words = torch.randn(int(lengths.sum()), width, device=device, dtype=dtype)
        self.weights = torch.randn(width, width, device=device, dtype=dtype) / width**0.5

    def project(self, stop):
        width = self.words.shape[1]
        out = torch.empty_like(self.words)
        tile = min(64, width)
        grid = (width // tile, triton.cdiv(self.longest, 64), len(self.lengths))
        project[grid](
            self.words, self.weights, out, self.begins, self.lengths, width,
            STOP=stop, WORDS=64, OUT=tile, DEPTH=min(64, width),
        )  # fmt: skip
        return out


def prepare(device, repaired):
    count, longest, width = (256, 2048, 768) if device == "cuda" else (4, 128, 32)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return Letters(count, longest, width, device, dtype)


def run(state, steps, repaired):
    total = torch.zeros((), device=state.words.device)
    for _ in range(steps):
        total += state.project(stop=repaired).float().mean()
    return total / steps


main(prepare, run, steps=600)
