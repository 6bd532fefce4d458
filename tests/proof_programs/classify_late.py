"""Says what each pixel of street scenes belongs to."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Segmenter(nn.Module):
    """Features at an eighth of the resolution; classes for all pixels."""

    def __init__(self, width, classes, late):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width // 4, 7, 4, 3), nn.ReLU(), nn.Conv2d(width // 4, width, 3, 2, 1)
        )
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(6))
        self.classes = nn.Conv2d(width, classes, 1)
        self.late = late

    def forward(self, pictures):
        x = F.relu(self.stem(pictures))
        for block in self.blocks:
            x = x + F.relu(block(x))
        if not self.late:
            x = self.classes(x)
        x = F.interpolate(x, size=pictures.shape[-2:], mode="bilinear", align_corners=False)
        return self.classes(x) if self.late else x


def prepare(device, repaired):
    batch, height, width, features = (4, 512, 1024, 256) if device == "cuda" else (1, 32, 64, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Segmenter(features, 19, not repaired).to(device, dtype).eval()
    pictures = torch.randn(batch, 3, height, width, device=device, dtype=dtype)
    layout = torch.channels_last
    return model.to(memory_format=layout), pictures.to(memory_format=layout)


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures = state
    for _ in range(steps):
        scores = model(pictures)
        label = scores.argmax(1)
    return scores.float().square().mean() + (label < 0).float().mean()


main(prepare, run, steps=20)
