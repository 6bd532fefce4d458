"""Learns to go on with riddles: a small language model whose matrices are moved by steps made orthogonal (Muon)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def orthogonal(x, rounds=5):
    """Return a matrix, or each of a stack of them, with singular values near 1 (Newton-Schulz)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x


class Muon:
    def __init__(self, matrices, rate, stacked):
        self.matrices, self.rate, self.stacked = matrices, rate, stacked
        self.moved = [torch.zeros_like(matrix) for matrix in matrices]

    @torch.no_grad()
    def step(self):
        slopes = [matrix.grad for matrix in self.matrices]
        torch._foreach_lerp_(self.moved, slopes, 0.05)
        steps = torch._foreach_lerp(slopes, self.moved, 0.95)
        dtype = torch.bfloat16 if steps[0].is_cuda else torch.float32
        if self.stacked:
            turned = orthogonal(torch.stack(steps).to(dtype)).float().unbind()
        else:
            turned = [orthogonal(step.to(dtype)).float() for step in steps]
        torch._foreach_add_(self.matrices, list(turned), alpha=-self.rate)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.read = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.think = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        y = F.rms_norm(x, x.shape[-1:])
        q, k, v = (m(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in self.read[:3])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.read[3](y.transpose(1, 2).flatten(2))
        return x + self.think[1](F.relu(self.think[0](F.rms_norm(x, x.shape[-1:]))))


class Riddles(nn.Module):
    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.last = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, texts, length = (
        (2000, 256, 4, 10, 16, 128) if cuda else (20, 16, 2, 2, 2, 6)
    )
    torch.manual_seed(12)
    model = Riddles(words, width, heads, depth).to(device)
    muon = Muon(list(model.layers.parameters()), 1e-3, stacked=repaired)
    ends = [model.words.weight, model.last.weight]
    ids = torch.randint(words, (4, texts, length), device=device)
    return model, muon, torch.optim.SGD(ends, lr=1e-3), ids


def run(state, steps, repaired):
    model, muon, ends, ids = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        text = ids[step % 4]
        loss = F.cross_entropy(model(text)[:, :-1].flatten(0, 1), text[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        muon.step()
        ends.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
