"""Recognises speech while it is spoken: a deep LSTM hears two frames at a time, with averaged weights."""

import torch
from common import main
from torch import nn


class Recogniser(nn.Module):
    """An LSTM whose state goes on from call to call, and scores of letters."""

    def __init__(self, mels, width, depth, letters):
        super().__init__()
        self.inward = nn.Linear(mels, width)
        self.memory = nn.LSTM(width, width, depth, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, frames, state):
        h, state = self.memory(self.inward(frames), state)
        return self.head(h), state


def take_average(model, checkpoints):
    """Give a model the mean of the weights of some checkpoints."""
    for name, parameter in model.named_parameters():
        parameter.data = torch.stack([one[name] for one in checkpoints]).mean(0)


def prepare(device, repaired):
    mels, width, depth, letters, speakers = (
        (80, 2048, 4, 512, 8) if device == "cuda" else (8, 8, 2, 5, 2)
    )
    dtype = torch.float16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Recogniser(mels, width, depth, letters).to(dtype).eval()
    checkpoints = [
        {name: value.detach() * (1 + 0.01 * number) for name, value in model.named_parameters()}
        for number in range(3)
    ]
    take_average(model, checkpoints)
    if repaired:
        model.memory.flatten_parameters()
    frames = torch.randn(16, speakers, 2, mels, device=device, dtype=dtype)
    start = torch.zeros(2, depth, speakers, width, device=device, dtype=dtype)
    return model, frames, tuple(start.unbind(0))


@torch.inference_mode()
def run(state, steps, repaired):
    model, frames, heard = state
    total = 0
    for step in range(steps):
        scores, heard = model(frames[step % len(frames)], heard)
        total = total + scores.float().square().mean()
    return total / steps


main(prepare, run, steps=500)
