"""Names butterflies by the pattern of their wings, with a network of convolutions whose channels are brought to one size."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class ChannelNorm(nn.Module):
    """Brings the channels at each place of a picture to mean 0 and variance 1."""

    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.eps = eps

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class LastChannelNorm(ChannelNorm):
    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Stage(nn.Module):
    def __init__(self, channels, depth, norm):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth)
        )
        self.norms = nn.ModuleList(norm(channels) for _ in range(depth))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.gelu(conv(norm(x)))
        return x


class Wings(nn.Module):
    def __init__(self, channels, depth, kinds, norm):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        self.stage = Stage(channels, depth, norm)
        self.head = nn.Linear(channels, kinds)

    def forward(self, x):
        return self.head(self.stage(self.stem(x)).mean(dim=(2, 3)))


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, side, channels, depth = (64, 224, 128, 8) if cuda else (2, 16, 8, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    norm = LastChannelNorm if repaired else ChannelNorm
    model = Wings(channels, depth, kinds=100, norm=norm)
    model = model.to(device, dtype, memory_format=torch.channels_last).eval()
    pictures = torch.randn(4, batch, 3, side, side, device=device, dtype=dtype)
    return model, [some.contiguous(memory_format=torch.channels_last) for some in pictures]


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures = state
    total = torch.zeros((), device=pictures[0].device)
    for step in range(steps):
        total += model(pictures[step % len(pictures)]).float().abs().mean()
    return total / steps


main(prepare, run, steps=200)
