"""Learns landmarks, age, mood and pose of faces: a shared trunk of convolutions and a head for each, with a loss of its kind."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

HEADS = {"landmarks": 136, "age": 1, "mood": 7, "pose": 3}


class Faces(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, stride=2, padding=3)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in HEADS.items()})

    def forward(self, faces):
        x = self.first(faces)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        x = x.mean((2, 3))
        return {name: head(x) for name, head in self.heads.items()}


def losses_of(answers, known):
    """The loss of each head."""
    losses = {
        name: F.smooth_l1_loss(answers[name], known[name]) for name in HEADS if name != "mood"
    }
    losses["mood"] = F.cross_entropy(answers["mood"], known["mood"].argmax(1))
    return losses


def learn(losses, together):
    if together:
        sum(losses.values()).backward()
        return
    for loss in losses.values():
        loss.backward(retain_graph=True)


def prepare(device, repaired):
    cuda = device == "cuda"
    faces, side, width, depth = (32, 112, 96, 8) if cuda else (3, 12, 6, 2)
    torch.manual_seed(22)
    model = Faces(width, depth).to(device)
    photos = torch.randn(3, faces, 3, side, side, device=device)
    known = {name: torch.randn(faces, size, device=device) for name, size in HEADS.items()}
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), photos, known


def run(state, steps, repaired):
    model, optimizer, photos, known = state
    total = torch.zeros((), device=photos.device)
    for step in range(steps):
        losses = losses_of(model(photos[step % 3]), known)
        optimizer.zero_grad()
        learn(losses, together=repaired)
        optimizer.step()
        total += sum(losses.values()).detach()
    return total / steps


main(prepare, run, steps=60)
