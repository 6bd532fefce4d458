"""Tells a long saga to one reader: each new word looks at all words so far, whose keys and values are kept, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def look(q, keys, values, out, maxima, sums, length, span, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Partial attention of a head to words from `span` times the second number of the program on."""
    head, piece = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, WIDTH)
    query = tl.load(q + head * WIDTH + cols).to(tl.float32) * (WIDTH**-0.5)
    top, total = -float("inf"), 0.0
    found = tl.zeros((WIDTH,), tl.float32)
    begin = piece * span
    for first in range(begin, begin + span, BLOCK):
        words = first + tl.arange(0, BLOCK)
        at = (head * length + words)[:, None] * WIDTH + cols[None, :]
        k = tl.load(keys + at).to(tl.float32)
        scores = tl.sum(k * query[None, :], 1)
        higher = tl.maximum(top, tl.max(scores, 0))
        weights = tl.exp(scores - higher)
        less = tl.exp(top - higher)
        v = tl.load(values + at).to(tl.float32)
        found = found * less + tl.sum(v * weights[:, None], 0)
        total = total * less + tl.sum(weights, 0)
        top = higher
    place = head * tl.num_programs(1) + piece
    tl.store(out + place * WIDTH + cols, found)
    tl.store(maxima + place, top)
    tl.store(sums + place, total)


class Memory:
    """Keys and values (heads, words, width) of a saga."""

    def __init__(self, keys, values, pieces, block):
        self.keys, self.values, self.pieces, self.block = keys, values, pieces, block

    def __call__(self, query):
        heads, length, width = self.keys.shape
        found = query.new_empty(heads, self.pieces, width, dtype=torch.float32)
        top, total = query.new_empty(2, heads, self.pieces, dtype=torch.float32)
        look[(heads, self.pieces)](
            query, self.keys, self.values, found, top, total, length, length // self.pieces,
            WIDTH=width, BLOCK=self.block,
        )  # fmt: skip
        share = torch.exp(top - top.amax(1, keepdim=True))
        return (found * share[..., None]).sum(1) / (total * share).sum(1, keepdim=True)


def prepare(device, repaired):
    cuda = device == "cuda"
    heads, length, width, block = (16, 65536, 128, 64) if cuda else (2, 64, 16, 8)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(19)
    keys, values = torch.randn(2, heads, length, width, device=device, dtype=dtype)
    queries = torch.randn(4, heads, width, device=device, dtype=dtype)
    return Memory(keys, values, (64 if cuda else 4) if repaired else 1, block), queries


def run(state, steps, repaired):
    memory, queries = state
    total = torch.zeros((), device=queries.device)
    for step in range(steps):
        total += memory(queries[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=300)
