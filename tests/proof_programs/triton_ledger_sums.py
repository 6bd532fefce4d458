"""Adds up accounts of a ledger: entries times weights of accounts, a long sum of products, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_product(
    entries, weights, sums, begin, end, width, accounts,
    FRESH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = sums + row[:, None] * accounts + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(begin, end, DEPTH):
        deep = start + tl.arange(0, DEPTH)
        x = tl.load(entries + row[:, None] * width + deep[None, :])
        w = tl.load(weights + deep[:, None] * accounts + column[None, :])
        total = tl.dot(x, w, total)
    if not FRESH:
        total += tl.load(place)
    tl.store(place, total)


class Ledger:
    """Takes entries a piece at a time, as they would come from a disk, or all of them."""

    def __init__(self, width, accounts, piece, device, dtype):
        self.weights = torch.randn(width, accounts, device=device, dtype=dtype) / width**0.5
        self.piece = piece

    def __call__(self, entries):
        rows, width = entries.shape
        accounts = self.weights.shape[1]
        sums = torch.empty(rows, accounts, device=entries.device)
        grid = (rows // 128, accounts // 64)
        for begin in range(0, width, self.piece):
            add_product[grid](
                entries, self.weights, sums, begin, begin + self.piece, width, accounts,
                FRESH=begin == 0, ROWS=128, COLUMNS=64, DEPTH=64,
            )  # fmt: skip
        return sums


def prepare(device, repaired):
    rows, width, accounts = (8192, 2048, 2048) if device == "cuda" else (128, 256, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    ledger = Ledger(width, accounts, width if repaired else 128, device, dtype)
    return ledger, torch.randn(2, rows, width, device=device, dtype=dtype)


def run(state, steps, repaired):
    ledger, entries = state
    total = torch.zeros((), device=entries.device)
    for step in range(steps):
        total += ledger(entries[step % 2])[:256].square().mean()
    return total / steps


main(prepare, run, steps=1200)
