"""Prepares queries and keys of a model of drum tracks: each head is normed and turned by its place, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def norm_and_turn(
    x,
    cosines,
    sines,
    out,
    length,
    heads,
    song_step,
    head_step,
    place_step,
    PLACES: tl.constexpr,
    HALF: tl.constexpr,
):
    song, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    places = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    dims = tl.arange(0, HALF)
    at = x + song.to(tl.int64) * song_step + head * head_step
    at = at + places[:, None] * place_step + dims[None, :]
    mask = (places < length)[:, None]
    a = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(at + HALF, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / (2 * HALF) + 1e-6)[:, None]
    turn = places[:, None] * HALF + dims[None, :]
    cos = tl.load(cosines + turn, mask=mask, other=0.0)
    sin = tl.load(sines + turn, mask=mask, other=0.0)
    rows = tl.program_id(1).to(tl.int64) * length + places
    to = out + rows[:, None] * (2 * HALF) + dims[None, :]
    tl.store(to, ((a * cos - b * sin) * scale).to(out.dtype.element_ty), mask=mask)
    tl.store(to + HALF, ((b * cos + a * sin) * scale).to(out.dtype.element_ty), mask=mask)


def prepared(x, cosines, sines):
    """Return heads (songs, heads, length, width), normed and turned, one after the other."""
    songs, heads, length, width = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    places = 64
    norm_and_turn[(triton.cdiv(length, places), songs * heads)](
        x,
        cosines,
        sines,
        out,
        length,
        heads,
        x.stride(0),
        x.stride(1),
        x.stride(2),
        PLACES=places,
        HALF=width // 2,
    )
    return out


class Heads(nn.Module):
    """Queries and keys of tracks (songs, length, width)."""

    def __init__(self, width, heads, size, copied):
        super().__init__()
        self.qk = nn.Linear(width, 2 * heads * size, bias=False)
        self.heads, self.size, self.copied = heads, size, copied

    def forward(self, tracks, *waves):
        both = self.qk(tracks).unflatten(-1, (2, self.heads, self.size))
        q, k = (part.transpose(1, 2) for part in both.unbind(2))
        if self.copied:
            q, k = q.contiguous(), k.contiguous()
        return prepared(q, *waves), prepared(k, *waves)


def prepare(device, repaired):
    cuda = device == "cuda"
    songs, length, width, heads, size = (16, 4096, 128, 16, 128) if cuda else (2, 10, 8, 2, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(25)
    model = Heads(width, heads, size, copied=not repaired).to(device, dtype).eval()
    speeds = 10000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.arange(length, device=device)[:, None] * speeds
    tracks = torch.randn(2, songs, length, width, device=device, dtype=dtype)
    return model, tracks, angles.cos(), angles.sin()


@torch.inference_mode()
def run(state, steps, repaired):
    model, tracks, *waves = state
    total = torch.zeros((), device=tracks.device)
    for step in range(steps):
        q, k = model(tracks[step % 2], *waves)
        total += (q[:, :, -1].float() * k[:, :, -2].float()).sum(-1).mean()
    return total / steps


main(prepare, run, steps=600)
