"""Embeds rulings of courts, short and long ones, in batches: a batch is as long as its longest ruling."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, there):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        mixed = F.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), attn_mask=there[:, None, None, :]
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def make_batches(lengths, batch, by_length, device):
    """Return rows and the longest length of each batch; `by_length` puts rulings of alike lengths together."""
    order = (
        sorted(range(len(lengths)), key=lengths.__getitem__) if by_length else range(len(lengths))
    )
    groups = [list(order[at : at + batch]) for at in range(0, len(lengths), batch)]
    return [(torch.tensor(rows, device=device), max(lengths[r] for r in rows)) for rows in groups]


def prepare(device, repaired):
    words, width, heads, depth, count, batch, longest = (
        (30000, 768, 12, 6, 1024, 32, 1024) if device == "cuda" else (50, 16, 2, 1, 8, 2, 48)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(Layer(width, heads) for _ in range(depth)).to(device, dtype).eval()
    table = nn.Embedding(words, width).to(device, dtype)
    drawn = torch.exp(torch.randn(count) * 0.9) * longest / 6
    lengths = drawn.clamp(longest / 16, longest).int().tolist()
    texts = torch.randint(words, (count, longest), device=device)
    sizes = torch.tensor(lengths, device=device)
    return table, layers, texts, sizes, make_batches(lengths, batch, repaired, device)


@torch.inference_mode()
def run(state, steps, repaired):
    table, layers, texts, sizes, batches = state
    total = torch.zeros((), device=texts.device)
    for _ in range(steps):
        for rows, longest in batches:
            x = table(texts[rows, :longest])
            there = torch.arange(longest, device=texts.device) < sizes[rows, None]
            for layer in layers:
                x = layer(x, there)
            weights = there[..., None] / sizes[rows, None, None]
            total += (x.float() * weights).sum(1).square().mean() * len(rows) / len(texts)
    return total / steps


main(prepare, run, steps=4, warm=1)
