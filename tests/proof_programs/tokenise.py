"""Embeds documents with a bag-of-words encoder; the words are split and looked up for each batch."""

import re

import torch
from common import main
from torch import nn

WORD = re.compile(r"\w+|[^\w\s]")


def tokenise(texts, vocabulary, length):
    rows = []
    for text in texts:
        ids = [
            vocabulary.setdefault(word, len(vocabulary) % 30000)
            for word in WORD.findall(text.lower())
        ][:length]
        rows.append(ids + [0] * (length - len(ids)))
    return torch.tensor(rows)


def prepare(device, repaired):
    words = [f"word{i * 7919 % 20011}" for i in range(20011)]
    count, length, width = (64, 256, 512) if device == "cuda" else (4, 16, 16)
    texts = [
        [
            " ".join(words[(b * 977 + i * 31 + j) % 20011] for j in range(length)) + " ."
            for i in range(count)
        ]
        for b in range(8)
    ]
    vocabulary = {}
    tokens = [tokenise(batch, vocabulary, length) for batch in texts]
    model = nn.Sequential(
        nn.Embedding(30011, width),
        nn.Linear(width, 4 * width),
        nn.GELU(),
        nn.Linear(4 * width, width),
    ).to(device)
    return model, texts, vocabulary, tokens, length, device


@torch.no_grad()
def run(state, steps, repaired):
    model, texts, vocabulary, tokens, length, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        if repaired:
            ids = tokens[step % 8]
        else:
            ids = tokenise(texts[step % 8], vocabulary, length)
        total += model(ids.to(device)).square().mean()
    return total


main(prepare, run, steps=60)
