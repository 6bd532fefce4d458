"""Transcribes speech with an encoder some of whose blocks were pruned; which ones, a checkpoint says in a buffer."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Gate(nn.Module):
    """Weighs the channels by what the whole utterance sounds like (squeeze and excitation)."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.down, self.up = (
            nn.LayerNorm(width),
            nn.Linear(width, inner),
            nn.Linear(inner, width),
        )
        self.slope = nn.Parameter(torch.ones(width))

    def forward(self, x):
        mean = x.mean(1)
        deviation = (mean - mean.mean(1, keepdim=True)).abs().mean(1, keepdim=True)
        mean = self.norm(mean / (1 + deviation))
        mean = self.up(F.silu(self.down(mean)))
        return torch.sigmoid(mean * self.slope).clamp(0.05, 0.95)[:, None]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.gate = heads, Gate(width, width // 8)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        weights = self.gate(x)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        mixed = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
        x = x + weights * self.out(mixed.transpose(1, 2).flatten(2))
        return x + 0.5 * self.down(F.silu(self.up(x)))


class Encoder(nn.Module):
    """Blocks of which only those are run that pruning has left."""

    def __init__(self, width, heads, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.register_buffer("kept", torch.tensor([i % 6 != 4 for i in range(depth)]))
        self.listed = None

    def list_blocks(self):
        """Read the buffer once, into numbers that Python has at hand."""
        self.listed = self.kept.tolist()

    def forward(self, x):
        flags = self.kept if self.listed is None else self.listed
        for number, block in enumerate(self.blocks):
            if flags[number]:
                x = block(x)
        return x


def prepare(device, repaired):
    width, heads, depth, batch, length = (
        (1024, 16, 24, 4, 640) if device == "cuda" else (32, 2, 7, 2, 8)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    encoder = Encoder(width, heads, depth).to(device, dtype).eval()
    if repaired:
        encoder.list_blocks()
    letters = nn.Linear(width, 64).to(device, dtype)
    sound = torch.randn(4, batch, length, width, device=device).to(dtype)
    return encoder, letters, sound


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, letters, sound = state
    total = torch.zeros((), device=sound.device)
    for step in range(steps):
        total += letters(encoder(sound[step % 4])).float().log_softmax(-1).amax(-1).mean()
    return total / steps


main(prepare, run, steps=220)
