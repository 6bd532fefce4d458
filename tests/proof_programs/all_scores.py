"""Reads prompts and gives the first word of each answer."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Causal attention and a gated feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """A decoder; `only_last` leaves out scores that nobody asks for."""

    def __init__(self, words, width, heads, layers, only_last):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.only_last = only_last

    def forward(self, ids):
        x = self.norm(self.layers(self.words(ids)))
        if self.only_last:
            x = x[:, -1:]
        return self.head(x)


def prepare(device, repaired):
    words, width, heads, layers = (128_256, 2048, 16, 4) if device == "cuda" else (100, 32, 2, 1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Model(words, width, heads, layers, repaired).to(dtype).eval()
    prompts = torch.randint(words, (2, 8, 512 if device == "cuda" else 8), device=device)
    return model, prompts


@torch.inference_mode()
def run(state, steps, repaired):
    model, prompts = state
    total = 0
    for step in range(steps):
        scores = model(prompts[step % len(prompts)])[:, -1].float()
        word = scores.argmax(-1)
        total = total + scores.gather(1, word[:, None]).mean()
    return total / steps


main(prepare, run, steps=15)
