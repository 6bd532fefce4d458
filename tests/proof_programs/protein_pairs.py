"""Refines what is known of each pair of a protein's residues through all third ones (triangles), block by block."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Triangles(nn.Module):
    """Keeps the features of a pair side by side, or makes a map of all pairs for each feature."""

    def __init__(self, width, maps):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.maps = maps

    def forward(self, pairs):
        count, _, width = pairs.shape
        x = F.layer_norm(pairs, (width,))
        if self.maps:
            flat = x.view(-1, width).T
            first = (self.first.weight @ flat).view(width, count, count)
            second = (self.second.weight @ flat).view(width, count, count)
            met = torch.bmm(first, second.transpose(1, 2)).view(width, -1).T
            return pairs + self.last(met).view_as(pairs) / count
        met = torch.einsum("ikc,jkc->ijc", self.first(x), self.second(x))
        return pairs + self.last(met) / count


def prepare(device, repaired):
    residues, width, depth = (512, 128, 4) if device == "cuda" else (5, 6, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = (
        nn.Sequential(*(Triangles(width, maps=repaired) for _ in range(depth)))
        .to(device, dtype)
        .eval()
    )
    return blocks, torch.randn(2, residues, residues, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    blocks, proteins = state
    total = torch.zeros((), device=proteins.device)
    for step in range(steps):
        total += blocks(proteins[step % 2]).square().mean(dtype=torch.float32)
    return total / steps


main(prepare, run, steps=400)
