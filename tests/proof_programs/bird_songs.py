"""Learns to tell birds by their songs from few that have a name: a slow average of the network teaches for the others."""

import torch
from common import main
from torch import nn


class Songs(nn.Module):
    def __init__(self, sounds, width, depth, birds):
        super().__init__()
        self.first, self.last = nn.Linear(sounds, width), nn.Linear(width, birds)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + torch.relu(layer(norm(x)))
        return self.last(x)


class Average:
    """The average of a network: its numbers, to be put into the network, or a network of its own."""

    def __init__(self, net, make, apart):
        self.net, self.other = net, None
        self.numbers = {name: value.clone() for name, value in net.state_dict().items()}
        if apart:
            self.other = make()
            self.other.load_state_dict(self.numbers, assign=True)

    @torch.no_grad()
    def guess(self, songs):
        if self.other is not None:
            return self.other(songs)
        now = {name: value.clone() for name, value in self.net.state_dict().items()}
        self.net.load_state_dict(self.numbers)
        guessed = self.net(songs)
        self.net.load_state_dict(now)
        return guessed

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.numbers.values()), list(self.net.parameters()), 0.01)


def prepare(device, repaired):
    sizes = (512, 2048, 40, 200) if device == "cuda" else (6, 8, 2, 5)
    count = 384 if device == "cuda" else 5
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    songs = torch.randn(4, 2, count, sizes[0], device=device)
    net = Songs(*sizes).to(device)
    average = Average(net, lambda: Songs(*sizes).to(device).requires_grad_(False), apart=repaired)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    return net, average, optimizer, songs


def run(state, steps, repaired):
    net, average, optimizer, songs = state
    total = torch.zeros((), device=songs.device)
    for step in range(steps):
        heard, disturbed = songs[step % 4]
        target = average.guess(heard).softmax(1)
        loss = nn.functional.cross_entropy(net(heard + 0.1 * disturbed), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.follow()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=100)
