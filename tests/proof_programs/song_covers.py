"""Tells how near songs and what are said to be covers of them lie to each other."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return F.normalize(self.last(F.gelu(self.first(x))), dim=-1)


class Nearness:
    """Compares each song with each cover and takes those that belong together, or compares only these."""

    def __init__(self, only_pairs):
        self.only_pairs = only_pairs

    def __call__(self, songs, covers):
        if self.only_pairs:
            return (songs * covers).sum(-1, dtype=torch.float32)
        everything = songs @ covers.T
        return everything.diagonal().float()


def prepare(device, repaired):
    width, songs = (512, 14336) if device == "cuda" else (16, 6)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    encoder = Encoder(width).to(device, dtype).eval()
    first = torch.randn(2, songs, width, device=device, dtype=dtype)
    second = first + torch.randn_like(first) / 2
    return encoder, Nearness(only_pairs=repaired), first, second


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, near, songs, covers = state
    total = torch.zeros((), device=songs.device)
    for step in range(steps):
        total += near(encoder(songs[step % 2]), encoder(covers[step % 2])).mean()
    return total / steps


main(prepare, run, steps=1600)
