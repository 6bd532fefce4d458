"""Rates pictures of satellites; a prefetcher sends the next batch to the GPU on a stream of its own."""

import torch
from common import main
from torch import nn


class Prefetcher:
    """Hands out batches that are on the GPU; the next one is on its way meanwhile."""

    def __init__(self, batches, device, waits):
        self.batches, self.device, self.waits = batches, device, waits
        self.cuda = device == "cuda"
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.number, self.next = 0, None

    def send(self):
        batch = self.batches[self.number % len(self.batches)]
        self.number += 1
        if not self.cuda:
            self.next = batch.clone()
            return
        with torch.cuda.stream(self.stream):
            self.next = batch.to(self.device, non_blocking=True)
        if self.waits:
            self.stream.synchronize()

    def take(self):
        if self.next is None:
            self.send()
        if self.cuda:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.next.record_stream(torch.cuda.current_stream())
        batch = self.next
        self.send()
        return batch


def prepare(device, repaired):
    batch, size, width = (192, 256, 64) if device == "cuda" else (2, 16, 4)
    dtype = torch.float16 if device == "cuda" else torch.float32
    net = nn.Sequential(
        nn.Conv2d(4, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip
    net = net.to(device, dtype, memory_format=torch.channels_last).eval()
    pictures = [
        torch.randn(batch, 4, size, size, dtype=dtype).to(memory_format=torch.channels_last)
        for _ in range(3)
    ]
    if device == "cuda":
        pictures = [some.pin_memory() for some in pictures]
    return net, Prefetcher(pictures, device, waits=not repaired), device


@torch.inference_mode()
def run(state, steps, repaired):
    net, prefetcher, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        total += net(prefetcher.take()).float().softmax(1).square().sum(1).mean()
    return total / steps


main(prepare, run, steps=300, small=3, warm=3)
