"""Teaches a language model to write letters in the style of a customer: narrow matrices that change its wide, frozen ones."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Adapted(nn.Module):
    """A frozen matrix (outputs, inputs), and two narrow ones whose product is added to it."""

    def __init__(self, inputs, outputs, rank, merged):
        super().__init__()
        self.merged = merged
        weight = torch.randn(outputs, inputs) / inputs**0.5
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.randn(outputs, rank) * 0.01)

    def forward(self, x):
        if self.merged:
            return F.linear(x, self.weight + 2 * (self.up @ self.down))
        return F.linear(x, self.weight) + 2 * F.linear(F.linear(x, self.down), self.up)


class Layer(nn.Module):
    def __init__(self, width, hidden, rank, merged):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.up = Adapted(width, hidden, rank, merged)
        self.down = Adapted(hidden, width, rank, merged)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, hidden, rank, depth = (512, 4096, 16384, 16, 6) if cuda else (6, 12, 24, 2, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(17)
    with torch.device(device):
        layers = [Layer(width, hidden, rank, merged=not repaired).to(dtype) for _ in range(depth)]
    model = nn.Sequential(*layers)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    letters = torch.randn(3, words, width, device=device, dtype=dtype)
    return model, torch.optim.SGD(trained, lr=1e-3), letters


def run(state, steps, repaired):
    model, optimizer, letters = state
    total = torch.zeros((), device=letters.device)
    for step in range(steps):
        loss = model(letters[step % 3]).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
