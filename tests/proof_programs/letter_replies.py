"""Writes replies to letters with a language model that keeps keys and values of what it has read."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x, memory, begin):
        count, words, width = x.shape
        q, k, v = (
            self.inner(self.norms[0](x))
            .view(count, words, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        memory[0, :, :, begin : begin + words] = k
        memory[1, :, :, begin : begin + words] = v
        keys, values = memory[:, :, :, : begin + words]
        mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=words > 1)
        x = x + self.outer(mixed.transpose(1, 2).reshape(count, words, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Writer(nn.Module):
    def __init__(self, vocabulary, width, heads, depth, longest, letters):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer(
            "memory", torch.zeros(depth, 2, letters, heads, longest, width // heads)
        )

    def forward(self, words, begin):
        x = self.words(words) + self.places.weight[begin : begin + words.shape[1]]
        for block, memory in zip(self.blocks, self.memory, strict=True):
            x = block(x, memory, begin)
        return self.last(self.norm(x[:, -1]))

    def read(self, letters, whole):
        if whole:
            return self(letters, 0)
        for at in range(letters.shape[1]):
            scores = self(letters[:, at : at + 1], at)
        return scores


def prepare(device, repaired):
    if device == "cuda":
        vocabulary, width, heads, depth, letters, long, reply = 16000, 512, 8, 8, 8, 224, 48
    else:
        vocabulary, width, heads, depth, letters, long, reply = 30, 8, 2, 2, 2, 6, 3
    model = Writer(vocabulary, width, heads, depth, long + reply, letters).to(device).eval()
    return model, torch.randint(vocabulary, (4, letters, long), device=device), reply


@torch.inference_mode()
def run(state, steps, repaired):
    model, letters, reply = state
    total = torch.zeros((), device=letters.device)
    for step in range(steps):
        letter = letters[step % 4]
        scores = model.read(letter, whole=repaired)
        for at in range(reply):
            best, words = scores.max(1, keepdim=True)
            total += best.mean()
            scores = model(words, letter.shape[1] + at)
    return total / steps / reply


main(prepare, run, steps=5)
