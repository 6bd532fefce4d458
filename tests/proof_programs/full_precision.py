"""Trains the feed-forward half of a transformer on random tokens."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def prepare(device, repaired):
    width, tokens, layers = (2048, 8192, 4) if device == "cuda" else (16, 8, 2)
    model = nn.Sequential(*(Block(width) for _ in range(layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens, width, device=device)
    return model, optimizer, x, torch.randn_like(x)


def run(state, steps, repaired):
    model, optimizer, x, target = state
    for _ in range(steps):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=repaired):
            loss = F.mse_loss(model(x).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=3)
