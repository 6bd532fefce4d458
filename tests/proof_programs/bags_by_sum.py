"""Recommends: what users looked at before is looked up and summed."""

import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    items, width, users, seen = (1_000_000, 128, 16384, 100) if device == "cuda" else (50, 4, 4, 5)
    table = torch.randn(items, width, device=device)
    mix = torch.randn(width, width, device=device) / width**0.5
    return table, torch.randint(items, (users, seen), device=device), mix


@torch.inference_mode()
def run(state, steps, repaired):
    table, seen, mix = state
    for _ in range(steps):
        if repaired:
            bags = F.embedding_bag(seen, table, mode="sum")
        else:
            bags = F.embedding(seen, table).sum(1)
        users = F.normalize(bags @ mix)
    return users.abs().mean()


main(prepare, run, steps=20)
