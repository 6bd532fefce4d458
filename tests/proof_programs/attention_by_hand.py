"""The denoising loop of a small diffusion model with self-attention over the pixels."""

import torch
from common import main
from torch import nn


class Attention(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x, repaired):
        b, c, h, w = x.shape
        q, k, v = (
            self.qkv(x).view(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        )
        if repaired:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            weights = torch.softmax(q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5, -1)
            y = weights @ v
        return x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))


def prepare(device, repaired):
    c, size, batch = (256, 64, 4) if device == "cuda" else (8, 4, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = nn.ModuleList(
        [
            nn.Conv2d(3, c, 3, padding=1),
            Attention(c, 4),
            nn.Conv2d(c, c, 3, padding=1),
            Attention(c, 4),
            nn.Conv2d(c, 3, 3, padding=1),
        ]
    ).to(device, dtype)
    return model, torch.randn(batch, 3, size, size, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    model, noise = state
    x = noise
    for _ in range(steps):
        h = model[0](x)
        h = model[2](nn.functional.silu(model[1](h, repaired)))
        x = 0.98 * x - 0.02 * model[4](nn.functional.silu(model[3](h, repaired)))
    return x.float().square().mean()


main(prepare, run, steps=50)
