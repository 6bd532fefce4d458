"""Learns what to do with a parcel from the note on it: a small reader of notes, which are a few dozen words long."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Notes:
    """Notes of some words each, and what was done with the parcel."""

    def __init__(self, notes, words, shortest, longest, deeds):
        chance = np.random.default_rng(21)
        lengths = chance.integers(shortest, longest + 1, notes)
        self.notes = [chance.integers(1, words, length) for length in lengths]
        self.deeds = chance.integers(0, deeds, notes)

    def batch(self, step, size):
        picked = np.random.default_rng(step).integers(0, len(self.notes), size)
        return [self.notes[k] for k in picked], self.deeds[picked]


def padded(notes, limit, to_limit):
    """Return words (notes, width), with 0 where a note has ended."""
    width = limit if to_limit else max(map(len, notes))
    ids = np.zeros((len(notes), width), dtype=np.int64)
    for row, note in zip(ids, notes, strict=True):
        row[: len(note)] = note
    return torch.from_numpy(ids)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Reader(nn.Module):
    def __init__(self, words, width, heads, depth, limit, deeds):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(limit, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.last = nn.Linear(width, deeds)

    def forward(self, ids):
        mask = ids > 0
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        shares = mask[..., None] / mask.sum(1)[:, None, None]
        return self.last((x * shares).sum(1))


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, limit, deeds, batch = (
        (20000, 512, 8, 6, 512, 12, 64) if cuda else (40, 16, 2, 2, 24, 3, 3)
    )
    notes = Notes(5000, words, 20, 90, deeds) if cuda else Notes(9, words, 3, 9, deeds)
    torch.manual_seed(22)
    model = Reader(words, width, heads, depth, limit, deeds).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return notes, model, optimizer, limit, batch, device


def run(state, steps, repaired):
    notes, model, optimizer, limit, batch, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        texts, deeds = notes.batch(step, batch)
        ids = padded(texts, limit, to_limit=not repaired).to(device)
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.is_cuda):
            scores = model(ids)
        loss = F.cross_entropy(scores.float(), torch.from_numpy(deeds).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=40)
