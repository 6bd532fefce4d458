"""Classifies pictures with a ConvNeXt-like network, in half precision."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A wide depthwise filter, a norm over channels, and two products for each pixel."""

    def __init__(self, width, stay):
        super().__init__()
        self.stay = stay
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.mix(x).permute(0, 2, 3, 1)
        if not self.stay:
            y = y.contiguous()
        y = self.down(F.gelu(self.up(self.norm(y)))).permute(0, 3, 1, 2)
        return x + (y if self.stay else y.contiguous())


class Net(nn.Module):
    """Cuts a picture into patches, looks at them in two stages, and judges it."""

    def __init__(self, widths, depth, classes, stay):
        super().__init__()
        self.patches = nn.Conv2d(3, widths[0], 4, 4)
        self.stages = nn.ModuleList()
        for at, width in enumerate(widths):
            if at:
                self.stages.append(nn.Conv2d(widths[at - 1], width, 2, 2))
            self.stages.extend(Block(width, stay) for _ in range(depth))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = self.patches(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def prepare(device, repaired):
    widths, size, batch = ((128, 256), 224, 64) if device == "cuda" else ((8, 16), 32, 2)
    dtype = torch.float16 if device == "cuda" else torch.float32
    layout = torch.channels_last if repaired else torch.contiguous_format
    model = Net(widths, 3, 100, repaired).to(device, dtype, memory_format=layout).eval()
    pictures = torch.randn(batch, 3, size, size, device=device, dtype=dtype)
    return model, pictures.to(memory_format=layout)


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures = state
    total = 0
    for _ in range(steps):
        total = total + model(pictures).float().square().mean()
    return total / steps


main(prepare, run, steps=10)
