"""Writes on from prompts with a decoder, token by token."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Attention to all tokens before, which are kept if there is a place for them."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, kept, at):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if kept is not None:
            keys, values = kept
            keys[:, :, at : at + length], values[:, :, at : at + length] = k, v
            k, v = keys[:, :, : at + length], values[:, :, : at + length]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    """Words, layers and a head; `kept` holds keys and values of each layer, or nothing."""

    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, kept, at):
        x = self.words(tokens)
        for layer, places in zip(self.layers, kept or [None] * len(self.layers), strict=True):
            x = layer(x, places, at)
        return self.head(self.norm(x[:, -1]))


def prepare(device, repaired):
    words, width, heads, layers, batch, prompt, most = (
        (32000, 4096, 32, 10, 8, 512, 640) if device == "cuda" else (50, 16, 2, 2, 2, 4, 16)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Decoder(words, width, heads, layers).to(dtype).eval()
    shape = (batch, heads, most, width // heads)
    kept = [
        tuple(torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        for _ in range(layers if repaired else 0)
    ]
    return model, kept, torch.randint(words, (batch, prompt), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, kept, text = state
    next_word = model(text, kept, 0).argmax(1, keepdim=True)
    for _ in range(steps):
        at = text.shape[1]
        text = torch.cat([text, next_word], 1)
        if repaired:
            next_word = model(next_word, kept, at).argmax(1, keepdim=True)
        else:
            next_word = model(text, None, 0).argmax(1, keepdim=True)
    return text.float().mean()


main(prepare, run, steps=12, warm=12)
