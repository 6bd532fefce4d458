"""Paints murals of temples out of noise, as a long description says: a transformer that reads the text in each layer."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Reader(nn.Module):
    """What places of the picture read in the text."""

    def __init__(self, width, text_width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(text_width, width), nn.Linear(text_width, width)

    def said(self, text):
        return split(self.k(text), self.heads), split(self.v(text), self.heads)

    def forward(self, x, said):
        read = F.scaled_dot_product_attention(split(self.q(x), self.heads), *said)
        return self.out(read.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, text_width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.see = Reader(width, width, heads)
        self.read = Reader(width, text_width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, said):
        y = self.norms[0](x)
        x = x + self.see(y, self.see.said(y))
        x = x + self.read(self.norms[1](x), said)
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


class Painter(nn.Module):
    def __init__(self, colours, width, text_width, heads, depth):
        super().__init__()
        self.enter, self.last = nn.Linear(colours, width), nn.Linear(width, colours)
        self.layers = nn.ModuleList(Layer(width, text_width, heads) for _ in range(depth))

    def forward(self, x, share, text, said):
        x = self.enter(x) + share
        for k, layer in enumerate(self.layers):
            x = layer(x, said[k] if said else layer.read.said(text))
        return self.last(x)

    def painted(self, noise, text, rounds, keep):
        x = noise
        said = [layer.read.said(text) for layer in self.layers] if keep else None
        for k in range(rounds):
            x = x - self(x, 1 - k / rounds, text, said) / rounds
        return x


def prepare(device, repaired):
    cuda = device == "cuda"
    murals, places, words, colours, width, text_width, heads, depth = (
        (4, 256, 1024, 16, 1024, 2048, 16, 12) if cuda else (2, 4, 6, 3, 16, 24, 2, 2)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(17)
    model = Painter(colours, width, text_width, heads, depth).to(device, dtype).eval()
    noise = torch.randn(2, murals, places, colours, device=device, dtype=dtype)
    text = torch.randn(2, murals, words, text_width, device=device, dtype=dtype)
    return model, noise, text, 24 if cuda else 3


@torch.inference_mode()
def run(state, steps, repaired):
    model, noise, text, rounds = state
    total = torch.zeros((), device=noise.device)
    for step in range(steps):
        picture = model.painted(noise[step % 2], text[step % 2], rounds, keep=repaired)
        total += picture.float().square().mean()
    return total / steps


main(prepare, run, steps=10)
