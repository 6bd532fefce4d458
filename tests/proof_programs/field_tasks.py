"""Trains one network for five questions about fields of crops seen from above: yield, weeds, water, nitrogen and harvest."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

TASKS = ("yield", "weeds", "water", "nitrogen", "harvest")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Fields(nn.Module):
    """A deep trunk over patches, and a head of one layer for each question."""

    def __init__(self, bands, width, depth):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.trunk = nn.ModuleList(Block(width) for _ in range(depth))
        self.heads = nn.ModuleDict({task: nn.Linear(width, 1) for task in TASKS})

    def forward(self, patches):
        x = self.first(patches)
        for block in self.trunk:
            x = block(x)
        x = x.mean(1)
        return {task: head(x)[:, 0] for task, head in self.heads.items()}


class Balance:
    """Weights of the questions, which follow how hard each has been of late."""

    def __init__(self, device):
        self.recent = {task: torch.ones((), device=device) for task in TASKS}

    def weigh(self, losses):
        weighed = {}
        for task, loss in losses.items():
            self.recent[task] = 0.99 * self.recent[task] + 0.01 * loss.detach()
            weighed[task] = loss / self.recent[task].clamp(min=0.1)
        return weighed


def derive(losses, together):
    """Add the gradients of all losses to those of the weights."""
    if together:
        sum(losses.values()).backward()
        return
    for loss in losses.values():
        loss.backward(retain_graph=True)


def prepare(device, repaired):
    batch, patches, bands, width, depth = (
        (64, 196, 48, 768, 8) if device == "cuda" else (4, 6, 8, 16, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Fields(bands, width, depth).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=device == "cuda")
    pictures = torch.randn(4, batch, patches, bands, device=device).to(dtype)
    truth = {task: torch.rand(batch, device=device) for task in TASKS}
    return model, optimizer, Balance(device), pictures, truth


def run(state, steps, repaired):
    model, optimizer, balance, pictures, truth = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        said = model(pictures[step % len(pictures)])
        losses = {task: F.mse_loss(said[task].float(), truth[task]) for task in TASKS}
        derive(balance.weigh(losses), together=repaired)
        optimizer.step()
        optimizer.zero_grad()
        total += sum(losses.values()).detach()
    return total / steps


main(prepare, run, steps=60)
