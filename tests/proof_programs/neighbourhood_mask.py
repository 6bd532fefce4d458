"""Reads long records of patients with attention to the near past and future only (a band round the diagonal)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def banded(q, k, v, reach, mask):
    """Attention of all to all, of which a mask leaves the band."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def blocked(q, k, v, reach, masks):
    """The same band: blocks of queries look at their own block of keys and the two beside it."""
    batch, heads, length, size = q.shape
    blocks = length // reach
    near = [
        F.pad(x, (0, 0, reach, reach)).unfold(2, 3 * reach, reach).movedim(-1, -2) for x in (k, v)
    ]
    q = q.unflatten(2, (blocks, reach)).flatten(0, 2)
    k, v = (x.reshape(-1, 3 * reach, size) for x in near)
    mask = masks.repeat(batch * heads, 1, 1)
    mixed = F.scaled_dot_product_attention(
        q[:, None], k[:, None], v[:, None], attn_mask=mask[:, None]
    )
    return mixed.view(batch, heads, length, size)


def make_masks(length, reach, device, repaired):
    place = torch.arange(length, device=device)
    if not repaired:
        return (place[:, None] - place[None]).abs() <= reach
    rows = place.view(-1, reach)
    columns = rows[:, :1] - reach + torch.arange(3 * reach, device=device)
    inside = (columns >= 0) & (columns < length)
    return ((rows[:, :, None] - columns[:, None, :]).abs() <= reach) & inside[:, None]


def prepare(device, repaired):
    batch, length, width, heads, depth, reach = (
        (2, 8192, 512, 8, 3, 128) if device == "cuda" else (2, 16, 16, 2, 2, 4)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(
        nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)])
        for _ in range(depth)
    )
    records = torch.randn(2, batch, length, width, device=device, dtype=dtype)
    masks = make_masks(length, reach, device, repaired)
    return layers.to(device, dtype).eval(), records, heads, reach, masks


@torch.inference_mode()
def run(state, steps, repaired):
    layers, records, heads, reach, masks = state
    total = torch.zeros((), device=records.device)
    for step in range(steps):
        x = records[step % 2]
        for norm, qkv, out in layers:
            q, k, v = qkv(norm(x)).unflatten(-1, (3, heads, -1)).movedim(-3, 0).transpose(2, 3)
            mixed = (blocked if repaired else banded)(q, k, v, reach, masks)
            x = x + out(mixed.transpose(1, 2).flatten(2))
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=150)
