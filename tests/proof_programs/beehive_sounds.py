"""Learns from sounds of beehives, with an optimizer of the author's that follows gradients and how they change."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Follower:
    """Steps along means of gradients and of their differences, scaled by a mean of squares."""

    def __init__(self, params, lr, at_once):
        self.params, self.lr, self.at_once = list(params), lr, at_once
        zeros = lambda: [torch.zeros_like(p) for p in self.params]  # noqa: E731
        self.means, self.changes, self.squares, self.before = zeros(), zeros(), zeros(), zeros()

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.params]
        if self.at_once:
            self.step_all(grads)
            return
        for at, p in enumerate(self.params):
            grad, mean, square = grads[at], self.means[at], self.squares[at]
            change = grad - self.before[at]
            mean.lerp_(grad, 0.02)
            self.changes[at].lerp_(change, 0.08)
            ahead = grad + 0.92 * change
            square.mul_(0.99).addcmul_(ahead, ahead, value=0.01)
            scale = square.sqrt().add_(1e-4)
            p.addcdiv_(mean + 0.92 * self.changes[at], scale, value=-self.lr)
            self.before[at].copy_(grad)

    def step_all(self, grads):
        changes = torch._foreach_sub(grads, self.before)
        torch._foreach_lerp_(self.means, grads, 0.02)
        torch._foreach_lerp_(self.changes, changes, 0.08)
        ahead = torch._foreach_add(grads, changes, alpha=0.92)
        torch._foreach_mul_(self.squares, 0.99)
        torch._foreach_addcmul_(self.squares, ahead, ahead, value=0.01)
        scales = torch._foreach_sqrt(self.squares)
        torch._foreach_add_(scales, 1e-4)
        ways = torch._foreach_add(self.means, self.changes, alpha=0.92)
        torch._foreach_addcdiv_(self.params, ways, scales, value=-self.lr)
        torch._foreach_copy_(self.before, grads)


class Listener(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth)
        )

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.last(x)


def prepare(device, repaired):
    inputs, width, depth, batch = (128, 256, 24, 512) if device == "cuda" else (4, 8, 3, 6)
    torch.manual_seed(17)
    listener = Listener(inputs, width, depth).to(device)
    optimizer = Follower(listener.parameters(), 1e-5, at_once=repaired)
    sounds = torch.randn(4, batch, inputs, device=device)
    return listener, optimizer, sounds, (sounds[..., 0] > 0).long()


def run(state, steps, repaired):
    listener, optimizer, sounds, swarm = state
    total = torch.zeros((), device=sounds.device)
    for step in range(steps):
        loss = F.cross_entropy(listener(sounds[step % 4]), swarm[step % 4])
        listener.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
