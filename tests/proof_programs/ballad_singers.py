"""Writes down ballads that are sung: a decoder reads what an encoder heard, word by word."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Listening(nn.Module):
    """Attention of words (batch, 1, width) to what was heard (batch, frames, width)."""

    def __init__(self, width, heads, keeps):
        super().__init__()
        self.heads, self.keeps, self.kept = heads, keeps, None
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def read(self, heard):
        keys = self.split(self.key(heard))
        values = self.split(self.value(heard))
        return keys, values

    def forward(self, words, heard):
        if not self.keeps:
            keys, values = self.read(heard)
        else:
            if self.kept is None:
                self.kept = self.read(heard)
            keys, values = self.kept
        found = F.scaled_dot_product_attention(self.split(self.query(words)), keys, values)
        return self.out(found.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, keeps):
        super().__init__()
        self.listening = Listening(width, heads, keeps)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, heard):
        x = x + self.listening(self.norms[0](x), heard)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Writer(nn.Module):
    def __init__(self, words, width, heads, depth, keeps):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.ModuleList(Layer(width, heads, keeps) for _ in range(depth))

    def begin(self):
        for layer in self.layers:
            layer.listening.kept = None

    def forward(self, word, heard):
        x = self.words(word)[:, None]
        for layer in self.layers:
            x = layer(x, heard)
        return self.head(x)[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    sizes = (8000, 1024, 16, 6) if cuda else (20, 8, 2, 2)
    batch, frames, dtype = (32, 750, torch.bfloat16) if cuda else (2, 5, torch.float32)
    torch.manual_seed(6)
    writer = Writer(*sizes, keeps=repaired).to(device, dtype).eval()
    heard = torch.randn(batch, frames, sizes[1], device=device, dtype=dtype)
    return writer, heard


@torch.inference_mode()
def run(state, steps, repaired):
    writer, heard = state
    writer.begin()
    word = torch.zeros(len(heard), dtype=torch.long, device=heard.device)
    total = torch.zeros((), device=heard.device)
    for step in range(steps):
        scores = writer(word, heard)
        total += scores.float().square().mean()
        word = (word + 7 * step + 1) % writer.words.num_embeddings
    return total / steps


main(prepare, run, steps=150)
