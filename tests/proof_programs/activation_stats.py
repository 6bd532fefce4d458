"""Trains a network for tables; hooks note how the activations of each layer are distributed."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Watch:
    """Hooks that note mean, deviation, extremes and the share of small numbers."""

    def __init__(self, model, every):
        self.notes, self.every, self.step = {}, every, 0
        for name, layer in model.named_modules():
            if isinstance(layer, (nn.Linear, nn.GELU, nn.LayerNorm)):
                layer.register_forward_hook(lambda layer, given, made, n=name: self.note(n, made))

    @torch.no_grad()
    def note(self, name, made):
        if self.step % self.every:
            return
        values = made.float()
        small = (values.abs() < 1e-3).float().mean()
        self.notes[name] = torch.stack(
            [values.mean(), values.std(), values.min(), values.max(), small]
        )


def prepare(device, repaired):
    rows, width, layers = (16384, 1024, 6) if device == "cuda" else (16, 12, 2)
    blocks = []
    for _ in range(layers):
        blocks += [nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*blocks, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    table = torch.randn(rows, width, device=device)
    return model, optimizer, table, table.mean(1, keepdim=True), Watch(model, 50 if repaired else 1)


def run(state, steps, repaired):
    model, optimizer, table, wanted, watch = state
    for step in range(steps):
        watch.step = step + 1
        with torch.autocast(table.device.type, torch.bfloat16):
            made = model(table)
        loss = F.mse_loss(made.float(), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=20)
