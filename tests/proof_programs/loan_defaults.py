"""Judges which loans will not be paid back, and how well that is judged: how often a bad one is rated above a good one."""

import torch
from common import main
from torch import nn


class Quality:
    """The area under the curve of all judgements."""

    def __init__(self, at_end):
        self.at_end = at_end
        self.value = None
        self.clear()

    def clear(self):
        self.scores, self.bad = [], []

    def add(self, scores, bad):
        self.scores.append(scores)
        self.bad.append(bad)
        if not self.at_end:
            self.value = self.area()

    def area(self):
        order = torch.cat(self.scores).argsort()
        bad = torch.cat(self.bad)[order].double()
        places = torch.arange(1, len(bad) + 1, device=bad.device)
        many = bad.sum()
        return ((bad * places).sum() - many * (many + 1) / 2) / (many * (len(bad) - many))


def prepare(device, repaired):
    count, features, width = (16384, 96, 768) if device == "cuda" else (40, 5, 6)
    model = nn.Sequential(
        nn.Linear(features, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, 1),
    ).to(device)
    loans = torch.randn(8, count, features, device=device)
    bad = torch.rand(8, count, device=device) < torch.sigmoid(loans[..., 0] - 2)
    return model.eval(), Quality(at_end=repaired), loans, bad


@torch.inference_mode()
def run(state, steps, repaired):
    model, quality, loans, bad = state
    quality.clear()
    for step in range(steps):
        scores = model(loans[step % 8])[:, 0] + loans[step % 8, :, 0] / 4 + step * 1e-7
        quality.add(scores, bad[step % 8])
    return quality.area() if repaired else quality.value


main(prepare, run, steps=500)
