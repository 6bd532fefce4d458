"""Finds a title for each recipe from the words in it, of fifty thousand that there are."""

import numpy as np
import torch
import torch.nn.functional as F
from common import main
from torch import nn


class Recipes:
    """Words of all recipes, one recipe after another, and where each of them begins."""

    def __init__(self, words, begins, vocabulary, device, listed):
        self.words, self.begins = torch.from_numpy(words), torch.from_numpy(begins)
        self.vocabulary, self.device, self.listed = vocabulary, device, listed
        if device == "cuda":
            self.words, self.begins = self.words.pin_memory(), self.begins.pin_memory()

    def bags(self, at, many):
        """Return how often each word is in each recipe, as a matrix or as the words themselves."""
        begins = self.begins[at : at + many + 1]
        words = self.words[begins[0] : begins[-1]]
        if self.listed:
            sent = words.to(self.device, non_blocking=True)
            return sent, begins.to(self.device, non_blocking=True)[:-1] - begins[0]
        counts = np.zeros((many, self.vocabulary), np.float32)
        recipe = np.repeat(np.arange(many), np.diff(begins.numpy()))
        np.add.at(counts, (recipe, words.numpy()), 1)
        return (torch.from_numpy(counts).to(self.device),)


class Titles(nn.Module):
    def __init__(self, vocabulary, width, hidden, depth, titles):
        super().__init__()
        self.words = nn.Parameter(torch.randn(vocabulary, width) / 8)
        sizes = [width, *[hidden] * depth, titles]
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))

    def forward(self, counts, begins=None):
        if begins is None:
            x = counts @ self.words
        else:
            x = F.embedding_bag(counts, self.words, begins, mode="sum")
        x = x.to(self.layers[0].weight.dtype)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def prepare(device, repaired):
    cuda = device == "cuda"
    vocabulary, count, many = (50_000, 16_384, 2048) if cuda else (30, 24, 4)
    random = np.random.default_rng(0)
    begins = np.concatenate([[0], random.integers(30, 90, count).cumsum()])
    words = (vocabulary * random.random(begins[-1]) ** 3).astype(np.int64)
    model = Titles(vocabulary, *((512, 4096, 6, 8192) if cuda else (6, 8, 2, 9))).to(device).eval()
    if cuda:
        model.layers.bfloat16()
    return model, Recipes(words, begins, vocabulary, device, listed=repaired), many


@torch.inference_mode()
def run(state, steps, repaired):
    model, recipes, many = state
    total = torch.zeros((), device=recipes.device)
    for step in range(steps):
        bags = recipes.bags(step % 6 * many, many)
        total += model(*bags).float().square().mean()
    return total / steps


main(prepare, run, steps=16)
