"""Serves requests for poems: each asks for its own temperature and for how many words may be drawn from."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Poet(nn.Module):
    def __init__(self, words, width, depth):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, words)

    def forward(self, word, memory):
        x = self.table(word) + memory
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.last(x), torch.tanh(x)


class Draw:
    """Draws a word for each request by adding noise to the scores of its best words."""

    def __init__(self, wishes, noise):
        self.wishes, self.noise = wishes, noise
        device = noise.device
        self.heat = torch.tensor([heat for heat, _ in wishes], device=device)[:, None]
        self.counts = torch.tensor([count for _, count in wishes], device=device)[:, None]
        self.most = max(count for _, count in wishes)
        self.places = torch.arange(self.most, device=device)

    def one_by_one(self, scores, step):
        drawn = []
        for number, (heat, count) in enumerate(self.wishes):
            best, words = torch.topk(scores[number], count)
            chances = torch.log_softmax(best / heat, 0)
            drawn.append(words.take((chances + self.noise[step, number, :count]).argmax()))
        return torch.stack(drawn)

    def together(self, scores, step):
        best, words = torch.topk(scores, self.most)
        best = (best / self.heat).masked_fill(self.places >= self.counts, -torch.inf)
        chances = torch.log_softmax(best, 1) + self.noise[step]
        return words.gather(1, chances.argmax(1, keepdim=True))[:, 0]


def prepare(device, repaired):
    words, width, depth, requests, most = (
        (16384, 1024, 24, 48, 64) if device == "cuda" else (64, 16, 2, 4, 8)
    )
    model = Poet(words, width, depth).to(device).eval()
    wishes = [(0.7 + 0.01 * (k % 30), most - k % (most // 2)) for k in range(requests)]
    chance = torch.rand(16, requests, most, device=device)
    return model, Draw(wishes, -torch.log(-torch.log(chance * 0.98 + 0.01))), requests, width


@torch.inference_mode()
def run(state, steps, repaired):
    model, draw, requests, width = state
    device = draw.noise.device
    word = torch.arange(requests, device=device)
    memory = torch.zeros(requests, width, device=device)
    total = torch.zeros((), device=device)
    for step in range(steps):
        scores, memory = model(word, memory)
        if repaired:
            word = draw.together(scores, step % 16)
        else:
            word = draw.one_by_one(scores, step % 16)
        total += scores.square().mean()
    return total / steps


main(prepare, run, steps=400, small=6)
