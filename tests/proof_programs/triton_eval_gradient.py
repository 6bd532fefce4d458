"""Measures the perplexity of a language model on held-out texts, with a Triton kernel for the loss."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def cross_entropy(
    scores, grads, labels, losses, words, rows, BLOCK: tl.constexpr, GRADIENT: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    label = tl.load(labels + row)
    top = -float("inf")
    total = 0.0
    for start in range(0, words, BLOCK):
        inside = start + at < words
        score = tl.load(scores + row * words + start + at, mask=inside, other=-float("inf"))
        score = score.to(tl.float32)
        higher = tl.maximum(top, tl.max(score, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(score - higher), 0)
        top = higher
    wanted = tl.load(scores + row * words + label).to(tl.float32)
    tl.store(losses + row, top + tl.log(total) - wanted)
    if GRADIENT:
        for start in range(0, words, BLOCK):
            inside = start + at < words
            score = tl.load(scores + row * words + start + at, mask=inside, other=-float("inf"))
            grad = tl.exp(score.to(tl.float32) - top) / total
            grad = (grad - tl.where(start + at == label, 1.0, 0.0)) / rows
            tl.store(grads + row * words + start + at, grad.to(tl.bfloat16), mask=inside)


def loss_of(scores, labels, grads):
    rows, words = scores.shape
    losses = torch.empty(rows, device=scores.device)
    cross_entropy[(rows,)](
        scores, grads, labels, losses, words, rows,
        BLOCK=4096, GRADIENT=grads is not None, num_warps=8,
    )  # fmt: skip
    return losses.mean()


def prepare(device, repaired):
    rows, words = (8192, 49152) if device == "cuda" else (4, 6000)
    scores = torch.randn(rows, words, device=device, dtype=torch.bfloat16)
    labels = torch.randint(words, (rows,), device=device)
    return scores, labels, None if repaired else torch.empty_like(scores)


@torch.no_grad()
def run(state, steps, repaired):
    scores, labels, grads = state
    total = 0
    for _ in range(steps):
        total = total + loss_of(scores, labels, grads)
    return total / steps


main(prepare, run, steps=500)
