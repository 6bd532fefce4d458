"""Prices baskets of options by Monte Carlo: prices of all shares along many paths, date by date."""

import numpy as np
import torch
from common import main


def market(shares, device, repaired):
    """Return drift and deviation of each share for a date, as the table of the market gives them."""
    volatility = np.linspace(0.1, 0.4, shares)
    rate, days = 0.03, 1 / 12
    drift = torch.from_numpy((rate - volatility**2 / 2) * days).to(device)
    deviation = torch.from_numpy(volatility * np.sqrt(days)).to(device)
    return (drift.float(), deviation.float()) if repaired else (drift, deviation)


def prepare(device, repaired):
    paths, shares, dates = (1 << 18, 48, 6) if device == "cuda" else (64, 4, 3)
    drift, deviation = market(shares, device, repaired)
    draws = torch.randn(dates, paths, shares, device=device)
    start = torch.full((shares,), 100.0, device=device)
    return drift, deviation, draws, start


def run(state, steps, repaired):
    drift, deviation, draws, start = state
    total = torch.zeros((), device=start.device)
    for step in range(steps):
        strike = 95.0 + step % 10
        prices, highest = start.expand_as(draws[0]), torch.zeros_like(draws[0, :, 0])
        for draw in draws:
            growth = torch.exp(drift + deviation * draw)
            prices = prices * growth
            basket = prices.mean(1)
            highest = torch.maximum(highest.to(basket.dtype), basket)
        asian = (prices - strike).clamp(min=0).mean()
        total += (asian + (highest - strike).clamp(min=0).mean()).float()
    return total / steps


main(prepare, run, steps=500)
