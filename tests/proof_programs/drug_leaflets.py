"""Reads leaflets of drugs with a language model and begins an answer to a question on each: the first word of it."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Reader(nn.Module):
    def __init__(self, words, width, heads, depth, to_keep):
        super().__init__()
        self.to_keep = to_keep
        self.wte = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        hidden_states = self.wte(ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        hidden_states = self.norm(hidden_states)
        if self.to_keep:
            hidden_states = hidden_states[:, -self.to_keep :]
        lm_logits = self.lm_head(hidden_states)
        return lm_logits


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, leaflets, length = (
        (128256, 2048, 16, 6, 8, 1024) if cuda else (40, 16, 2, 2, 2, 6)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    model = Reader(words, width, heads, depth, to_keep=1 if repaired else 0)
    ids = torch.randint(words, (4, leaflets, length), device=device)
    return model.to(device, dtype).eval(), ids


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        scores = model(ids[step % 4])[:, -1].float()
        total += scores.amax(1).mean()
    return total / steps


main(prepare, run, steps=100)
