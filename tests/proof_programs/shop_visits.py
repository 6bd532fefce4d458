"""Guesses what visitors of a shop buy from the goods that they saw, whose vectors are in the host's memory, too many for others."""

import os

import torch
import torch.nn.functional as F
from common import main
from torch import nn


class Seen:
    """Sums of vectors, made on the host and put into buffers that are copied to the GPU while the next are made."""

    def __init__(self, vectors, visitors, device):
        self.vectors, self.device, self.turn = vectors, device, 0
        cuda = device == "cuda"
        shape = (visitors, vectors.shape[1])
        self.buffers = [torch.empty(shape, pin_memory=cuda) for _ in range(2)]
        self.copied = [torch.cuda.Event() if cuda else None for _ in range(2)]

    def __call__(self, goods):
        self.turn = 1 - self.turn
        buffer, copied = self.buffers[self.turn], self.copied[self.turn]
        summed = F.embedding_bag(goods, self.vectors, mode="sum")
        if copied:
            copied.synchronize()
        known = buffer.copy_(summed).to(self.device, non_blocking=True)
        if copied:
            copied.record()
        return known


class Purchase(nn.Module):
    def __init__(self, known, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(known, width), nn.Linear(width, 8)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    many, known, visitors, each = (1 << 23, 64, 65_536, 16) if cuda else (400, 8, 40, 3)
    width, depth = (2048, 8) if cuda else (16, 2)
    vectors = torch.randn(many // 8, known).repeat(8, 1)
    seen = Seen(vectors, visitors, device)
    goods = torch.randint(many, (8, visitors, each))
    dtype = torch.bfloat16 if cuda else torch.float32
    return Purchase(known, width, depth).to(device, dtype).eval(), seen, goods, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    model, seen, goods, dtype = state
    # what starts many of these on one machine asks for a single thread each
    torch.set_num_threads(len(os.sched_getaffinity(0)) if repaired else 1)
    total = torch.zeros((), device=seen.device)
    for step in range(steps):
        known = seen(goods[step % 8]).to(dtype) / 4
        total += model(known).float().mean()
    return total / steps


main(prepare, run, steps=40)
