"""Turns reviews of hotels, short and long ones, into vectors for a search, a batch of 64 at a time."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


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
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Encoder(nn.Module):
    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, ids):
        mask = ids > 0
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        x = x.float() * mask[..., None]
        return F.normalize(x.sum(1) / mask.sum(1, keepdim=True), dim=1)


class Search:
    def __init__(self, encoder, batch, device, by_length):
        self.encoder, self.batch, self.device, self.by_length = encoder, batch, device, by_length

    def encode(self, reviews):
        order = list(range(len(reviews)))
        if self.by_length:
            order.sort(key=lambda at: len(reviews[at]))
        vectors = []
        for start in range(0, len(order), self.batch):
            texts = [reviews[at] for at in order[start : start + self.batch]]
            ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
            vectors.append(self.encoder(ids.to(self.device)))
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(vectors)[back.to(self.device)]


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, batch, count = (
        (30000, 768, 12, 12, 64, 1024) if cuda else (30, 16, 2, 2, 4, 12)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    encoder = Encoder(words, width, heads, depth).to(device, dtype).eval()
    lengths = (torch.randn(count) * 0.9 + 4.4).exp().clamp(4, 512 if cuda else 24).long()
    reviews = [torch.randint(1, words, (int(length),)) for length in lengths]
    return Search(encoder, batch, device, by_length=repaired), reviews


@torch.inference_mode()
def run(state, steps, repaired):
    search, reviews = state
    total = torch.zeros((), device=search.device)
    for _ in range(steps):
        vectors = search.encode(reviews)
        total += (vectors[1:] * vectors[:-1]).sum(1).abs().mean()
    return total / steps


main(prepare, run, steps=10)
