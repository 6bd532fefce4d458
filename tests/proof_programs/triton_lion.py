"""Trains a deep and narrow network with the optimizer Lion, whose update is a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def lion(weights, grads, moments, number, lr, decay, one, two, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    w = tl.load(weights + at, mask=inside, other=0.0)
    g = tl.load(grads + at, mask=inside, other=0.0)
    m = tl.load(moments + at, mask=inside, other=0.0)
    blend = one * m + (1 - one) * g
    sign = (blend > 0).to(tl.float32) - (blend < 0).to(tl.float32)
    tl.store(weights + at, w - lr * (sign + decay * w), mask=inside)
    tl.store(moments + at, two * m + (1 - two) * g, mask=inside)


class Lion:
    """Updates all tensors; where they lie in one piece of memory (`flat`), all at once."""

    def __init__(self, pieces):
        self.pieces = [(w, g, torch.zeros_like(w)) for w, g in pieces]

    def step(self):
        for w, g, m in self.pieces:
            grid = (triton.cdiv(w.numel(), 1024),)
            lion[grid](w, g, m, w.numel(), 1e-6, 0.1, 0.9, 0.99, BLOCK=1024, num_warps=4)


def prepare(device, repaired):
    width, depth, batch = (192, 150, 1024) if device == "cuda" else (16, 3, 4)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(depth))
    ).to(device)
    parameters = list(model.parameters())
    flat = torch.empty(sum(p.numel() for p in parameters), device=device)
    grads = torch.zeros_like(flat)
    start = 0
    for p in parameters:
        piece = slice(start, start + p.numel())
        flat[piece].copy_(p.detach().flatten())
        p.data, p.grad = flat[piece].view_as(p), grads[piece].view_as(p)
        start += p.numel()
    pieces = [(flat, grads)] if repaired else [(p.data, p.grad) for p in parameters]
    x = torch.randn(2, batch, width, device=device)
    return model, Lion(pieces), grads, x


def run(state, steps, repaired):
    model, optimizer, grads, x = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        loss = (model(x[step % 2]) - x[step % 2]).square().mean()
        loss.backward()
        optimizer.step()
        grads.zero_()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
