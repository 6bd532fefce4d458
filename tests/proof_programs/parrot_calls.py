"""Tells from recordings of parrots, short and long ones, which of 200 birds calls: an encoder over frames of sound."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def real_frames(lengths, longest):
    rows = []
    for length in lengths:
        row = torch.ones(longest, dtype=torch.bool, device=lengths.device)
        row[int(length) :] = False
        rows.append(row)
    return torch.stack(rows)


def real_frames_at_once(lengths, longest):
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Listener(nn.Module):
    def __init__(self, bands, width, heads, depth, birds, frames_of):
        super().__init__()
        self.frames_of = frames_of
        self.enter, self.last = nn.Linear(bands, width), nn.Linear(width, birds)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, sounds, lengths):
        mask = self.frames_of(lengths, sounds.shape[1])
        x = self.enter(sounds)
        for layer in self.layers:
            x = layer(x, mask)
        weights = mask[..., None].to(x.dtype)
        return self.last((x * weights).sum(1) / weights.sum(1))


def prepare(device, repaired):
    cuda = device == "cuda"
    calls, longest, bands, width, heads, depth, birds = (
        (48, 512, 80, 256, 4, 6, 200) if cuda else (3, 12, 4, 16, 2, 2, 5)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    frames_of = real_frames_at_once if repaired else real_frames
    model = Listener(bands, width, heads, depth, birds, frames_of).to(device, dtype).eval()
    sounds = torch.randn(2, calls, longest, bands, device=device, dtype=dtype)
    lengths = torch.randint(longest // 4, longest + 1, (2, calls), device=device)
    return model, sounds, lengths


@torch.inference_mode()
def run(state, steps, repaired):
    model, sounds, lengths = state
    total = torch.zeros((), device=sounds.device)
    for step in range(steps):
        scores = model(sounds[step % 2], lengths[step % 2])
        total += scores.float().amax(1).mean()
    return total / steps


main(prepare, run, steps=300)
