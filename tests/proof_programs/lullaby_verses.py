"""Learns from which village a lullaby comes: its words, their tones and lengths, batch by batch from a collection."""

import random

import torch
from common import main
from torch import nn
from torch.nn import functional as F

FIELDS = ("word", "tone", "length")


class ListedSongs:
    """Songs as they were read: for each a list of numbers by field."""

    def __init__(self, table):
        self.songs = [dict(zip(FIELDS, song, strict=True)) for song in table.tolist()]

    def __getitem__(self, numbers):
        some = [self.songs[number] for number in numbers]
        return torch.tensor([[song[field] for field in FIELDS] for song in some])


class TabledSongs:
    """The same songs as one table (songs, fields, moments)."""

    def __init__(self, table):
        self.table = table

    def __getitem__(self, numbers):
        return self.table[torch.tensor(numbers)]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Listener(nn.Module):
    def __init__(self, sizes, width, heads, depth, villages):
        super().__init__()
        self.fields = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, villages)

    def forward(self, songs):
        x = sum(field(songs[:, at]) for at, field in enumerate(self.fields))
        return self.head(self.layers(x).mean(1))


def prepare(device, repaired):
    cuda = device == "cuda"
    sizes = (6000, 48, 16) if cuda else (12, 5, 3)
    songs, batch, moments = (640, 32, 1024) if cuda else (8, 2, 5)
    width, heads, depth, villages = (256, 4, 3, 40) if cuda else (8, 2, 2, 3)
    torch.manual_seed(33)
    listener = Listener(sizes, width, heads, depth, villages)
    listener = listener.to(device, torch.bfloat16 if cuda else torch.float32)
    optimizer = torch.optim.AdamW(listener.parameters(), lr=1e-4, fused=True)
    table = torch.stack([torch.randint(0, size, (songs, moments)) for size in sizes], 1)
    homes = torch.randint(0, villages, (songs // batch, batch), device=device)
    order = random.Random(33).sample(range(songs), songs)
    return listener, optimizer, TabledSongs(table) if repaired else ListedSongs(table), homes, order


def run(state, steps, repaired):
    listener, optimizer, songs, homes, order = state
    batches, batch = homes.shape
    total = torch.zeros((), device=homes.device)
    for step in range(steps):
        at = step % batches
        some = songs[order[at * batch : (at + 1) * batch]]
        if homes.is_cuda:
            some = some.pin_memory().to(homes.device, non_blocking=True)
        loss = F.cross_entropy(listener(some).float(), homes[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80)
