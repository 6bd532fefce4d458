"""Guesses what visitors of a shop buy, from what is known of them: a table in the host's memory, too large for others."""

import os

import torch
from common import main
from torch import nn


class Visitors:
    """Rows of the table, gathered on the host into buffers that are copied to the GPU while the next ones are."""

    def __init__(self, table, batch, device):
        self.table, self.device, self.turn = table, device, 0
        cuda = device == "cuda"
        shape = (batch, table.shape[1])
        self.buffers = [torch.empty(shape, dtype=table.dtype, pin_memory=cuda) for _ in range(2)]
        self.copied = [torch.cuda.Event() if cuda else None for _ in range(2)]

    def __call__(self, who):
        self.turn = 1 - self.turn
        buffer, copied = self.buffers[self.turn], self.copied[self.turn]
        if copied:
            copied.synchronize()
        torch.index_select(self.table, 0, who, out=buffer)
        known = buffer.to(self.device, non_blocking=True)
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
    people, known, batch = (1 << 23, 256, 1 << 18) if cuda else (500, 8, 40)
    width, depth = (1024, 8) if cuda else (16, 2)
    some = torch.randint(256, (people // 8, known), dtype=torch.uint8)
    visitors = Visitors(some.repeat(8, 1), batch, device)
    who = torch.randint(len(visitors.table), (8, batch))
    dtype = torch.bfloat16 if cuda else torch.float32
    return Purchase(known, width, depth).to(device, dtype).eval(), visitors, who, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    model, visitors, who, dtype = state
    # what starts many of these on one machine asks for a single thread each
    torch.set_num_threads(len(os.sched_getaffinity(0)) if repaired else 1)
    total = torch.zeros((), device=visitors.device)
    for step in range(steps):
        known = visitors(who[step % 8]).to(dtype) / 256
        total += model(known).float().mean()
    return total / steps


main(prepare, run, steps=40)
