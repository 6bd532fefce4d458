"""Runs the layer of a retention network over texts: each head has a state, a matrix that forgets and learns, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def retain(q, k, v, keep, o, length, D: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    row, column = tl.arange(0, D), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    at = head * length * D
    for word in range(length):
        key = tl.load(k + at + row).to(tl.float32)
        value = tl.load(v + at + column).to(tl.float32)
        query = tl.load(q + at + row).to(tl.float32)
        kept = tl.load(keep + head * length + word)
        state = state * kept + key[:, None] * value[None, :]
        said = tl.sum(state * query[:, None], axis=0)
        tl.store(o + at + column, said.to(o.dtype.element_ty))
        at += D


class Retention(nn.Module):
    """Heads that read a text word by word."""

    def __init__(self, width, heads, size, warps):
        super().__init__()
        self.heads, self.size, self.warps = heads, size, warps
        self.qkv = nn.Linear(width, 3 * heads * size, bias=False)
        self.out = nn.Linear(heads * size, width, bias=False)
        self.forget = nn.Linear(width, heads)

    def forward(self, x):
        batch, length = x.shape[:2]
        parts = self.qkv(x).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        q, k, v = (part.contiguous() for part in parts)
        keep = torch.sigmoid(self.forget(x).float() + 3).transpose(1, 2).contiguous()
        o = torch.empty_like(q)
        retain[(batch * self.heads,)](q, k, v, keep, o, length, D=self.size, num_warps=self.warps)
        return self.out(o.transpose(1, 2).flatten(2))


def prepare(device, repaired):
    batch, length, width, heads, size = (
        (64, 128, 512, 16, 128) if device == "cuda" else (1, 4, 32, 2, 16)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = Retention(width, heads, size, warps=4 if repaired else 1).to(device, dtype)
    return layer, torch.randn(2, batch, length, width, device=device).to(dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    layer, texts = state
    total = torch.zeros((), device=texts.device)
    for step in range(steps):
        total += layer(texts[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=1000)
