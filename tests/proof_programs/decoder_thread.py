"""Runs a model while a thread decodes the frames of the next clip in Python."""

import threading

import torch
from common import main
from torch import nn


def decode(stop, frames):
    while not stop.is_set():
        value, bits = 0, []
        for at in range(20_000):
            value = (value * 1103515245 + 12345 + at) & 0x7FFFFFFF
            bits.append(value & 255)
        frames[:] = bits


def prepare(device, repaired):
    width = 256 if device == "cuda" else 8
    layers = [
        nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(24)
    ]
    return nn.Sequential(*layers).to(device), torch.randn(64, width, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    model, x = state
    stop, frames = threading.Event(), []
    thread = threading.Thread(target=decode, args=(stop, frames))
    if not repaired:
        thread.start()
    for _ in range(steps):
        y = model(x)
    value = y.square().mean().item()
    stop.set()
    if not repaired:
        thread.join()
    return value


main(prepare, run, steps=20)
