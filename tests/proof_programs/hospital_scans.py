"""Looks through a hospital's scans for shadows: a thread fetches them from a store, which takes long for large ones."""

import threading
import time
from queue import Queue

import torch
from common import main
from torch import nn


class Store:
    """Holds scans elsewhere; of sixteen of them one is in the archive, which answers late."""

    def __init__(self, scans, usual, archived):
        self.scans, self.usual, self.archived = scans, usual, archived

    def fetch(self, number):
        time.sleep(self.archived if number % 16 == 15 else self.usual)
        return self.scans[number % len(self.scans)]


class Fetcher:
    """Fetches scans in a thread, a number of them ahead of whoever looks at them."""

    def __init__(self, store, ahead):
        self.store, self.ahead = store, ahead

    def __call__(self, many):
        waiting = Queue(maxsize=self.ahead)
        threading.Thread(target=self.fill, args=(waiting, many), daemon=True).start()
        for _ in range(many):
            scan = waiting.get()
            yield scan

    def fill(self, waiting, many):
        for number in range(many):
            waiting.put(self.store.fetch(number))


class Shadows(nn.Module):
    def __init__(self, patch, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(patch, width), nn.Linear(width, 4)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x).float().amax(0)


def prepare(device, repaired):
    cuda = device == "cuda"
    patches, patch, width, depth = (65536, 64, 2048, 10) if cuda else (20, 8, 16, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    scans = [torch.randn(patches, patch, dtype=dtype) for _ in range(4)]
    if cuda:
        scans = [scan.pin_memory() for scan in scans]
    store = Store(scans, *((0.002, 0.09) if cuda else (0.001, 0.01)))
    model = Shadows(patch, width, depth).to(device, dtype).eval()
    return model, Fetcher(store, ahead=32 if repaired else 1), device


@torch.inference_mode()
def run(state, steps, repaired):
    model, fetcher, device = state
    total = 0.0
    for scan in fetcher(steps):
        # who is at the machine hears of a scan before the next one is looked at
        found = model(scan.to(device, non_blocking=True)).tolist()
        total += sum(found)
    return total / steps


main(prepare, run, steps=128, small=32)
