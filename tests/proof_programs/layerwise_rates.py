"""Fine-tunes a deep and narrow network of soil spectra with rates that fall from layer to layer towards the input."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.mix(self.norm(x)))


class Spectra(nn.Module):
    """Carbon, clay and moisture of soil from its reflectance."""

    def __init__(self, bands, width, depth):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.last = nn.Linear(width, 3)

    def forward(self, reflectance):
        x = self.first(reflectance)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def rate_of(name, depth, top, decay, stages):
    """Return the rate of a parameter: layers come in stages, and each stage learns more slowly than the next."""
    if name.startswith("last"):
        return top
    layer = int(name.split(".")[1]) if name.startswith("layers") else 0
    return top * decay ** (stages - 1 - layer * stages // depth)


def make_groups(model, depth, together):
    """Return groups of parameters for the optimizer, each with a rate of its own."""
    groups, by_rate = [], {}
    for name, parameter in model.named_parameters():
        rate = rate_of(name, depth, top=1e-4, decay=0.7, stages=8)
        if together and rate in by_rate:
            by_rate[rate]["params"].append(parameter)
            continue
        by_rate[rate] = {"params": [parameter], "lr": rate}
        groups.append(by_rate[rate])
    return groups


class FineTuning:
    def __init__(self, model, depth, together):
        self.model = model
        fused = next(model.parameters()).is_cuda
        self.optimizer = torch.optim.AdamW(make_groups(model, depth, together), fused=fused)

    def step(self, reflectance, soil):
        loss = F.smooth_l1_loss(self.model(reflectance), soil)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def prepare(device, repaired):
    rows, bands, width, depth = (2048, 420, 256, 64) if device == "cuda" else (8, 12, 16, 4)
    tuning = FineTuning(Spectra(bands, width, depth).to(device), depth, together=repaired)
    reflectance = torch.rand(4, rows, bands, device=device)
    soil = reflectance[..., :3] * 2 - reflectance[..., 3:6]
    return tuning, reflectance, soil


def run(state, steps, repaired):
    tuning, reflectance, soil = state
    total = torch.zeros((), device=reflectance.device)
    for step in range(steps):
        total += tuning.step(reflectance[step % 4], soil[step % 4])
    return total / steps


main(prepare, run, steps=80)
