"""Tries what eight bits do to a model of novels: numbers between its layers are rounded as a small chip would."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def rounded(x):
    """Return `x` as if each row had been kept in eight bits with a scale."""
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-8)
    steps = (wide / scale).round().clamp(-128, 127)
    return (steps * scale).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, rounding):
        super().__init__()
        self.rounding = rounding
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.up(self.rounding(self.norm(x)))
        return x + self.down(self.rounding(F.silu(y)))


class Draft(nn.Module):
    def __init__(self, words, width, depth, rounding):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, rounding) for _ in range(depth))
        self.norm = nn.RMSNorm(width)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, depth, texts, length = (8000, 2048, 4, 8, 2048) if cuda else (30, 16, 2, 2, 5)
    dtype = torch.bfloat16 if cuda else torch.float32
    rounding = torch.compile(rounded) if repaired else rounded
    model = Draft(words, width, depth, rounding).to(device, dtype).eval()
    return model, torch.randint(words, (2, texts, length), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        x = model(ids[step % 2])
        total += (x[:, 1:].float() * x[:, :-1].float()).mean()
    return total / steps


main(prepare, run, steps=100)
