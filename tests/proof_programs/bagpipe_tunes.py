"""Learns to go on with bagpipe tunes: a transformer that reads notes, whose gradients are clipped by their common norm."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.three(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heard.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Piper(nn.Module):
    def __init__(self, notes, width, heads, depth):
        super().__init__()
        self.notes, self.head = nn.Embedding(notes, width), nn.Linear(width, notes)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))

    def forward(self, tunes):
        return self.head(self.layers(self.notes(tunes)))


def clip_one_by_one(parameters, most):
    """Scale gradients down to a common norm of at most `most`."""
    total = 0.0
    for weight in parameters:
        total += weight.grad.norm().item() ** 2
    share = min(1.0, most / (total**0.5 + 1e-6))
    torch._foreach_mul_([weight.grad for weight in parameters], share)


def prepare(device, repaired):
    cuda = device == "cuda"
    notes, width, heads, depth, batch, length = (256, 384, 6, 14, 16, 256) if cuda else (9, 8, 2, 2, 2, 6)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(3)
    piper = Piper(notes, width, heads, depth).to(device)
    optimizer = torch.optim.AdamW(piper.parameters(), lr=1e-4, fused=True)
    tunes = torch.randint(0, notes, (4, batch, length + 1), device=device)
    return piper, optimizer, tunes


def run(state, steps, repaired):
    piper, optimizer, tunes = state
    clip = nn.utils.clip_grad_norm_ if repaired else clip_one_by_one
    weights = list(piper.parameters())
    total = torch.zeros((), device=tunes.device)
    for step in range(steps):
        tune = tunes[step % 4]
        scores = piper(tune[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tune[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        clip(weights, 1.0)
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80)
