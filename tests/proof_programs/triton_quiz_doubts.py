"""Asks how much a model doubts its answers in a quiz: the entropy of each row of many logits, in one pass in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def doubts(logits, out, words, heat, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -1.0e30, tl.float32)
    share = tl.zeros((BLOCK,), tl.float32)
    weighed = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, words, BLOCK):
        mask = first + cols < words
        x = tl.load(logits + row.to(tl.int64) * words + first + cols, mask=mask, other=-1.0e30)
        x = x.to(tl.float32) * heat
        higher = tl.maximum(top, x)
        kept, new = tl.exp(top - higher), tl.exp(x - higher)
        new = tl.where(mask, new, 0.0)
        share = share * kept + new
        weighed = weighed * kept + new * x
        top = higher
    best = tl.max(top, 0)
    scale = tl.exp(top - best)
    whole = tl.sum(share * scale, 0)
    mean = tl.sum(weighed * scale, 0) / whole
    tl.store(out + row, tl.log(whole) + best - mean)


class Quiz(nn.Module):
    """Logits (questions, words) of answers, from what is known of each question."""

    def __init__(self, known, words):
        super().__init__()
        self.norm = nn.LayerNorm(known)
        self.last = nn.Linear(known, words, bias=False)

    def forward(self, questions):
        return self.last(self.norm(questions))


def entropies(logits, heat, block, warps):
    rows, words = logits.shape
    out = torch.empty(rows, device=logits.device)
    doubts[(rows,)](logits, out, words, heat, BLOCK=block, num_warps=warps)
    return out


def prepare(device, repaired):
    cuda = device == "cuda"
    questions, known, words, block = (128, 256, 200000, 2048) if cuda else (3, 8, 70, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(27)
    model = Quiz(known, words).to(device, dtype).eval()
    asked = torch.randn(4, questions, known, device=device, dtype=dtype)
    return model, asked, block, 16 if repaired else 1


@torch.inference_mode()
def run(state, steps, repaired):
    model, asked, block, warps = state
    total = torch.zeros((), device=asked.device)
    for step in range(steps):
        logits = model(asked[step % 4])
        for heat in (0.5, 1.0, 2.0):
            total += entropies(logits, heat, block, warps).mean()
    return total / steps


main(prepare, run, steps=800)
