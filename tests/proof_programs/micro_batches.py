"""Trains a small language model; the script was made for a small GPU and still goes text by text."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """A decoder whose next word depends on the words before."""

    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.layers(self.words(ids), mask=mask, is_causal=True))


def prepare(device, repaired):
    texts, length, width, layers = (16, 128, 512, 6) if device == "cuda" else (4, 16, 32, 2)
    model = Model(4000, width, 8, layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ids = torch.randint(4000, (texts, length + 1), device=device)
    return model, optimizer, ids, texts if repaired else 1


def update(model, optimizer, ids, at_once):
    """Make one step of the optimizer; `at_once` texts go through the model at a time."""
    optimizer.zero_grad()
    total = 0
    for texts in ids.split(at_once):
        with torch.autocast(ids.device.type, torch.bfloat16):
            scores = model(texts[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), texts[:, 1:].flatten())
        loss = loss * len(texts) / len(ids)
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


def run(state, steps, repaired):
    for _ in range(steps):
        loss = update(*state)
    return loss


main(prepare, run, steps=5)
