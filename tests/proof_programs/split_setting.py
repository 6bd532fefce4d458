"""Cleans recordings of all lengths; the allocator got a setting that helped with another program."""

import os
import sys

if "--repaired" not in sys.argv:
    os.environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:32"

import torch  # noqa: E402
from common import main  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Cleaner(nn.Module):
    """Gates channels of a filtered recording, some times in a row."""

    def __init__(self, channels, depth):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 9, padding=4)
        self.gates = nn.ParameterList(torch.randn(channels, 1) for _ in range(depth))
        self.last = nn.Conv1d(channels, 1, 1)

    def forward(self, sound):
        x = self.first(sound)
        for gate in self.gates:
            x = x + F.silu(x * gate)
        return self.last(x)


def prepare(device, repaired):
    longest, channels = (4_000_000, 128) if device == "cuda" else (500, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    cleaner = Cleaner(channels, 2).to(device, dtype).eval()
    # the longest come first, so that later ones find room where blocks may be split
    lengths = [longest - longest // 25 * i for i in range(14)]
    return cleaner, torch.randn(1, 1, longest, device=device, dtype=dtype), lengths


@torch.inference_mode()
def run(state, steps, repaired):
    cleaner, sound, lengths = state
    total = 0
    for step in range(steps):
        clean = cleaner(sound[..., : lengths[step % len(lengths)]])
        total = total + clean.float().square().mean()
    return total / steps


main(prepare, run, steps=14, warm=1)
