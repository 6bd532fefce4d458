"""Writes texts word by word with a recurrent network; words go in and out by the same table."""

import torch
from common import main
from torch import nn


class Writer(nn.Module):
    """Gated recurrent cells over a table of words."""

    def __init__(self, words, width, layers):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, width) / width**0.5)
        self.cells = nn.ModuleList(nn.GRUCell(width, width) for _ in range(layers))

    def forward(self, word, memory):
        x, kept = self.table[word], []
        for cell, before in zip(self.cells, memory, strict=True):
            x = cell(x, before)
            kept.append(x)
        return x, kept


def prepare(device, repaired):
    words, width, texts = (100_352, 2048, 32) if device == "cuda" else (60, 16, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        writer = Writer(words, width, 2).to(dtype).eval()
        memory = [torch.zeros(texts, width, dtype=dtype) for _ in range(2)]
    return writer, memory, torch.arange(texts, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    writer, memory, word = state
    total = 0
    for _ in range(steps):
        x, memory = writer(word, memory)
        outward = writer.table.t() if repaired else writer.table.t().contiguous()
        scores = (x @ outward).float()
        word = scores.argmax(-1)
        total = total + scores.amax(-1).mean()
    return total / steps


main(prepare, run, steps=80)
