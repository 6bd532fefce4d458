"""Scores which residues of proteins touch, from features of each two of them."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Pairs(nn.Module):
    """A network for each pair of residues; `split` multiplies residues before they are paired."""

    def __init__(self, width, inner, split):
        super().__init__()
        self.first = nn.Linear(2 * width, inner)
        self.last = nn.Linear(inner, 1)
        self.split = split

    def forward(self, x):
        if self.split:
            left, right = self.first.weight.chunk(2, 1)
            a, b = F.linear(x, left, self.first.bias), F.linear(x, right)
            made = a[:, :, None] + b[:, None, :]
        else:
            shape = (*x.shape[:2], x.shape[1], x.shape[2])
            left, right = x[:, :, None].expand(shape), x[:, None, :].expand(shape)
            made = self.first(torch.cat([left, right], -1))
        return self.last(F.relu(made, inplace=True))[..., 0]


def prepare(device, repaired):
    proteins, length, width = (4, 512, 256) if device == "cuda" else (1, 12, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    pairs = Pairs(width, 128, repaired)
    x = torch.randn(proteins, length, width, device=device, dtype=dtype)
    return encoder.to(device, dtype).eval(), pairs.to(device, dtype).eval(), x


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, pairs, x = state
    for _ in range(steps):
        touch = pairs(encoder(x))
    return touch.float().sigmoid().mean()


main(prepare, run, steps=25)
