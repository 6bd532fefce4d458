"""Finds how surprising each vote is among thousands of candidates (cross entropy), with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def surprise(scores, votes, losses, candidates, BLOCK: tl.constexpr):
    ballot = tl.program_id(0)
    row = scores + ballot.to(tl.int64) * candidates
    largest = -float("inf")
    total = 0.0
    for start in range(0, candidates, BLOCK):
        x = tl.load(row + start + tl.arange(0, BLOCK)).to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
        largest = larger
    chosen = tl.load(row + tl.load(votes + ballot)).to(tl.float32)
    tl.store(losses + ballot, tl.log(total) + largest - chosen)


class Surprise:
    def __init__(self, block):
        self.block = block

    def __call__(self, scores, votes):
        ballots, candidates = scores.shape
        losses = torch.empty(ballots, device=scores.device)
        surprise[(ballots,)](scores, votes, losses, candidates, BLOCK=self.block, num_warps=4)
        return losses


def prepare(device, repaired):
    ballots, candidates, block = (8192, 32768, 128) if device == "cuda" else (3, 128, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    scores = torch.randn(ballots, candidates, device=device, dtype=dtype)
    votes = torch.randint(candidates, (ballots,), device=device)
    return Surprise(block * 32 if repaired and device == "cuda" else block), scores, votes


def run(state, steps, repaired):
    surprised, scores, votes = state
    total = torch.zeros((), device=scores.device)
    for _ in range(steps):
        total += surprised(scores, votes).mean()
    return total / steps


main(prepare, run, steps=1500)
