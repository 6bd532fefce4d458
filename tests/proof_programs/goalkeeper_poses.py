"""Trains a network that finds the joints of goalkeepers in pictures; the target of each joint is a map with a bright spot."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Joints(nn.Module):
    def __init__(self, width, joints):
        super().__init__()
        self.a = nn.Conv2d(3, width, 5, stride=4, padding=2)
        self.b = nn.Conv2d(width, width, 3, padding=1)
        self.c = nn.Conv2d(width, joints, 1)

    def forward(self, pictures):
        return self.c(F.relu(self.b(F.relu(self.a(pictures)))))


class Spots:
    """Draws the maps of targets: a bell of a certain breadth round each joint."""

    def __init__(self, side, breadth, device):
        self.side, self.breadth, self.device = side, breadth, device
        self.scale = np.float32(-1 / (2 * breadth**2))
        self.line = np.arange(side, dtype=np.float32)
        self.places = torch.arange(side, dtype=torch.float32, device=device)

    def on_host(self, joints):
        maps = np.empty((*joints.shape[:2], self.side, self.side), np.float32)
        for number, person in enumerate(joints):
            for joint, (x, y) in enumerate(person):
                across, down = (self.line - x) ** 2, (self.line - y) ** 2
                maps[number, joint] = np.exp((across[None] + down[:, None]) * self.scale)
        return torch.from_numpy(maps).to(self.device)

    def on_gpu(self, joints):
        x, y = torch.from_numpy(joints).to(self.device)[..., None].unbind(2)
        across = torch.exp(-((self.places - x) ** 2) / (2 * self.breadth**2))
        down = torch.exp(-((self.places - y) ** 2) / (2 * self.breadth**2))
        return down[..., :, None] * across[..., None, :]


def prepare(device, repaired):
    batch, joints, side, width = (24, 17, 64, 128) if device == "cuda" else (2, 3, 8, 4)
    model = Joints(width, joints).to(device)
    pictures = torch.rand(4, batch, 3, 4 * side, 4 * side, device=device)
    places = np.random.default_rng(5).uniform(0, side, (32, batch, joints, 2)).astype(np.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=device == "cuda")
    return model, optimizer, pictures, places, Spots(side, 2.0, device)


def run(state, steps, repaired):
    model, optimizer, pictures, places, spots = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        joints = places[step % len(places)]
        target = spots.on_gpu(joints) if repaired else spots.on_host(joints)
        loss = F.mse_loss(model(pictures[step % 4]), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
