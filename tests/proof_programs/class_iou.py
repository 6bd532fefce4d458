"""Validates a segmentation network: how well the areas of each class agree, over all pictures."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Decoder(nn.Module):
    """Makes scores of classes of the features of a picture."""

    def __init__(self, width, classes):
        super().__init__()
        self.mix = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU())
        self.classes = nn.Conv2d(width, classes, 1)

    def forward(self, x, size):
        return F.interpolate(self.classes(self.mix(x)), size, mode="bilinear")


def class_by_class(found, wanted, classes):
    """Return the pixels that both maps give to a class, and those that one of them does."""
    both, either = [], []
    for number in range(classes):
        a, b = found == number, wanted == number
        both.append((a & b).sum())
        either.append((a | b).sum())
    return torch.stack(both), torch.stack(either)


def by_confusion(found, wanted, classes):
    counts = torch.bincount((wanted * classes + found).flatten(), minlength=classes**2)
    counts = counts.view(classes, classes)
    both = counts.diagonal()
    return both, counts.sum(0) + counts.sum(1) - both


def prepare(device, repaired):
    batch, width, size, classes = (8, 128, 512, 64) if device == "cuda" else (1, 8, 16, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    decoder = Decoder(width, classes).to(device, dtype).eval()
    features = torch.randn(batch, width, size // 4, size // 4, device=device, dtype=dtype)
    wanted = torch.randint(classes, (batch, size // 8, size // 8), device=device)
    return decoder, features, wanted.repeat_interleave(8, 1).repeat_interleave(8, 2), classes


@torch.inference_mode()
def run(state, steps, repaired):
    decoder, features, wanted, classes = state
    both = either = 0
    for _ in range(steps):
        found = decoder(features, wanted.shape[1:]).argmax(1)
        agree, cover = (by_confusion if repaired else class_by_class)(found, wanted, classes)
        both, either = both + agree, either + cover
    return (both / either.clamp(min=1)).mean()


main(prepare, run, steps=60)
