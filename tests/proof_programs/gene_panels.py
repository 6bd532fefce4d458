"""Reads panels of genes with layers that mix each gene with those that it acts upon (a graph convolution on a fixed graph)."""

import torch
from common import main
from torch import nn


class Layer(nn.Module):
    """The same links hold for all samples, which lie one after another or side by side."""

    def __init__(self, genes, width, side_by_side):
        super().__init__()
        links = (torch.rand(genes, genes) < 0.1) * torch.randn(genes, genes) / (genes / 10) ** 0.5
        self.register_buffer("links", links)
        self.mix = nn.Linear(width, width)
        self.side_by_side = side_by_side

    def forward(self, x):
        if self.side_by_side:  # genes, samples, width
            y = (self.links @ x.flatten(1)).view_as(x)
        else:  # samples, genes, width
            y = torch.matmul(self.links, x)
        return torch.relu_(self.mix(y))


class Panels(nn.Module):
    def __init__(self, genes, width, depth, side_by_side):
        super().__init__()
        self.side_by_side = side_by_side
        self.layers = nn.Sequential(*(Layer(genes, width, side_by_side) for _ in range(depth)))
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        return self.last(self.layers(x).mean(0 if self.side_by_side else 1))


def prepare(device, repaired):
    genes, width, depth, samples = (512, 16, 4, 2048) if device == "cuda" else (12, 4, 2, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Panels(genes, width, depth, side_by_side=repaired).to(device, dtype).eval()
    panels = torch.randn(2, samples, genes, width, device=device, dtype=dtype)
    return model, panels.transpose(1, 2).contiguous() if repaired else panels


@torch.inference_mode()
def run(state, steps, repaired):
    model, panels = state
    total = torch.zeros((), device=panels.device)
    for step in range(steps):
        total += model(panels[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=500)
