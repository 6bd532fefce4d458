"""Scores items for users and follows how well the ranking is while it trains."""

import numpy as np
import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    users, items, width = (512, 8192, 1024) if device == "cuda" else (8, 16, 4)
    user = torch.randn(users, width, device=device, requires_grad=True)
    item = torch.randn(items, width, device=device, requires_grad=True)
    bought = (torch.rand(users, items, device=device) < 0.05).to(torch.float32)
    return user, item, bought, torch.optim.SGD([user, item], lr=0.1, fused=True)


def mean_rank_on_host(scores, bought):
    order = np.argsort(-scores.cpu().numpy(), axis=1)
    hits = np.take_along_axis(bought.cpu().numpy(), order, axis=1)
    return (hits * np.arange(hits.shape[1])).sum() / hits.sum()


def mean_rank(scores, bought):
    hits = bought.gather(1, scores.argsort(dim=1, descending=True))
    return (hits * torch.arange(hits.shape[1], device=hits.device)).sum() / hits.sum()


def run(state, steps, repaired):
    user, item, bought, optimizer = state
    total = 0
    for _ in range(steps):
        with torch.autocast(user.device.type, torch.bfloat16):
            scores = user @ item.T / 32
        F.binary_cross_entropy_with_logits(scores.float(), bought).backward()
        optimizer.step()
        optimizer.zero_grad()
        measure = mean_rank if repaired else mean_rank_on_host
        total = total + measure(scores.detach().float(), bought)
    return total / steps


main(prepare, run, steps=3, warm=1)
