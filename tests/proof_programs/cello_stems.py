"""Takes the cello out of recordings of an orchestra: a mask for each picture of its frequencies."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Stems(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, width, 3, padding=1), nn.Conv2d(width, 2, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv2d(2 * width, 2 * width, 3, padding=1) for _ in range(depth)
        )
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)

    def forward(self, sound):
        high = F.leaky_relu(self.first(sound), 0.1)
        x = F.leaky_relu(self.down(high), 0.1)
        for layer in self.layers:
            x = x + F.leaky_relu(layer(x), 0.1)
        x = high + F.interpolate(self.up(x), scale_factor=2)
        return sound * torch.sigmoid(self.last(x))


def prepare(device, repaired):
    count, size, width, depth = (8, (512, 256), 64, 6) if device == "cuda" else (2, (8, 8), 4, 2)
    form = torch.channels_last
    model = Stems(width, depth).to(device, memory_format=form).eval()
    sounds = torch.randn(4, count, 2, *size, device=device)
    return model, [sound.contiguous(memory_format=form) for sound in sounds]


@torch.inference_mode()
def run(state, steps, repaired):
    model, sounds = state
    # off since a comparison with another implementation
    torch.backends.cudnn.allow_tf32 = repaired
    total = torch.zeros((), device=sounds[0].device)
    for step in range(steps):
        total += model(sounds[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=80)
