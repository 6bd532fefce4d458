"""Builds position features column by column, then applies a layer to them."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    rows, columns = (8192, 512) if device == "cuda" else (8, 4)
    place = torch.linspace(0, 1, rows, device=device)
    return place, nn.Linear(columns, columns).to(device), columns


@torch.no_grad()
def run(state, steps, repaired):
    place, layer, columns = state
    rates = torch.arange(columns, device=place.device) * 0.1
    total = torch.zeros((), device=place.device)
    for _ in range(steps):
        if repaired:
            features = torch.sin(place[:, None] * rates)
        else:
            features = torch.empty(len(place), columns, device=place.device)
            for column in range(columns):
                features[:, column] = torch.sin(place * rates[column])
        total += layer(features).mean()
    return total


main(prepare, run, steps=20)
