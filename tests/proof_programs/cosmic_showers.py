"""Tells what particle made a shower in the air from the stations that it hit, hundreds to thousands for a shower."""

import itertools

import numpy as np
import torch
from common import main
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Showers(Dataset):
    """Hits of a shower: where, when and how strong."""

    def __init__(self, hits, begins):
        self.hits, self.begins = hits, begins

    def __getitem__(self, at):
        at %= len(self.begins) - 1
        return self.hits[self.begins[at] : self.begins[at + 1]]


def each_alone(showers):
    return [torch.from_numpy(hits) for hits in showers]


def end_to_end(showers):
    many = torch.tensor([len(hits) for hits in showers])
    return torch.from_numpy(np.concatenate(showers)), many


def joined(showers):
    """Return all hits of a batch in one tensor, and how many each shower has."""
    return torch.cat(showers), torch.tensor([len(hits) for hits in showers])


class Particle(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 5)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, hits, many):
        x = torch.relu(self.first(hits))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(torch.segment_reduce(x, "mean", lengths=many, unsafe=True))


def numbers(batch):
    return ([step * batch + at for at in range(batch)] for step in itertools.count())


def prepare(device, repaired):
    cuda = device == "cuda"
    count, batch, most, width, depth = (2048, 128, 3000, 512, 6) if cuda else (12, 4, 9, 8, 2)
    random = np.random.default_rng(0)
    begins = np.concatenate([[0], random.integers(most // 3, most, count).cumsum()])
    hits = random.standard_normal((begins[-1], 4), dtype=np.float32)
    loader = DataLoader(
        Showers(hits, begins),
        batch_sampler=numbers(batch),
        num_workers=4 if cuda else 1,
        collate_fn=end_to_end if repaired else each_alone,
        pin_memory=cuda and repaired,
    )
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = True
    return Particle(width, depth).to(device).eval(), iter(loader), device


@torch.inference_mode()
def run(state, steps, repaired):
    model, batches, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        batch = next(batches)
        hits, many = batch if repaired else joined(batch)
        hits, many = hits.to(device, non_blocking=True), many.to(device, non_blocking=True)
        total += model(hits, many).square().mean()
    return total / steps


main(prepare, run, steps=40)
