"""Cleans up sound with a compiled filter whose strength falls from call to call."""

import torch
import torch._inductor.config
from common import main
from torch import nn

torch._inductor.config.force_disable_caches = (
    True  # each start compiles, as the first on a machine does
)


class Cleaner(nn.Module):
    """Takes out what is quieter than a threshold, which gets lower with each call."""

    def __init__(self, bands):
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(0.5, 1.5, bands))
        self.calls = 0

    def forward(self, spectra, call=None):
        if call is None:
            self.calls += 1
            call = self.calls
        threshold = 0.4 / (1 + 0.01 * call)
        loud = (spectra * self.weights).abs()
        return torch.where(loud > threshold, spectra, spectra * (loud / threshold).square())


def prepare(device, repaired):
    batch, frames, bands = (64, 1000, 513) if device == "cuda" else (2, 10, 17)
    cleaner = Cleaner(bands).to(device).eval()
    spectra = torch.randn(2, batch, frames, bands, device=device)
    calls = [torch.tensor(number, device=device) for number in range(1, 301)]
    return cleaner, torch.compile(cleaner), spectra, calls


@torch.no_grad()
def run(state, steps, repaired):
    cleaner, compiled, spectra, calls = state
    cleaner.calls = 0
    total = torch.zeros((), device=spectra.device)
    for step in range(steps):
        x = spectra[step % 2]
        clean = compiled(x, calls[step]) if repaired else compiled(x)
        total += clean.abs().mean()
    return total / steps


main(prepare, run, steps=300, warm=1)
