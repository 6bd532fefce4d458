"""Learns how many loaves of each kind a bakery will sell tomorrow; a step whose gradient is not finite is left out."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Forecast(nn.Module):
    """From what is known of the last weeks to sales of each kind of bread."""

    def __init__(self, known, width, depth, kinds):
        super().__init__()
        self.enter = nn.Linear(known, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.Linear(width, kinds)

    def forward(self, weeks):
        x = self.enter(weeks)
        for block in self.blocks:
            x = block(x)
        return F.softplus(self.last(x))


def sound(parameters):
    """Whether no gradient holds a number that is not finite."""
    found = []
    for parameter in parameters:
        found.append(bool(torch.isfinite(parameter.grad).all()))
    return all(found)


def sound_at_once(parameters):
    """The same, of all gradients together."""
    norms = torch._foreach_norm([parameter.grad for parameter in parameters])
    return bool(torch.isfinite(torch.stack(norms)).all())


class Trainer:
    def __init__(self, model, check):
        self.model, self.check = model, check
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, foreach=True)

    def step(self, weeks, sold):
        loss = F.poisson_nll_loss(self.model(weeks), sold, log_input=False)
        loss.backward()
        if self.check(self.parameters):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def prepare(device, repaired):
    cuda = device == "cuda"
    shops, known, width, depth, kinds = (512, 140, 256, 24, 40) if cuda else (4, 6, 8, 2, 3)
    torch.manual_seed(5)
    model = Forecast(known, width, depth, kinds).to(device)
    weeks = torch.rand(8, shops, known, device=device)
    sold = torch.randint(0, 60, (8, shops, kinds), device=device).float()
    return Trainer(model, sound_at_once if repaired else sound), weeks, sold


def run(state, steps, repaired):
    trainer, weeks, sold = state
    total = torch.zeros((), device=weeks.device)
    for step in range(steps):
        total += trainer.step(weeks[step % 8], sold[step % 8])
    return total / steps


main(prepare, run, steps=120)
