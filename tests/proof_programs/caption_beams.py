"""Describes pictures in words: beams of a recurrent decoder, whose hypotheses are managed step by step."""

import torch
from common import main
from torch import nn

BEAMS = 8


class Describer(nn.Module):
    """A GRU that knows the features of its picture."""

    def __init__(self, features, words, width):
        super().__init__()
        self.start, self.table = nn.Linear(features, width), nn.Embedding(words, width)
        self.cell, self.out = nn.GRUCell(width, width), nn.Linear(width, words)

    def forward(self, words, h):
        h = self.cell(self.table(words), h)
        return self.out(h).log_softmax(1), h


def choose_in_lists(logs, totals, device):
    """Return beams, words and totals of the best hypotheses: all candidates as tuples, sorted for each picture."""
    best, words = logs.topk(BEAMS, dim=1)
    best, words = best.tolist(), words.tolist()
    parents, chosen, sums = [], [], []
    for picture in range(len(totals)):
        candidates = []
        for beam in range(BEAMS):
            row = picture * BEAMS + beam
            for log, word in zip(best[row], words[row], strict=True):
                candidates.append((totals[picture][beam] + log, row, word))
        candidates.sort(key=lambda candidate: -candidate[0])
        sums.append([candidate[0] for candidate in candidates[:BEAMS]])
        parents += [candidate[1] for candidate in candidates[:BEAMS]]
        chosen += [candidate[2] for candidate in candidates[:BEAMS]]
    return torch.tensor(parents, device=device), torch.tensor(chosen, device=device), sums


def choose_at_once(logs, totals, device):
    """Return the same from one topk over the words of all beams of a picture."""
    size = logs.shape[1]
    sums, at = (totals.view(-1, BEAMS, 1) + logs.view(-1, BEAMS, size)).flatten(1).topk(BEAMS)
    first = torch.arange(len(at), device=device)[:, None] * BEAMS
    return (first + at // size).flatten(), (at % size).flatten(), sums


def prepare(device, repaired):
    features, words, width, pictures, length = (
        (2048, 10000, 512, 48, 24) if device == "cuda" else (8, 40, 16, 2, 4)
    )
    model = Describer(features, words, width).to(device).eval()
    with torch.no_grad():
        model.out.weight *= 6
    return model, torch.randn(4, pictures, features, device=device), length


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures, length = state
    device, total = pictures.device, 0.0
    for step in range(steps):
        h = torch.tanh(model.start(pictures[step % 4])).repeat_interleave(BEAMS, 0)
        words = torch.arange(BEAMS, device=device).repeat(pictures.shape[1])
        totals = torch.zeros(pictures.shape[1], BEAMS, device=device)
        totals = totals if repaired else totals.tolist()
        for _ in range(length):
            logs, h = model(words, h)
            choose = choose_at_once if repaired else choose_in_lists
            parents, words, totals = choose(logs, totals, device)
            h = h[parents]
        total += float(torch.as_tensor(totals).mean())
    return total / steps


main(prepare, run, steps=16)
