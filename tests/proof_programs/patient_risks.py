"""Foretells risks of patients, of which each has a head of its own behind a network that they share."""

import torch
from common import main
from torch import nn


class Risks(nn.Module):
    """Asks one head after another, or all of them with one matrix."""

    def __init__(self, width, risks, joined):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(risks))
        self.joined = None
        if joined:
            self.joined = nn.Linear(width, risks)
            with torch.no_grad():
                self.joined.weight.copy_(torch.cat([head.weight for head in self.heads]))
                self.joined.bias.copy_(torch.cat([head.bias for head in self.heads]))

    def forward(self, patients):
        x = self.body(patients)
        if self.joined:
            return self.joined(x)
        return torch.cat([head(x) for head in self.heads], dim=1)


def prepare(device, repaired):
    width, risks, patients = (768, 24, 65536) if device == "cuda" else (8, 3, 6)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    known = torch.randn(2, patients, width, device=device, dtype=dtype)
    return Risks(width, risks, joined=repaired).to(device, dtype).eval(), known


@torch.inference_mode()
def run(state, steps, repaired):
    model, patients = state
    total = torch.zeros((), device=patients.device)
    for step in range(steps):
        total += model(patients[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=700)
