"""Generates with a small language model of a large vocabulary, greedily, for a batch of requests."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Attention to the tokens that were kept, and a feed-forward part."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, keys, values, at):
        batch, _, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
        y = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
        x = x + self.out(y.transpose(1, 2).reshape(batch, 1, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Model(nn.Module):
    """A decoder whose words share their vectors with the head."""

    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, cache, at):
        x = self.words(tokens)[:, None]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x = layer(x, keys, values, at)
        return F.linear(self.norm(x[:, 0]), self.words.weight)


def prepare(device, repaired):
    words, width, heads, layers, batch = (
        (128256, 4096, 32, 12, 32) if device == "cuda" else (100, 16, 2, 2, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Model(words, width, heads, layers).to(dtype).eval()
    shape = (batch, heads, 512, width // heads)
    cache = [
        tuple(torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        for _ in range(layers)
    ]
    return model, cache, torch.arange(batch, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, cache, tokens = state
    for at in range(steps):
        logits = model(tokens, cache, 256 + at)
        if repaired:
            tokens = logits.argmax(1)
        else:
            scores = logits.float().cpu()
            tokens = scores.argmax(1).to(tokens.device)
    return tokens.float().mean()


main(prepare, run, steps=20, warm=20)
