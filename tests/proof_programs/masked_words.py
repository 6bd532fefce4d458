"""Trains a small BERT: some words of each text are hidden, and the model guesses them."""

import random

import torch
from common import main
from torch import nn
from torch.nn import functional as F

HIDDEN, IGNORE = 1, -100


def hide(texts, words, generator):
    """Return texts with 15 % of their words hidden (of those, 10 % another word, 10 % as they are), and the words."""
    inputs, wanted = [], []
    for text in texts:
        row, labels = [], []
        for token in text:
            if generator.random() < 0.15:
                labels.append(token)
                dice = generator.random()
                row.append(
                    HIDDEN if dice < 0.8 else generator.randrange(words) if dice < 0.9 else token
                )
            else:
                labels.append(IGNORE)
                row.append(token)
        inputs.append(row)
        wanted.append(labels)
    return torch.tensor(inputs), torch.tensor(wanted)


def hide_at_once(texts, words):
    """Return the same for a tensor, by operations on all of it."""
    chosen = torch.rand(texts.shape, device=texts.device) < 0.15
    dice = torch.rand(texts.shape, device=texts.device)
    other = torch.randint(words, texts.shape, device=texts.device)
    inputs = torch.where(chosen & (dice < 0.8), HIDDEN, texts)
    inputs = torch.where(chosen & (dice >= 0.8) & (dice < 0.9), other, inputs)
    return inputs, torch.where(chosen, texts, IGNORE)


def prepare(device, repaired):
    words, width, depth, batch, length = (
        (8192, 384, 4, 48, 256) if device == "cuda" else (64, 16, 1, 4, 32)
    )
    layer = nn.TransformerEncoderLayer(
        width,
        width // 16 if width < 64 else 6,
        4 * width,
        dropout=0.0,
        batch_first=True,
        activation="gelu",
    )
    model = nn.Sequential(
        nn.Embedding(words, width),
        nn.TransformerEncoder(layer, depth, enable_nested_tensor=False),
        nn.Linear(width, words),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    texts = torch.randint(2, words, (8, batch, length))
    return model, optimizer, texts.to(device) if repaired else texts.tolist(), words, device


def run(state, steps, repaired):
    model, optimizer, texts, words, device = state
    generator = random.Random(0)
    total = torch.zeros((), device=device)
    for step in range(steps):
        batch = texts[step % 8]
        inputs, wanted = hide_at_once(batch, words) if repaired else hide(batch, words, generator)
        inputs, wanted = inputs.to(device), wanted.to(device)
        with torch.autocast(device, torch.bfloat16):
            guesses = model(inputs)
        loss = F.cross_entropy(guesses.float().flatten(0, 1), wanted.flatten(), ignore_index=IGNORE)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=100, small=8)
