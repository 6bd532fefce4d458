"""Embeds the sentences of a collection, for a search by meaning."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """A small transformer; the embedding of a sentence is the mean of its words'."""

    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.table = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, texts):
        return F.normalize(self.layers(self.table(texts)).mean(1), dim=1)


def prepare(device, repaired):
    words, width, heads, depth, sentences, length = (
        (30000, 384, 12, 6, 2048, 48) if device == "cuda" else (50, 16, 2, 1, 16, 6)
    )
    dtype = torch.float16 if device == "cuda" else torch.float32
    encoder = Encoder(words, width, heads, depth).to(device, dtype).eval()
    texts = torch.randint(words, (sentences, length), device=device)
    batch = (256 if device == "cuda" else 8) if repaired else 4
    return encoder, texts, batch


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, texts, batch = state
    total = torch.zeros((), device=texts.device)
    for _ in range(steps):
        found = [encoder(some) for some in texts.split(batch)]
        vectors = torch.cat(found).float()
        total += (vectors @ vectors.T).square().mean()
    return total / steps


main(prepare, run, steps=5, warm=1)
