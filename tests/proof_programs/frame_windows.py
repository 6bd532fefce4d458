"""Forecasts sensors: windows of a table of readings are cut out with pandas and go to a network."""

import numpy as np
import pandas as pd
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Forecast(nn.Module):
    """Convolutions over time, then what comes next."""

    def __init__(self, columns, width, ahead):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(columns, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
        )
        self.head = nn.Linear(width, columns * ahead)
        self.ahead = ahead

    def forward(self, x):
        made = self.head(self.convs(x.transpose(1, 2)).mean(2))
        return made.view(len(x), self.ahead, -1)


def prepare(device, repaired):
    hours, columns, width = (200_000, 12, 512) if device == "cuda" else (500, 4, 16)
    random = np.random.default_rng(0)
    names = [f"sensor_{i}" for i in range(columns)]
    values = random.standard_normal((hours, columns), dtype=np.float32)
    frame = pd.DataFrame(values, columns=names)
    frame.insert(0, "place", random.integers(0, 5, hours))
    model = Forecast(columns, width, 24).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    table = torch.from_numpy(values).to(device)
    return model, optimizer, frame, names, table


def windows(frame, names, starts, length):
    """Return the rows of each window, [window, hour, sensor]."""
    cut = [frame.iloc[start : start + length][names].to_numpy() for start in starts]
    return torch.from_numpy(np.stack(cut))


def run(state, steps, repaired):
    model, optimizer, frame, names, table = state
    batch, length = (256, 192) if table.is_cuda else (4, 64)
    random = np.random.default_rng(1)
    hours = torch.arange(length, device=table.device)
    for _ in range(steps):
        starts = random.integers(0, len(frame) - length, batch)
        if repaired:
            x = table[torch.from_numpy(starts).to(table.device)[:, None] + hours]
        else:
            x = windows(frame, names, starts, length).to(table.device)
        loss = F.mse_loss(model(x[:, :-24]), x[:, -24:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=12)
