"""Embeds proteins with an encoder whose blocks were checked for overflow while it was ported to half precision."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.checked = heads, True
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def sound(self, x, where):
        if self.checked:
            assert torch.isfinite(x).all(), f"overflow after {where}"
        return x

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        mixed = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
        x = self.sound(x + self.out(mixed.transpose(1, 2).flatten(2)), "attention")
        return self.sound(
            x + self.down(F.gelu(self.up(self.norms[1](x)))), "the feed-forward network"
        )


def prepare(device, repaired):
    width, heads, depth, batch, length = (
        (480, 15, 12, 8, 384) if device == "cuda" else (16, 2, 2, 2, 8)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = nn.ModuleList(Block(width, heads) for _ in range(depth)).to(device, dtype).eval()
    for block in blocks:
        block.checked = not repaired
    table = nn.Embedding(32, width).to(device, dtype)
    proteins = torch.randint(32, (8, batch, length), device=device)
    return table, blocks, proteins


@torch.inference_mode()
def run(state, steps, repaired):
    table, blocks, proteins = state
    total = torch.zeros((), device=proteins.device)
    for step in range(steps):
        x = table(proteins[step % len(proteins)])
        for block in blocks:
            x = block(x)
        total += x.mean(1).float().square().mean()
    return total / steps


main(prepare, run, steps=250)
