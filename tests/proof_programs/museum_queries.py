"""Sorts what a museum's catalogue found for a question by how well it answers, with an encoder that reads both together."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x):
        count, words, width = x.shape
        q, k, v = (
            self.inner(self.norms[0](x))
            .view(count, words, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count, words, width)
        x = x + self.outer(mixed)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Reader(nn.Module):
    def __init__(self, vocabulary, width, heads, depth):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.last = nn.Linear(width, 1)

    def forward(self, texts):
        return self.last(self.blocks(self.words(texts))[:, 0])[:, 0]


class Sorter:
    def __init__(self, reader, together):
        self.reader, self.together = reader, together

    def __call__(self, question, entries):
        pairs = torch.cat([question.expand(len(entries), -1), entries], dim=1)
        if self.together:
            scores = self.reader(pairs)
        else:
            scores = torch.cat([self.reader(pair[None]) for pair in pairs])
        return scores.float().sort(descending=True)


def prepare(device, repaired):
    vocabulary, width, heads, depth, found = (
        (20000, 1024, 16, 6, 96) if device == "cuda" else (30, 8, 2, 2, 4)
    )
    asked, long = (32, 224) if device == "cuda" else (2, 5)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    reader = Reader(vocabulary, width, heads, depth).to(device, dtype).eval()
    questions = torch.randint(vocabulary, (8, 1, asked), device=device)
    entries = torch.randint(vocabulary, (8, found, long), device=device)
    return Sorter(reader, together=repaired), questions, entries


@torch.inference_mode()
def run(state, steps, repaired):
    sort, questions, entries = state
    total = torch.zeros((), device=questions.device)
    for step in range(steps):
        scores, _ = sort(questions[step % 8], entries[step % 8])
        total += scores[:10].exp().mean()
    return total / steps


main(prepare, run, steps=16)
