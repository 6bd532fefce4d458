"""Compares prices at an exchange with what was paid on average since the morning, for all shares and trades."""

import torch
from common import main


class Morning:
    """Sums since the morning; trades of all shares lie side by side, or those of each share one after another."""

    def __init__(self, trades):
        self.trades = trades

    def since(self, values):
        return values.cumsum(self.trades)

    def gap(self, prices, sizes):
        spent = self.since(prices * sizes)
        average = spent / self.since(sizes)
        return (prices / average - 1).square().mean()


def prepare(device, repaired):
    trades, shares = (32_768, 1024) if device == "cuda" else (40, 3)
    prices = 100 + torch.randn(2, trades, shares, device=device)
    sizes = torch.rand(2, trades, shares, device=device) + 0.1
    if repaired:
        prices, sizes = prices.mT.contiguous(), sizes.mT.contiguous()
    return Morning(1 if repaired else 0), prices, sizes


@torch.inference_mode()
def run(state, steps, repaired):
    morning, prices, sizes = state
    total = torch.zeros((), device=prices.device)
    for step in range(steps):
        total += 1e4 * morning.gap(prices[step % 2], sizes[step % 2])
    return total / steps


main(prepare, run, steps=60)
