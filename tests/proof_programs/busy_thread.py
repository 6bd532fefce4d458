"""Decodes with many small operators while a second thread watches a queue for new requests."""

import queue
import threading
import time

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width = 512 if device == "cuda" else 16
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()) for _ in range(10)]
    ).to(device)
    return model, torch.randn(16, width, device=device), queue.Queue()


def watch(requests, done, repaired):
    while not done.is_set():
        try:
            requests.get_nowait()
        except queue.Empty:
            if repaired:
                time.sleep(0.01)


@torch.no_grad()
def run(state, steps, repaired):
    model, x, requests = state
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(requests, done, repaired))
    watcher.start()
    for step in range(steps):
        x = model(x)
        if step % 10 == 9:
            x.sum().item()
    done.set()
    watcher.join()
    return x.square().mean()


main(prepare, run, steps=60)
