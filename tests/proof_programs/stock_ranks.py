"""Rates signals for stocks by rank correlation: each day's values become ranks, which are compared with those of the returns."""

import torch
from common import main


def ranks(values, by_order):
    """Return the rank of each value in its row."""
    order = values.argsort(1)
    if by_order:
        places = torch.arange(values.shape[1], device=values.device).expand_as(order)
        return torch.empty_like(order).scatter_(1, order, places)
    return order.argsort(1)


class Market:
    """Ranks of the returns of each day, made even about zero and of length one."""

    def __init__(self, days, stocks, device):
        self.stocks = stocks
        self.returns = self.even(ranks(torch.randn(days, stocks, device=device), True))

    def even(self, rank):
        rank = rank.float() - (self.stocks - 1) / 2
        return rank * (12 / (self.stocks**3 - self.stocks)) ** 0.5

    def correlation(self, signal, by_order):
        """Return the rank correlation of the signal with the returns of each day."""
        return (self.even(ranks(signal, by_order)) * self.returns).sum(1)


def prepare(device, repaired):
    days, stocks = (512, 16384) if device == "cuda" else (6, 40)
    market = Market(days, stocks, device)
    return market, torch.randn(3, days, stocks, device=device) + 0.5 * market.returns


@torch.inference_mode()
def run(state, steps, repaired):
    market, signals = state
    total = torch.zeros((), device=signals.device)
    for step in range(steps):
        total += market.correlation(signals[step % 3], by_order=repaired).abs().mean()
    return total / steps


main(prepare, run, steps=400)
