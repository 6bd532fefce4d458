"""Lets bards speak in accents: wide layers that stay as they are, each with a narrow addition for an accent, word by word."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Accented(nn.Module):
    """A fixed layer and an addition of low rank."""

    def __init__(self, inner, outer, rank, merged):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) * inner**-0.5, requires_grad=False)
        self.narrow = nn.Parameter(torch.randn(rank, inner) * inner**-0.5)
        self.wide = nn.Parameter(torch.randn(outer, rank) * rank**-0.5)
        self.share, self.merged = 0.25, merged

    def forward(self, x):
        if self.merged:
            weight = self.weight + self.share * (self.wide @ self.narrow)
            return F.linear(x, weight)
        return torch.addmm(x @ self.weight.T, x @ self.narrow.T, self.wide.T, alpha=self.share)


class Bard(nn.Module):
    def __init__(self, width, rank, depth, merged):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.ups = nn.ModuleList(Accented(width, 4 * width, rank, merged) for _ in range(depth))
        self.downs = nn.ModuleList(Accented(4 * width, width, rank, merged) for _ in range(depth))

    def forward(self, x):
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(F.silu(up(norm(x))))
        return x


def prepare(device, repaired):
    cuda = device == "cuda"
    width, rank, depth, batch = (4096, 16, 6, 32) if cuda else (8, 2, 2, 3)
    dtype = torch.bfloat16 if cuda else torch.float32
    with torch.device(device):
        torch.manual_seed(14)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        bard = Bard(width, rank, depth, merged=not repaired).eval()
        words = torch.randn(batch, width)
        torch.set_default_dtype(before)
    return bard, words


@torch.inference_mode()
def run(state, steps, repaired):
    bard, words = state
    total = torch.zeros((), device=words.device)
    said = words
    for _ in range(steps):
        said = F.layer_norm(words + 0.5 * bard(said), said.shape[1:])
        total += said.float().abs().mean()
    return total / steps


main(prepare, run, steps=200)
