"""Answers questions of citizens for a town hall: each request may make some words likelier, or forbid them."""

import random

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, words, width, depth):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, word, memory):
        x = self.words(word) + memory
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(F.silu(up(norm(x))))
        return self.head(x).float(), x


class Sampler:
    def __init__(self, wishes, device):
        self.wishes, self.device = wishes, device

    def one_by_one(self, logits):
        for row, wish in enumerate(self.wishes):
            for word, bias in wish.items():
                logits[row, word] += bias
        return logits

    def all_at_once(self, logits):
        rows = [row for row, wish in enumerate(self.wishes) for _ in wish]
        words = [word for wish in self.wishes for word in wish]
        biases = [bias for wish in self.wishes for bias in wish.values()]
        at = torch.tensor([rows, words]).to(self.device)
        values = torch.tensor(biases, dtype=logits.dtype).to(self.device)
        return logits.index_put_((at[0], at[1]), values, accumulate=True)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, depth, requests, most = (32000, 2048, 12, 32, 16) if cuda else (50, 16, 2, 3, 4)
    dtype = torch.bfloat16 if cuda else torch.float32
    model = Model(words, width, depth).to(device, dtype).eval()
    chance = random.Random(5)
    wishes = [
        {
            word: chance.choice((-100.0, 2.0, 4.0))
            for word in chance.sample(range(words), chance.randint(1, most))
        }
        for _ in range(requests)
    ]
    sampler = Sampler(wishes, device)
    start = torch.randint(words, (requests,), device=device)
    return model, sampler.all_at_once if repaired else sampler.one_by_one, start


@torch.inference_mode()
def run(state, steps, repaired):
    model, wish, word = state
    memory = torch.zeros_like(model.words(word))
    total = torch.zeros((), device=word.device)
    for _ in range(steps):
        logits, memory = model(word, 0.5 * memory)
        best, word = wish(logits).max(-1)
        total += best.mean()
    return total / steps


main(prepare, run, steps=120)
