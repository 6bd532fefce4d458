"""Classifies frames of video: each batch is normalised on the host before it goes to the GPU."""

import numpy as np
import torch
from common import main
from torch import nn


def prepare(device, repaired):
    torch.set_num_threads(4)
    size, batch = (224, 64) if device == "cuda" else (16, 2)
    frames = np.random.default_rng(0).integers(0, 256, (4, batch, 3, size, size), dtype=np.uint8)
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
    std = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return model.to(device), frames, mean, std, device


@torch.no_grad()
def run(state, steps, repaired):
    model, frames, mean, std, device = state
    total = torch.zeros((), device=device)
    mean_there, std_there = torch.from_numpy(mean).to(device), torch.from_numpy(std).to(device)
    for step in range(steps):
        raw = frames[step % 4]
        if repaired:
            x = (torch.from_numpy(raw).to(device).float() / 255 - mean_there) / std_there
        else:
            x = torch.from_numpy((raw.astype(np.float32) / 255 - mean) / std).to(device)
        total += model(x).square().mean()
    return total


main(prepare, run, steps=12)
