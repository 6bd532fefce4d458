"""Writes answers with a small language model that keeps keys and values, until one of some words ends them."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

STOP = ("\n\nUser:", "<|end|>", "\n\nQuestion:")
LOOK_BACK = 12


class Layer(nn.Module):
    """Attention to what was written so far, and a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache, at):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        cache[0][:, :, at], cache[1][:, :, at] = k, v
        read = F.scaled_dot_product_attention(
            q[:, :, None], cache[0][:, :, : at + 1], cache[1][:, :, : at + 1]
        )
        x = x + self.out(read[:, :, 0].flatten(1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def make_pieces(number):
    """Return the pieces of text that tokens stand for, byte by byte as letters, and what the letters mean."""
    letters = [chr(256 + byte) for byte in range(256)]
    pieces = [
        "".join(letters[97 + (token * k) % 26] for k in (3, 7, 11)) for token in range(number)
    ]
    return pieces, {letter: byte for byte, letter in enumerate(letters)}


def decode(row, pieces, meaning):
    text = "".join(pieces[token] for token in row)
    return bytes([meaning[letter] for letter in text]).decode("utf-8", errors="replace")


def prepare(device, repaired):
    width, heads, depth, words, batch, room = (
        (768, 12, 6, 8192, 24, 512) if device == "cuda" else (16, 2, 1, 64, 2, 16)
    )
    layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
    model = nn.ModuleDict(
        {"table": nn.Embedding(words, width), "layers": layers, "head": nn.Linear(width, words)}
    )
    caches = torch.zeros(depth, 2, batch, heads, room, width // heads, device=device)
    return model.to(device).eval(), caches, make_pieces(words), batch


@torch.inference_mode()
def run(state, steps, repaired):
    model, caches, (pieces, meaning), batch = state
    tokens = torch.arange(batch, device=caches.device)
    written = [[] for _ in range(batch)]
    ended = 0
    for at in range(steps):
        x = model["table"](tokens)
        for layer, cache in zip(model["layers"], caches, strict=True):
            x = layer(x, cache, at)
        tokens = (model["head"](x) + torch.roll(x, at, 0)[:, :1]).argmax(-1)
        for row, token in zip(written, tokens.tolist(), strict=True):
            row.append(token)
            text = decode(row[-LOOK_BACK:] if repaired else row, pieces, meaning)
            ended += any(word in text for word in STOP)
    return ended + sum(map(sum, written)) / steps / batch


main(prepare, run, steps=350)
