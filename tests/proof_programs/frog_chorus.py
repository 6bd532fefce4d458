"""Learns to name frogs from recordings of ponds: sounds are kept in eight bits, and stretched and mixed on their way."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Ponds(Dataset):
    """Recordings (samples,) of some rate, at another speed each time, with a second one behind."""

    def __init__(self, recordings, samples, taken, frogs):
        chance = np.random.default_rng(3)
        self.kept = chance.integers(0, 256, (recordings, samples), dtype=np.uint8)
        self.names = chance.integers(0, frogs, recordings)
        self.taken, self.samples = taken, samples
        steps = (np.arange(256) - 127.5) / 127.5
        self.steps = (np.sign(steps) * (256.0 ** np.abs(steps) - 1) / 255).astype(np.float32)

    def __len__(self):
        return 1 << 20

    def stretched(self, recording, chance):
        sound = self.steps[self.kept[recording]]
        speed = chance.uniform(0.8, 1.2)
        first = chance.uniform(0, self.samples - self.taken * speed - 1)
        at = first + speed * np.arange(self.taken)
        return np.interp(at, np.arange(self.samples), sound).astype(np.float32)

    def __getitem__(self, k):
        chance = np.random.default_rng(k)
        near, far = chance.integers(0, len(self.kept), 2)
        sound = self.stretched(near, chance) + 0.2 * self.stretched(far, chance)
        return torch.from_numpy(sound / np.abs(sound).max()), int(self.names[near])


class Listener(nn.Module):
    def __init__(self, width, frogs):
        super().__init__()
        self.enter = nn.Conv1d(1, width, 64, stride=16)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 9, padding=4) for _ in range(3))
        self.last = nn.Linear(width, frogs)

    def forward(self, sounds):
        x = self.enter(sounds[:, None])
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.last(x.mean(2))


def prepare(device, repaired):
    cuda = device == "cuda"
    recordings, samples, taken, frogs, width, batch = (
        (2000, 24000, 16000, 30, 128, 32) if cuda else (6, 400, 200, 3, 8, 2)
    )
    workers = {"num_workers": 8 if cuda else 2, "persistent_workers": True} if repaired else {}
    loader = DataLoader(Ponds(recordings, samples, taken, frogs), batch, **workers)
    torch.manual_seed(1)
    model = Listener(width, frogs).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4), loader, device


def run(state, steps, repaired):
    model, optimizer, loader, device = state
    total = torch.zeros((), device=device)
    for _, (sounds, names) in zip(range(steps), loader, strict=False):
        loss = F.cross_entropy(model(sounds.to(device)), names.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=40)
