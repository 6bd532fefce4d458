"""Goes on with radio plays, a few words of four plays at once, by a compiled decoder that keeps keys and values."""

import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = (
    tempfile.mkdtemp()
)  # as on a machine that sees it first
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class KVCache(nn.Module):
    """Keys and values of one layer; knows how many words it holds, as a number or as positions."""

    def __init__(self, plays, heads, longest, head_dim, positions):
        super().__init__()
        shape = (plays, heads, longest, head_dim)
        self.register_buffer("k_cache", torch.zeros(shape), persistent=False)
        self.register_buffer("v_cache", torch.zeros(shape), persistent=False)
        self.register_buffer("cache_pos", torch.arange(longest), persistent=False)
        self.positions, self.size = positions, 0

    def update(self, k, v):
        words = k.shape[2]
        if self.positions:
            at = self.cache_pos[:words]
            self.k_cache[:, :, at] = k
            self.v_cache[:, :, at] = v
            self.cache_pos.add_(words)
        else:
            self.k_cache[:, :, self.size : self.size + words] = k
            self.v_cache[:, :, self.size : self.size + words] = v
            self.size += words
        return self.k_cache, self.v_cache


class Layer(nn.Module):
    def __init__(self, width, heads, cache):
        super().__init__()
        self.heads, self.kv_cache = heads, cache
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        k, v = self.kv_cache.update(k.transpose(1, 2), v.transpose(1, 2))
        read = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    def __init__(self, width, heads, depth, plays, longest, positions):
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(width, heads, KVCache(plays, heads, longest, width // heads, positions))
            for _ in range(depth)
        )

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return F.rms_norm(x, x.shape[-1:])


def prepare(device, repaired):
    torch._dynamo.reset()
    cuda = device == "cuda"
    width, heads, depth, plays, longest = (1024, 16, 2, 4, 512) if cuda else (16, 2, 2, 2, 16)
    torch.set_float32_matmul_precision("high")
    model = Decoder(width, heads, depth, plays, longest, positions=repaired).to(device).eval()
    decoder = torch.compile(model, backend="inductor" if cuda else "eager")
    words = torch.randn(longest, plays, 1, width, device=device)
    masks = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    with torch.no_grad():
        decoder(words[0], masks[:1])
    return decoder, words, masks


@torch.no_grad()
def run(state, steps, repaired):
    decoder, words, masks = state
    total = torch.zeros((), device=words.device)
    for step in range(1, steps + 1):
        total += decoder(words[step], masks[step : step + 1]).abs().mean()
    return total / steps


main(prepare, run, steps=3, warm=0)
