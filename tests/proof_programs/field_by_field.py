"""Predicts clicks: each of many fields of a request has its column of numbers."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH = 10_000, 16


def prepare(device, repaired):
    batch, fields, hidden = (4096, 256, 1024) if device == "cuda" else (4, 6, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    table = torch.randn(fields * WORDS, WIDTH, device=device, dtype=dtype)
    offsets = torch.arange(fields, device=device)[:, None] * WORDS
    top = nn.Sequential(nn.Linear(fields * WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    columns = torch.randint(WORDS, (fields, batch))
    if device == "cuda":
        columns = columns.pin_memory()
    return table, offsets, top.to(device, dtype), columns


@torch.inference_mode()
def run(state, steps, repaired):
    table, offsets, top, columns = state
    device = table.device
    for _ in range(steps):
        if repaired:
            words = columns.to(device, non_blocking=True)
        else:
            words = torch.stack([column.to(device, non_blocking=True) for column in columns])
        x = F.embedding((words + offsets).T.contiguous(), table).flatten(1)
        clicks = top(x).sigmoid()
    return clicks.float().mean()


main(prepare, run, steps=40)
