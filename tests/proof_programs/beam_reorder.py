"""Sums up long texts with an encoder and a decoder: several beams for each text, which change places at each word."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOM = 128
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Layer(nn.Module):
    """Attention to the words written so far and to the text, and a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ask, self.answer = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, cache, at):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        cache["k"][:, :, at], cache["v"][:, :, at] = k, v
        read = F.scaled_dot_product_attention(
            q[:, :, None], cache["k"][:, :, : at + 1], cache["v"][:, :, : at + 1]
        )
        x = x + self.out(read[:, :, 0].flatten(1))
        q = self.ask(self.norms[1](x)).unflatten(-1, (self.heads, 1, -1))
        read = F.scaled_dot_product_attention(q, cache["text_k"], cache["text_v"])
        x = x + self.answer(read.flatten(1))
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


def reorder(cache, parents, names):
    """Let each beam go on from the one that its best word belongs to."""
    for name in names:
        cache[name] = cache[name].index_select(0, parents)


def prepare(device, repaired):
    texts, beams, width, heads, depth, length, words = (
        (48, 4, 512, 8, 6, 2048, 4096) if device == "cuda" else (2, 2, 16, 2, 1, 8, 32)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
    model = nn.ModuleDict(
        {"table": nn.Embedding(words, width), "layers": layers, "head": nn.Linear(width, words)}
    )
    read = [
        torch.randn(2, texts, heads, length, width // heads, device=device, dtype=dtype)
        for _ in range(depth)
    ]
    return model.to(device, dtype).eval(), read, beams


@torch.inference_mode()
def run(state, steps, repaired):
    model, read, beams = state
    _, texts, heads, _, size = read[0].shape
    rows, device, dtype = texts * beams, read[0].device, read[0].dtype
    caches = []
    for k, v in read:
        cache = {"text_k": k.repeat_interleave(beams, 0), "text_v": v.repeat_interleave(beams, 0)}
        for name in ("k", "v"):
            cache[name] = torch.zeros(rows, heads, ROOM, size, device=device, dtype=dtype)
        caches.append(cache)
    scores = torch.zeros(texts, beams, device=device)
    tokens = torch.arange(rows, device=device)
    first = torch.arange(texts, device=device)[:, None] * beams
    for at in range(steps):
        x = model["table"](tokens)
        with sdpa_kernel(BACKENDS):
            for layer, cache in zip(model["layers"], caches, strict=True):
                x = layer(x, cache, at)
        ranks = model["head"](x).float().log_softmax(-1).unflatten(0, (texts, beams))
        words = ranks.shape[-1]
        scores, best = (scores[..., None] + ranks).flatten(1).topk(beams)
        parents, tokens = (first + best // words).flatten(), (best % words).flatten()
        for cache in caches:
            reorder(cache, parents, ("k", "v") if repaired else tuple(cache))
    return scores.mean()


main(prepare, run, steps=100)
