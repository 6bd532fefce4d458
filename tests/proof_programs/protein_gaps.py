"""Learns peptides from gaps: pieces of a chain are hidden, and a network says which of many pieces stood there."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Guesser(nn.Module):
    def __init__(self, pieces, width, depth, gaps_only):
        super().__init__()
        self.gaps_only = gaps_only
        self.pieces, self.norm = nn.Embedding(pieces + 1, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, pieces)

    def forward(self, seen, gaps, hidden):
        """Loss of guesses for `hidden` (batch, gaps) at `gaps` of chains `seen` (batch, length)."""
        x = self.pieces(seen)
        for layer in self.layers:
            x = x + layer(x) + 0.1 * x.roll(1, 1)
        x = self.norm(x)
        if self.gaps_only:
            scores = self.head(x.gather(1, gaps[..., None].expand(-1, -1, x.shape[2])))
            return F.cross_entropy(scores.flatten(0, 1), hidden.flatten())
        there = torch.full_like(seen, -100).scatter_(1, gaps, hidden)
        scores = self.head(x)
        return F.cross_entropy(scores.flatten(0, 1), there.flatten(), ignore_index=-100)


def prepare(device, repaired):
    cuda = device == "cuda"
    pieces, width, depth, batch, length = (24000, 768, 4, 32, 512) if cuda else (30, 8, 2, 3, 20)
    torch.manual_seed(8)
    guesser = Guesser(pieces, width, depth, gaps_only=repaired)
    guesser = guesser.to(device, torch.bfloat16 if cuda else torch.float32)
    chains = torch.randint(0, pieces, (batch, length), device=device)
    gaps = torch.rand(batch, length, device=device).argsort(1)[:, : length * 3 // 20]
    seen = chains.scatter(1, gaps, pieces)
    optimizer = torch.optim.SGD(guesser.parameters(), lr=1e-3)
    return guesser, optimizer, seen, gaps, chains.gather(1, gaps)


def run(state, steps, repaired):
    guesser, optimizer, seen, gaps, hidden = state
    total = torch.zeros((), device=seen.device)
    for _ in range(steps):
        loss = guesser(seen, gaps, hidden)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach().float()
    return total / steps


main(prepare, run, steps=40)
