"""Translates guides to trails with layers of which each language has a copy of its own."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Language(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class Languages(nn.Module):
    """Which language a sentence has is known on the host, where batches are made."""

    def __init__(self, width, count, only_own):
        super().__init__()
        self.languages = nn.ModuleList(Language(width) for _ in range(count))
        self.only_own = only_own

    def chosen(self, x, spoken):
        """Compute all languages for all sentences, and choose."""
        y = torch.zeros_like(x)
        for number, language in enumerate(self.languages):
            mask = (spoken == number)[:, None, None]
            y = torch.where(mask, language(x), y)
        return y

    def own(self, x, members):
        """Compute each language for its sentences."""
        y = torch.empty_like(x)
        for number, language in enumerate(self.languages):
            y.index_copy_(0, members[number], language(x.index_select(0, members[number])))
        return y

    def forward(self, x, spoken, members):
        return x + (self.own(x, members) if self.only_own else self.chosen(x, spoken))


def prepare(device, repaired):
    width, count, depth, sentences, words = (
        (768, 5, 2, 60, 128) if device == "cuda" else (8, 3, 2, 6, 4)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(Languages(width, count, only_own=repaired) for _ in range(depth))
    spoken = torch.arange(sentences)[torch.randperm(sentences)] % count
    members = [(spoken == number).nonzero()[:, 0].to(device) for number in range(count)]
    x = torch.randn(2, sentences, words, width, device=device, dtype=dtype)
    return layers.to(device, dtype).eval(), x, spoken.to(device), members


@torch.inference_mode()
def run(state, steps, repaired):
    layers, guides, spoken, members = state
    total = torch.zeros((), device=guides.device)
    for step in range(steps):
        x = guides[step % 2]
        for layer in layers:
            x = layer(x, spoken, members)
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=700)
