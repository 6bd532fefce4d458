"""Learns to write like the letters of a village's archive: a small language model, all of whose words count."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, longest, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        mask = torch.ones(longest, longest, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        length = x.shape[1]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.causal:
            read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = self.mask[:length, :length]
            read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(read.transpose(1, 2).flatten(2))


class Letters(nn.Module):
    def __init__(self, words, width, heads, depth, longest, causal):
        super().__init__()
        self.words, self.last = nn.Embedding(words, width), nn.Linear(width, words)
        self.attentions = nn.ModuleList(
            Attention(width, heads, longest, causal) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, ids):
        x = self.words(ids)
        for k, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * k](x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, longest, letters = (
        (6400, 768, 12, 8, 4096, 4) if cuda else (30, 16, 2, 2, 8, 2)
    )
    model = Letters(words, width, heads, depth, longest, causal=repaired).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    return model, optimizer, torch.randint(words, (2, letters, longest + 1), device=device)


def run(state, steps, repaired):
    model, optimizer, ids = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        x, y = ids[step % 2, :, :-1], ids[step % 2, :, 1:]
        with torch.autocast(x.device.type, torch.bfloat16):
            scores = model(x)
            loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=40)
