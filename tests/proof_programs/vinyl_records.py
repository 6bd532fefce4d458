"""Makes sound that was read from old records finer: four times as many samples, from features of the coarse ones."""

import torch
import torch.nn.functional as F
from common import main
from torch import nn

FINER, TAPS, BEFORE = 4, 16, 7


class Finer(nn.Module):
    """A filter over samples with three zeros between them, or one over the samples for each of four places."""

    def __init__(self, channels, outs, phases):
        super().__init__()
        weights = torch.randn(outs, channels, TAPS) / (channels * TAPS / FINER) ** 0.5
        self.outs, self.phases = outs, phases
        if phases:
            taps = [[FINER * j - r + BEFORE for j in range(-1, 3)] for r in range(FINER)]
            weights = (
                weights[:, :, torch.tensor(taps)]
                .transpose(1, 2)
                .reshape(FINER * outs, channels, -1)
            )
        self.weights = nn.Parameter(weights)

    def forward(self, x):
        count, channels, length = x.shape
        if self.phases:
            y = F.conv1d(x, self.weights, padding=2)[..., 1:]
            y = y.unflatten(1, (self.outs, FINER))
            return y.transpose(2, 3).reshape(count, self.outs, FINER * length)
        stuffed = x.new_zeros(count, channels, FINER * length)
        stuffed[:, :, ::FINER] = x
        return F.conv1d(stuffed, self.weights, padding=BEFORE + 1)[..., 1:]


class Record(nn.Module):
    def __init__(self, channels, outs, phases):
        super().__init__()
        self.first = nn.Conv1d(32, channels, 3, padding=1)
        self.finer = Finer(channels, outs, phases)
        self.last = nn.Conv1d(outs, 8, 3, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.1)
        x = F.leaky_relu(self.finer(x), 0.1)
        return torch.tanh(self.last(x))


def prepare(device, repaired):
    channels, outs, count, length = (256, 256, 16, 8192) if device == "cuda" else (6, 4, 2, 20)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(1)
    model = Record(channels, outs, phases=repaired).to(device, dtype).eval()
    return model, torch.randn(2, count, 32, length, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, sounds = state
    total = torch.zeros((), device=sounds.device)
    for step in range(steps):
        total += model(sounds[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=250)
