"""Embeds texts for a search; all are filled up to the length that the model allows."""

import torch
from common import main
from torch import nn


class Encoder(nn.Module):
    """A transformer that sees no filling, and the mean of what it makes."""

    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        there = ids > 0
        made = self.layers(self.words(ids), src_key_padding_mask=~there)
        return (made * there[..., None]).sum(1) / there.sum(1, keepdim=True)


def prepare(device, repaired):
    texts, longest, width, layers = (512, 512, 512, 4) if device == "cuda" else (8, 16, 16, 1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = (
        Encoder(8000, width, 8, layers).to(device, dtype).train()
    )  # no dropout; train: no fast path
    lengths = (torch.rand(texts).pow(4) * longest).long().clamp(4, longest)
    ids = torch.randint(1, 8000, (texts, longest))
    ids[torch.arange(longest)[None] >= lengths[:, None]] = 0
    return model, ids.to(device), lengths.tolist()


def batches(ids, lengths, size, by_length):
    """Yield texts in batches; texts of like length together, no longer than the longest."""
    order = list(range(len(lengths)))
    if by_length:
        order.sort(key=lambda i: lengths[i])
    for first in range(0, len(order), size):
        chosen = order[first : first + size]
        room = max(lengths[i] for i in chosen) if by_length else ids.shape[1]
        yield ids[chosen, :room]


@torch.no_grad()
def run(state, steps, repaired):
    model, ids, lengths = state
    total = 0
    for _ in range(steps):
        for batch in batches(ids, lengths, 64 if ids.is_cuda else 4, repaired):
            total = total + model(batch).float().square().sum()
    return total / steps / len(lengths)


main(prepare, run, steps=4)
