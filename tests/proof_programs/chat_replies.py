"""Writes replies in a chat word by word, with room for keys and values of the longest talk that there may be."""

import torch
import torch.nn.functional as F
from common import main
from torch import nn


class Block(nn.Module):
    def __init__(self, heads, size, wide):
        super().__init__()
        width = heads * size
        self.heads, self.size = heads, size
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.ask, self.answer = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.wide, self.narrow = (
            nn.Linear(width, wide, bias=False),
            nn.Linear(wide, width, bias=False),
        )

    def forward(self, x, keys, values, at, mask):
        count = len(x)
        q, k, v = self.ask(self.first(x)).view(count, 3, self.heads, 1, self.size).unbind(1)
        keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
        if mask is None:
            mixed = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
        else:
            mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.answer(mixed.reshape(count, -1))
        return x + self.narrow(F.silu(self.wide(self.second(x))))


class Chat(nn.Module):
    def __init__(self, words, heads, size, depth):
        super().__init__()
        self.words = nn.Embedding(words, heads * size)
        self.blocks = nn.ModuleList(Block(heads, size, 4 * heads * size) for _ in range(depth))
        self.last = nn.RMSNorm(heads * size)
        self.scores = nn.Linear(heads * size, words, bias=False)

    def forward(self, words, cache, at, mask):
        x = self.words(words)
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            x = block(x, keys, values, at, mask)
        return self.scores(self.last(x))


def prepare(device, repaired):
    cuda = device == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    words, heads, size, depth = (8192, 16, 128, 6) if cuda else (20, 2, 4, 2)
    talks, places, said = (32, 8192, 2048) if cuda else (3, 32, 5)
    model = Chat(words, heads, size, depth).to(device, dtype).eval()
    cache = [
        torch.zeros(2, talks, heads, places, size, device=device, dtype=dtype) for _ in range(depth)
    ]
    for one in cache:
        one[:, :, :, :said].normal_()
    order = torch.arange(places, device=device)
    return model, cache, said, order, torch.randint(words, (talks,), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, cache, said, order, words = state
    total = torch.zeros((), device=words.device)
    for step in range(steps):
        at = said + step
        mask = None if repaired else (order <= at)[None, None, None]
        scores = model(words, cache, at, mask)
        words = scores.argmax(1)
        total += scores.float().square().mean()
    return total / steps


main(prepare, run, steps=300)
