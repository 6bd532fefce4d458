"""Trains a reader of stage plays with an optimizer of its own: signs of a slow mean of the gradients, and decay of weights."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-6, betas=(0.9, 0.99), decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "decay": decay})

    def _moments(self, params):
        for p in params:
            if not self.state[p]:
                self.state[p]["moment"] = torch.zeros_like(p)
        return [self.state[p]["moment"] for p in params]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            self.update(params, grads, self._moments(params), group)

    def update(self, params, grads, moments, group):
        first, second = group["betas"]
        for p, grad, moment in zip(params, grads, moments, strict=True):
            p.mul_(1 - group["lr"] * group["decay"])
            way = (moment * first).add_(grad, alpha=1 - first).sign_()
            p.add_(way, alpha=-group["lr"])
            moment.mul_(second).add_(grad, alpha=1 - second)


class ListSignMomentum(SignMomentum):
    def update(self, params, grads, moments, group):
        first, second = group["betas"]
        torch._foreach_mul_(params, 1 - group["lr"] * group["decay"])
        ways = torch._foreach_mul(moments, first)
        torch._foreach_add_(ways, grads, alpha=1 - first)
        torch._foreach_add_(params, torch._foreach_sign(ways), alpha=-group["lr"])
        torch._foreach_mul_(moments, second)
        torch._foreach_add_(moments, grads, alpha=1 - second)


class Reader(nn.Module):
    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, lines, length = (
        (2000, 256, 4, 20, 16, 64) if cuda else (30, 8, 2, 2, 3, 6)
    )
    torch.set_float32_matmul_precision("high")
    model = Reader(words, width, heads, depth).to(device)
    optimizer = (ListSignMomentum if repaired else SignMomentum)(model.parameters())
    return model, optimizer, torch.randint(words, (8, lines, length), device=device)


def run(state, steps, repaired):
    model, optimizer, plays = state
    total = torch.zeros((), device=plays.device)
    for step in range(steps):
        ids = plays[step % len(plays)]
        scores = model(ids[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=50)
