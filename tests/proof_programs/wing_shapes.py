"""Learns shapes of insects' wings without names: a student copies a teacher, which follows the student slowly."""

import copy

import torch
from common import main
from torch import nn


class Wings(nn.Module):
    def __init__(self, points, width, depth):
        super().__init__()
        self.first = nn.Linear(points, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + torch.relu(layer(norm(x)))
        return x.log_softmax(1)


@torch.no_grad()
def update_momentum(student, teacher, m, together):
    if together:
        torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - m)
        return
    for model_ema, model in zip(teacher.parameters(), student.parameters(), strict=True):
        model_ema.data = model_ema.data * m + model.data * (1.0 - m)


def prepare(device, repaired):
    sizes, count = ((256, 512, 80), 2048) if device == "cuda" else ((6, 8, 2), 5)
    torch.set_float32_matmul_precision("high")
    student = Wings(*sizes).to(device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5, fused=True)
    return student, teacher, optimizer, torch.randn(4, 2, count, sizes[0], device=device)


def run(state, steps, repaired):
    student, teacher, optimizer, wings = state
    total = torch.zeros((), device=wings.device)
    for step in range(steps):
        one, other = wings[step % 4]
        with torch.no_grad():
            aim = teacher(one).exp()
        loss = -(aim * student(other)).sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update_momentum(student, teacher, 0.996, together=repaired)
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
