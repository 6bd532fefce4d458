"""Serves customers who have fine-tuned the same network: the small changes of each lie in a file."""

import tempfile
from pathlib import Path

import torch
from common import main
from torch import nn
from torch.nn import functional as F

RANK = 32


class Block(nn.Module):
    """A feed-forward block; what a customer changed comes on top (LoRA)."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, change):
        h = self.norm(x)
        h = F.gelu(self.up(h) + h @ change["up.a"] @ change["up.b"])
        return x + self.down(h) + h @ change["down.a"] @ change["down.b"]


class Shelf:
    """Finds the changes of a customer."""

    def __init__(self, folder, device, keep):
        self.folder, self.device = folder, device
        self.known = {} if keep else None

    def load(self, customer):
        path = Path(self.folder.name) / f"{customer}.pt"
        return torch.load(path, map_location=self.device, weights_only=True)

    def get(self, customer):
        if self.known is None:
            return self.load(customer)
        if customer not in self.known:
            self.known[customer] = self.load(customer)
        return self.known[customer]


def prepare(device, repaired):
    width, depth, customers, rows = (1024, 12, 6, 256) if device == "cuda" else (8, 1, 2, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        blocks = nn.ModuleList(Block(width) for _ in range(depth)).to(dtype).eval()
    folder = tempfile.TemporaryDirectory()
    for customer in range(customers):
        changes = [
            {
                "up.a": torch.randn(width, RANK) / width,
                "up.b": torch.randn(RANK, 4 * width) / RANK,
                "down.a": torch.randn(4 * width, RANK) / width,
                "down.b": torch.randn(RANK, width) / RANK,
            }
            for _ in range(depth)
        ]
        changes = [{name: value.to(dtype) for name, value in one.items()} for one in changes]
        torch.save(changes, Path(folder.name) / f"{customer}.pt")
    x = torch.randn(rows, width, device=device, dtype=dtype)
    return blocks, x, Shelf(folder, device, repaired), customers


@torch.inference_mode()
def run(state, steps, repaired):
    blocks, x, shelf, customers = state
    total = 0
    for request in range(steps):
        changes, y = shelf.get(request % customers), x
        for block, change in zip(blocks, changes, strict=True):
            y = block(y, change)
        total = total + y.float().square().mean()
    return total / steps


main(prepare, run, steps=40, warm=6)
