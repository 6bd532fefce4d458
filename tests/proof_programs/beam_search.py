"""Beam search over a small recurrent language model: eight beams, one step at a time."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, words = (1024, 32000) if device == "cuda" else (16, 50)
    table = nn.Embedding(words, width).to(device)
    cell = nn.GRUCell(width, width).to(device)
    head = nn.Linear(width, words).to(device)
    return table, cell, head, width, words


@torch.no_grad()
def run(state, steps, repaired):
    table, cell, head, width, words = state
    device, beams = table.weight.device, 8
    hidden = torch.zeros(beams, width, device=device)
    tokens = torch.arange(beams, device=device)
    scores = torch.zeros(beams, device=device)
    for _ in range(steps):
        hidden = cell(table(tokens), hidden)
        logits = torch.log_softmax(head(hidden), -1) + scores[:, None]
        if repaired:
            scores, best = logits.flatten().topk(beams)
        else:
            scores, best = logits.flatten().cpu().topk(beams)
            scores, best = scores.to(device), best.to(device)
        hidden, tokens = hidden[best // words], best % words
    return scores.sum()


main(prepare, run, steps=150)
