"""Trains a translator of molecules, and keeps a copy of its weights on the host now and then, to go back to."""

import torch
from common import main
from torch import nn


class Snapshots:
    """Copies of all weights on the host. `behind` copies to pinned memory on a stream of its own."""

    def __init__(self, model, behind):
        self.model, self.behind = model, behind
        self.saved = None
        if behind:
            self.stream = torch.cuda.Stream()
            self.saved = {
                name: torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
                for name, value in model.state_dict().items()
            }

    def take(self):
        if not self.behind:
            self.saved = {name: value.cpu() for name, value in self.model.state_dict().items()}
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for name, value in self.model.state_dict().items():
                self.saved[name].copy_(value, non_blocking=True)

    def before_weights_change(self):
        if self.behind:
            torch.cuda.current_stream().wait_stream(self.stream)


def prepare(device, repaired):
    torch.set_float32_matmul_precision("high")
    inputs, width, depth, batch = (1024, 4096, 6, 4096) if device == "cuda" else (8, 16, 2, 4)
    layers = [nn.Linear(inputs, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, inputs)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    molecules = torch.randn(2, batch, inputs, device=device)
    return model, optimizer, Snapshots(model, repaired and device == "cuda"), molecules


def run(state, steps, repaired):
    model, optimizer, snapshots, molecules = state
    total = torch.zeros((), device=molecules.device)
    for step in range(steps):
        x = molecules[step % 2]
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        snapshots.before_weights_change()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        if step % 4 == 3:
            snapshots.take()
    if snapshots.behind:
        snapshots.stream.synchronize()
    return total / steps + 1e-3 * snapshots.saved["2.bias"].abs().mean()


main(prepare, run, steps=40, small=4, warm=4)
