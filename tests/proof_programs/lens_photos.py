"""Takes the blur of a lens out of large photographs, with convolutions and norms over whole photographs."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    """Brings each photograph to mean 0 and deviation 1: as one group, or from its moments."""

    def __init__(self, width, moments):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.moments = moments

    def forward(self, x):
        if not self.moments:
            return F.group_norm(x, 1, self.weight, self.bias)
        var, mean = torch.var_mean(x.flatten(1), 1, correction=0)
        scale = self.weight * (var + 1e-5).rsqrt()[:, None]
        shift = self.bias - mean[:, None] * scale
        return torch.addcmul(shift[:, :, None, None], x, scale[:, :, None, None])


class Sharpen(nn.Module):
    def __init__(self, width, depth, moments):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(Norm(width, moments) for _ in range(depth))

    def forward(self, photos):
        x = self.first(photos)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return photos + self.last(x)


def prepare(device, repaired):
    count, size, width, depth = (2, 768, 32, 4) if device == "cuda" else (2, 8, 4, 2)
    model = Sharpen(width, depth, moments=repaired).to(device).eval()
    return model, torch.rand(4, count, 3, size, size, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, photos = state
    total = torch.zeros((), device=photos.device)
    for step in range(steps):
        total += model(photos[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=200)
