"""Trains a small model of lyrics with a large vocabulary."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Lyrics(nn.Module):
    """Guesses the next word from the last ones, which are mixed by a convolution that sees none to come."""

    def __init__(self, words, width, careful):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.mix = nn.Conv1d(width, width, 4, padding=3)
        self.last = nn.Linear(width, words, bias=False)
        self.careful = careful

    def forward(self, text):
        x = self.table(text)
        x = x + F.gelu(self.mix(x.transpose(1, 2))[..., : text.shape[1]].transpose(1, 2))
        scores = self.last(x[:, :-1]).flatten(0, 1)
        if self.careful:
            scores = scores.float()
        return F.cross_entropy(scores, text[:, 1:].flatten(), reduction="none").float().mean()


def prepare(device, repaired):
    words, width, batch, length = (65536, 384, 16, 513) if device == "cuda" else (80, 16, 2, 9)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Lyrics(words, width, careful=not repaired).to(device, dtype)
    text = torch.randint(words, (8, batch, length), device=device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4, fused=device == "cuda"), text


def run(state, steps, repaired):
    model, optimizer, text = state
    total = torch.zeros((), device=text.device)
    for step in range(steps):
        loss = model(text[step % 8])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=140)
