"""Reads sequences with an LSTM, one time step after another."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, length = (512, 128) if device == "cuda" else (8, 8)
    lstm = nn.LSTM(width, width, batch_first=True).to(device)
    cell = nn.LSTMCell(width, width).to(device)
    cell.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in lstm.state_dict().items()}
    )
    return lstm, cell, torch.randn(64, length, width, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    lstm, cell, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        if repaired:
            out = lstm(x)[0]
        else:
            h = c = torch.zeros(x.shape[0], x.shape[2], device=x.device)
            outs = []
            for t in range(x.shape[1]):
                h, c = cell(x[:, t], (h, c))
                outs.append(h)
            out = torch.stack(outs, 1)
        total += out.square().mean()
    return total


main(prepare, run, steps=12)
