"""Picks the first arrivals of seismic waves in the shots of a survey, which come from files of numpy."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Survey:
    """Shots of a survey: traces of many geophones, as a reader of SEG-Y files leaves them."""

    def __init__(self, shots, traces, length, single):
        random = np.random.default_rng(11)
        arrival = random.integers(length // 8, length // 2, (shots, traces, 1))
        noise = random.standard_normal((shots, traces, 256)).repeat(length // 256, 2)
        wave = np.exp(-np.abs(np.arange(length) - arrival) / 40.0)
        self.data = wave + 0.01 * noise
        if single:
            self.data = self.data.astype(np.float32)

    def tensors(self, pinned):
        tensors = [torch.from_numpy(shot) for shot in self.data]
        return [shot.pin_memory() for shot in tensors] if pinned else tensors


class Picker(nn.Module):
    """Strided convolutions over each trace; how probable an arrival is at each place."""

    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Conv1d(1, width, 17, 8, 8)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 5, 2, 2) for _ in range(depth))
        self.last = nn.Conv1d(width, 1, 1)

    def forward(self, traces):
        scale = traces.abs().amax(1, keepdim=True)
        x = F.relu(self.first((traces / scale)[:, None]))
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.last(x)[:, 0].softmax(1)


def pick(probable):
    """Return the mean place of the arrival of each trace."""
    places = torch.arange(probable.shape[1], device=probable.device, dtype=probable.dtype)
    return (probable * places).sum(1)


def prepare(device, repaired):
    shots, traces, length, width, depth = (
        (6, 512, 8192, 8, 3) if device == "cuda" else (2, 4, 1024, 4, 2)
    )
    survey = Survey(shots, traces, length, single=repaired)
    picker = Picker(width, depth).to(device).eval()
    return picker, survey.tensors(pinned=device == "cuda"), device


@torch.inference_mode()
def run(state, steps, repaired):
    picker, shots, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        traces = shots[step % len(shots)].to(device, non_blocking=True)
        total += pick(picker(traces.float())).mean()
    return total / steps


main(prepare, run, steps=1200)
