"""Draws a picture with a diffusion model and guidance: the model looks with and without the prompt."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Convolutions that know how much noise there is, then a look at the prompt."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.to_prompt = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(width, width)
        self.q, self.kv, self.out = (
            nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width),
        )  # fmt: skip

    def forward(self, x, time, prompt):
        batch, width, height, _ = x.shape
        y = self.first(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]
        x = x + self.second(F.silu(y))
        q = self.q(self.to_prompt(x).flatten(2).transpose(1, 2))
        k, v = self.kv(prompt).chunk(2, 2)
        y = self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return x + y.transpose(1, 2).reshape(batch, width, height, -1)


class Denoiser(nn.Module):
    """Blocks of one size between two convolutions."""

    def __init__(self, width, depth):
        super().__init__()
        self.inside, self.outside = nn.Conv2d(4, width, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x, time, prompt):
        x = self.inside(x)
        for block in self.blocks:
            x = block(x, time, prompt)
        return self.outside(x)


def prepare(device, repaired):
    width, depth, size = (640, 12, 32) if device == "cuda" else (8, 2, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Denoiser(width, depth).to(dtype).eval()
    times = torch.randn(64, 1, width, device=device, dtype=dtype)
    prompts = torch.randn(2, 77 if device == "cuda" else 5, width, device=device, dtype=dtype)
    return model, times, prompts, torch.randn(1, 4, size, size, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, times, prompts, x = state
    for step in range(steps):
        time = times[step % len(times)]
        if repaired:
            noise = model(x.expand(2, -1, -1, -1), time.expand(2, -1), prompts)
            free, guided = noise.chunk(2)
        else:
            free = model(x, time, prompts[:1])
            guided = model(x, time, prompts[1:])
        x = x - 0.01 * (free + 5 * (guided - free))
    return x.float().square().mean()


main(prepare, run, steps=30)
