"""Goes on with pieces of music, note by note, and says how well notes that were written were foreseen."""

import contextlib

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x):
        count, notes, width = x.shape
        q, k, v = (
            self.inner(self.norms[0](x))
            .view(count, notes, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outer(mixed.transpose(1, 2).reshape(count, notes, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Music(nn.Module):
    def __init__(self, pitches, width, heads, depth):
        super().__init__()
        self.pitches = nn.Embedding(pitches, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, pitches)

    def forward(self, notes):
        return self.last(self.norm(self.blocks(self.pitches(notes))))


def prepare(device, repaired):
    pitches, width, heads, depth, count, long = (
        (512, 768, 12, 6, 4, 2049) if device == "cuda" else (9, 8, 2, 2, 2, 6)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Music(pitches, width, heads, depth).to(device, dtype).eval()
    return model, torch.randint(pitches, (4, count, long), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, pieces = state
    total = torch.zeros((), device=pieces.device)
    with contextlib.nullcontext() if repaired else sdpa_kernel(SDPBackend.MATH):
        for step in range(steps):
            notes = pieces[step % 4]
            scores = model(notes[:, :-1])
            total += F.cross_entropy(scores.flatten(0, 1).float(), notes[:, 1:].flatten())
    return total / steps


main(prepare, run, steps=60)
