"""Talks with several people at once: a recurrent language model whose words lose by being said again."""

import torch
from common import main
from torch import nn

PENALTY = 1.3


def discourage(scores, said):
    """Lower the scores of words that a text has already."""
    for row, words in enumerate(said):
        for word in set(words):
            if scores[row, word] < 0:
                scores[row, word] *= PENALTY
            else:
                scores[row, word] /= PENALTY
    return scores


def discourage_all(scores, said):
    score = scores.gather(1, said)
    return scores.scatter(1, said, torch.where(score < 0, score * PENALTY, score / PENALTY))


def prepare(device, repaired):
    words, width, depth, people = (32000, 1024, 3, 6) if device == "cuda" else (40, 8, 1, 2)
    with torch.device(device):
        model = nn.ModuleDict(
            {
                "table": nn.Embedding(words, width),
                "cells": nn.ModuleList(nn.GRUCell(width, width) for _ in range(depth)),
                "head": nn.Linear(width, words),
            }
        )
    return model.eval(), torch.zeros(depth, people, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, start = state
    hidden = list(start.unbind(0))
    tokens = torch.arange(start.shape[1], device=start.device)
    said, total = tokens[:, None], 0
    for _ in range(steps):
        x = model["table"](tokens)
        for level, cell in enumerate(model["cells"]):
            hidden[level] = x = cell(x, hidden[level])
        scores = model["head"](x)
        scores = discourage_all(scores, said) if repaired else discourage(scores, said.tolist())
        best, tokens = scores.max(-1)
        said = torch.cat([said, tokens[:, None]], 1)
        total = total + best.mean()
    return total / steps


main(prepare, run, steps=36)
