"""Teaches sheepdogs which whistle to obey: judges of commands learn from trials, and slow judges follow them."""

import copy

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def judge(seen, width, depth, commands):
    layers = [nn.Linear(seen, width), nn.LayerNorm(width), nn.SiLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, commands))


@torch.no_grad()
def follow_each(slow, quick, share):
    for late, early in zip(slow.parameters(), quick.parameters(), strict=True):
        late.data.copy_(share * early.data + (1 - share) * late.data)


@torch.no_grad()
def follow_together(slow, quick, share):
    torch._foreach_lerp_(list(slow.parameters()), list(quick.parameters()), share)


class Kennel:
    """Judges that learn, and slow ones that say what a trial is worth from its next moment on."""

    def __init__(self, judges, follow):
        self.quick, self.slow, self.follow = judges, copy.deepcopy(judges).requires_grad_(False), follow
        self.optimizer = torch.optim.Adam(judges.parameters(), lr=1e-4, fused=True)

    def learn(self, seen, command, reward, next_seen):
        with torch.no_grad():
            ahead = torch.stack([judge(next_seen) for judge in self.slow]).amin(0).amax(1)
            worth = reward + 0.97 * ahead
        said = torch.stack([judge(seen) for judge in self.quick])
        said = said.gather(2, command.expand(len(said), -1)[..., None])[..., 0]
        loss = F.mse_loss(said, worth.expand_as(said))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow(self.slow, self.quick, 0.005)
        return loss.detach()


def prepare(device, repaired):
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    trials, seen, width, depth, commands = (4096, 96, 768, 5, 12) if cuda else (4, 3, 8, 2, 3)
    torch.manual_seed(32)
    judges = nn.ModuleList(judge(seen, width, depth, commands) for _ in range(4)).to(device)
    kennel = Kennel(judges, follow_together if repaired else follow_each)
    views = torch.randn(3, trials, seen, device=device)
    spoken = torch.randint(0, commands, (3, trials), device=device)
    rewards = torch.rand(3, trials, device=device)
    return kennel, views, spoken, rewards


def run(state, steps, repaired):
    kennel, views, spoken, rewards = state
    total = torch.zeros((), device=views.device)
    for step in range(steps):
        at = step % 3
        total += kennel.learn(views[at], spoken[at], rewards[at], views[at - 1])
    return total / steps


main(prepare, run, steps=150)
