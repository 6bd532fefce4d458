"""Plans how a hand opens a drawer: from noise to sixteen moves in twenty rounds, given what a camera saw."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.shift = nn.Linear(width, 2 * width)

    def forward(self, x, known):
        scale, shift = self.shift(F.silu(known)).chunk(2, -1)
        y = self.norms[0](x) * (1 + scale) + shift
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Expert(nn.Module):
    def __init__(self, parts, width, heads, depth):
        super().__init__()
        self.enter, self.last = nn.Linear(parts, width), nn.Linear(width, parts)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def forward(self, moves, time, scene):
        known, x = scene + self.time(time), self.enter(moves)
        for block in self.blocks:
            x = block(x, known)
        return self.last(x)


class Replayed:
    """The expert for moves of one shape, recorded once on a GPU."""

    def __init__(self, expert, *inputs):
        self.expert, self.graph = expert, None
        if inputs[0].device.type != "cuda":
            return
        self.inputs = [value.clone() for value in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                expert(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = expert(*self.inputs)

    def __call__(self, *inputs):
        if self.graph is None:
            return self.expert(*inputs)
        for to, value in zip(self.inputs, inputs, strict=True):
            to.copy_(value)
        self.graph.replay()
        return self.output


@torch.inference_mode()
def prepare(device, repaired):
    cuda = device == "cuda"
    parts, width, heads, depth, rounds = (8, 256, 4, 6, 20) if cuda else (3, 16, 2, 2, 3)
    expert = Expert(parts, width, heads, depth).to(device).eval()
    noise, scenes = torch.randn(1, 16, parts, device=device), torch.randn(4, 1, 1, width)
    times = torch.linspace(1, 0, rounds + 1, device=device).view(-1, 1, 1, 1)
    scenes = scenes.to(device)
    if repaired:
        expert = Replayed(expert, noise, times[0], scenes[0])
    return expert, noise, scenes, times


@torch.inference_mode()
def run(state, steps, repaired):
    expert, noise, scenes, times = state
    total = torch.zeros((), device=noise.device)
    for step in range(steps):
        moves, scene = noise, scenes[step % len(scenes)]
        for now, then in zip(times[:-1], times[1:], strict=True):
            moves = moves + (then - now) * expert(moves, now, scene)
        total += moves.abs().mean()
    return total / steps


main(prepare, run, steps=50)
