"""Sorts treaties by subject from a mixture of all layers of an encoder, with a learned weight for each of them (ELMo's)."""

import torch
from common import main
from torch import nn


class Mixture(nn.Module):
    """Adds the layers up one after another, or with one product."""

    def __init__(self, layers, at_once):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(layers) / 4)
        self.scale = nn.Parameter(torch.ones(()))
        self.at_once = at_once

    def forward(self, layers):
        shares = self.weights.softmax(0) * self.scale
        if self.at_once:
            return torch.mv(layers.flatten(1).T, shares).view(layers.shape[1:])
        mixed = torch.zeros_like(layers[0])
        for share, layer in zip(shares, layers, strict=True):
            mixed = mixed + share * layer
        return mixed


class Subjects(nn.Module):
    def __init__(self, layers, width, subjects, at_once):
        super().__init__()
        self.mixture = Mixture(layers, at_once)
        self.hidden, self.last = nn.Linear(width, width), nn.Linear(width, subjects)

    def forward(self, layers):
        words = torch.tanh(self.hidden(self.mixture(layers)))
        return self.last(words.mean(1))


def prepare(device, repaired):
    layers, width, texts, words = (13, 768, 32, 384) if device == "cuda" else (4, 8, 2, 5)
    model = Subjects(layers, width, 40, at_once=repaired).to(device).eval()
    # what the frozen encoder gave, kept from an earlier pass
    return model, torch.randn(2, layers, texts, words, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, encoded = state
    total = torch.zeros((), device=encoded.device)
    for step in range(steps):
        total += model(encoded[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=1000)
