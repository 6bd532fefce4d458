"""Learns to find cars on parking lots; pictures of a batch hold different numbers of cars."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Targets:
    """Packs the cars of all pictures (picture, kind, box) into one tensor with a row for each picture."""

    def __init__(self, pictures, most, at_once):
        self.pictures, self.most, self.at_once = pictures, most, at_once

    def preprocess(self, targets):
        batch_idx = targets[:, 0].long()
        out = torch.zeros(self.pictures, self.most, 5, device=targets.device)
        if self.at_once:
            counts = torch.zeros(self.pictures + 1, dtype=torch.long, device=targets.device)
            counts.scatter_add_(0, batch_idx + 1, torch.ones_like(batch_idx))
            offsets = counts.cumsum(0)
            within_idx = torch.arange(len(targets), device=targets.device) - offsets[batch_idx]
            out[batch_idx, within_idx] = targets[:, 1:]
            return out
        for j in range(self.pictures):
            matches = batch_idx == j
            if n := int(matches.sum()):
                out[j, :n] = targets[matches, 1:]
        return out


class Lots(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, stride=4, padding=3)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Conv2d(width, 5, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.last(F.adaptive_avg_pool2d(x, 10)).flatten(2).transpose(1, 2)


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, size, width, depth, most = (64, 192, 128, 4, 100) if cuda else (3, 24, 4, 1, 100)
    model = Lots(width, depth).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    pictures = torch.rand(batch, 3, size, size, device=device)
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    cars = []
    for _ in range(4):
        picture = torch.arange(batch).repeat_interleave(torch.randint(1, most, (batch,)))
        cars.append(torch.cat([picture[:, None], torch.rand(len(picture), 5)], 1).to(device))
    return model, optimizer, Targets(batch, most, at_once=repaired), pictures, cars


def run(state, steps, repaired):
    model, optimizer, packing, pictures, cars = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        with torch.autocast(pictures.device.type, torch.bfloat16):
            guess = model(pictures)
        wanted = packing.preprocess(cars[step % 4])
        there = (wanted.sum(2, keepdim=True) > 0).float()
        loss = (F.smooth_l1_loss(guess.float(), wanted, reduction="none") * there).sum()
        loss = loss / there.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
