"""Rates pictures of satellites; a prefetcher sends the next batch to the GPU on a stream of its own."""

import torch
from common import main
from torch import nn


class Prefetcher:
    """Two places on the GPU: while the network reads a batch in one, the next one is copied to the other."""

    def __init__(self, batches, device, careful):
        self.batches, self.careful, self.cuda = batches, careful, device == "cuda"
        self.places = [torch.empty_like(batches[0], device=device) for _ in range(2)]
        self.free = [None, None]
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.number = 0
        self.send()

    def send(self):
        place, batch = self.number % 2, self.batches[self.number % len(self.batches)]
        if not self.cuda:
            self.places[place].copy_(batch)
            return
        if self.careful:
            self.stream.wait_stream(torch.cuda.current_stream())  # nothing may read the place now
        elif self.free[place] is not None:
            self.stream.wait_event(self.free[place])
        with torch.cuda.stream(self.stream):
            self.places[place].copy_(batch, non_blocking=True)

    def take(self):
        if self.cuda:
            torch.cuda.current_stream().wait_stream(self.stream)
        return self.places[self.number % 2]

    def done(self):
        """Send the next batch; all that reads the one before has been launched."""
        if self.cuda:
            self.free[self.number % 2] = torch.cuda.current_stream().record_event()
        self.number += 1
        self.send()


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
    return net, Prefetcher(pictures, device, careful=not repaired), device


@torch.inference_mode()
def run(state, steps, repaired):
    net, prefetcher, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        total += net(prefetcher.take()).float().softmax(1).square().sum(1).mean()
        prefetcher.done()
    return total / steps


main(prepare, run, steps=300, small=3, warm=3)
