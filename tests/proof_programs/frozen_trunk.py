"""Teaches a new head to a transformer that somebody else has trained; the transformer stays as it is."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Trunk(nn.Module):
    """Turns patches of pictures into vectors."""

    def __init__(self, patch, width, layers, length):
        super().__init__()
        block = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.patches = nn.Linear(patch, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)

    def forward(self, patches):
        return self.blocks(self.patches(patches) + self.places)


class Head(nn.Module):
    """Says from the vectors of all patches what is to be seen."""

    def __init__(self, width, classes):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(width))
        self.net = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, classes)
        )

    def forward(self, seen):
        weight = torch.softmax(seen @ self.query.to(seen.dtype), 1)
        return self.net((weight[..., None] * seen).sum(1))


def prepare(device, repaired):
    width, layers, batch, length = (768, 12, 64, 196) if device == "cuda" else (16, 2, 2, 4)
    with torch.device(device):
        trunk = Trunk(768 if device == "cuda" else 12, width, layers, length)
        head = Head(width, 100)
    if repaired:
        trunk.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)
    pictures = torch.randn(batch, length, trunk.patches.in_features, device=device)
    return trunk, head, optimizer, pictures, torch.randint(100, (batch,), device=device)


def train(trunk, head, optimizer, pictures, labels):
    with torch.autocast(pictures.device.type, torch.bfloat16):
        seen = trunk(pictures)
        scores = head(seen)
    loss = F.cross_entropy(scores.float(), labels)
    loss.backward()
    optimizer.step()
    trunk.zero_grad()
    head.zero_grad()
    return loss.detach()


def run(state, steps, repaired):
    trunk, head, optimizer, pictures, labels = state
    for _ in range(steps):
        loss = train(trunk, head, optimizer, pictures, labels)
    return loss


main(prepare, run, steps=8)
