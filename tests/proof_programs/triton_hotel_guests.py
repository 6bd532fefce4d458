"""Guesses what sixteen guests of a hotel ask for next, from large weights that are the same for all, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def for_one(weights, guests, scores, width, wishes, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    guest = tl.program_id(1)
    total = tl.zeros((ROWS, DEPTH), tl.float32)
    for start in range(0, width, DEPTH):
        deep = start + tl.arange(0, DEPTH)
        w = tl.load(weights + row[:, None] * width + deep[None, :]).to(tl.float32)
        x = tl.load(guests + guest * width + deep).to(tl.float32)
        total += w * x[None, :]
    tl.store(scores + guest * wishes + row, tl.sum(total, 1))


@triton.jit
def for_all(
    weights, guests, scores, width, wishes,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    guest = tl.arange(0, MANY)
    total = tl.zeros((ROWS, MANY), tl.float32)
    for start in range(0, width, DEPTH):
        deep = start + tl.arange(0, DEPTH)
        w = tl.load(weights + row[:, None] * width + deep[None, :])
        x = tl.load(guests + guest[None, :] * width + deep[:, None])
        total = tl.dot(w, x, total)
    tl.store(scores + guest[None, :] * wishes + row[:, None], total)


class Wishes:
    def __init__(self, weights, rows, depth, together):
        self.weights, self.rows, self.depth, self.together = weights, rows, depth, together

    def __call__(self, guests):
        wishes, width = self.weights.shape
        scores = torch.empty(len(guests), wishes, device=guests.device)
        tensors = (self.weights, guests, scores, width, wishes)
        if self.together:
            for_all[(wishes // self.rows,)](
                *tensors,
                ROWS=self.rows,
                DEPTH=self.depth,
                MANY=len(guests),
                num_warps=4,
                num_stages=4,
            )
        else:
            for_one[(wishes // self.rows, len(guests))](
                *tensors, ROWS=self.rows, DEPTH=self.depth, num_warps=4, num_stages=4
            )
        return scores


def prepare(device, repaired):
    wishes, width = (32768, 4096) if device == "cuda" else (64, 64)
    rows, depth = (32, 128) if device == "cuda" else (16, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weights = torch.randn(wishes, width, device=device, dtype=dtype) / width**0.5
    guests = torch.randn(4, 16, width, device=device, dtype=dtype)
    return Wishes(weights, rows, depth, together=repaired), guests


def run(state, steps, repaired):
    guess, guests = state
    total = torch.zeros((), device=guests.device)
    for step in range(steps):
        total += guess(guests[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=1200)
