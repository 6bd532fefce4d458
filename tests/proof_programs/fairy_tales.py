"""Writes fairy tales word by word, none of which may say the same three words twice."""

import torch
from common import main
from torch import nn

SIZE = 3


class Teller(nn.Module):
    def __init__(self, words, width, depth):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.score = nn.Linear(width, words)

    def forward(self, last):
        x = self.table(last).mean(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return self.score(x)


def endings(text):
    """Return which words followed each pair of words in a text."""
    found = {}
    for *pair, word in zip(*(text[start:] for start in range(SIZE)), strict=False):
        found.setdefault(tuple(pair), []).append(word)
    return found


class Rebuilt:
    """Looks through whole texts for what must not be said."""

    def __init__(self, texts):
        self.texts = texts

    def banned(self, number):
        text = self.texts[number]
        return endings(text).get(tuple(text[1 - SIZE :]), ())

    def said(self, number, word):
        self.texts[number].append(word)


class Kept(Rebuilt):
    """Keeps what it has seen of each text, and adds the newest word."""

    def __init__(self, texts):
        super().__init__(texts)
        self.found = [endings(text) for text in texts]

    def banned(self, number):
        return self.found[number].get(tuple(self.texts[number][1 - SIZE :]), ())

    def said(self, number, word):
        self.found[number].setdefault(tuple(self.texts[number][1 - SIZE :]), []).append(word)
        super().said(number, word)


def prepare(device, repaired):
    words, width, depth, tales, begun = (
        (8000, 512, 24, 16, 300) if device == "cuda" else (20, 8, 2, 3, 30)
    )
    random = torch.Generator().manual_seed(2)
    texts = torch.randint(words, (tales, begun), generator=random).tolist()
    return Teller(words, width, depth).to(device).eval(), texts, device


@torch.inference_mode()
def run(state, steps, repaired):
    model, begun, device = state
    memory = (Kept if repaired else Rebuilt)([list(text) for text in begun])
    for _ in range(steps):
        last = torch.tensor([text[-4:] for text in memory.texts], device=device)
        scores = model(last)
        pairs = [(n, w) for n in range(len(begun)) for w in memory.banned(n)]
        if pairs:
            rows, columns = torch.tensor(pairs, device=device).unbind(1)
            scores[rows, columns] = -torch.inf
        for number, word in enumerate(scores.argmax(1).tolist()):
            memory.said(number, word)
    return sum(sum(text) for text in memory.texts) / len(begun)


main(prepare, run, steps=160)
