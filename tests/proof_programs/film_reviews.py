"""Tells from a review whether somebody liked a film: what a network holds at the last word, read from both sides."""

import torch
from common import main
from torch import nn


class Reader(nn.Module):
    """Reads forwards and backwards, and returns what both hold at the last word."""

    def __init__(self, width, hidden, short):
        super().__init__()
        both = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.both = None if short else both
        if short:
            self.onwards = nn.LSTM(width, hidden, batch_first=True)
            self.back = nn.LSTM(width, hidden, batch_first=True)
            weights = both.state_dict()
            self.onwards.load_state_dict(
                {name: weights[name] for name in self.onwards.state_dict()}
            )
            self.back.load_state_dict(
                {name: weights[f"{name}_reverse"] for name in self.back.state_dict()}
            )

    def forward(self, x):
        if self.both is not None:
            held, _ = self.both(x)
            return held[:, -1]
        _, (onwards, _) = self.onwards(x)
        # backwards, the last word is the first that is read
        _, (back, _) = self.back(x[:, -1:])
        return torch.cat([onwards[0], back[0]], 1)


class Liked(nn.Module):
    def __init__(self, words, width, hidden, short):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.last = nn.Linear(2 * hidden, 2)
        self.reader = Reader(width, hidden, short)

    def forward(self, reviews):
        return self.last(self.reader(self.words(reviews)))


def prepare(device, repaired):
    words, width, hidden = (30_000, 512, 1024) if device == "cuda" else (30, 6, 5)
    count, length = (1024, 256) if device == "cuda" else (4, 7)
    model = Liked(words, width, hidden, short=repaired).to(device).eval()
    torch.manual_seed(1)
    return model, torch.randint(words, (4, count, length), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, reviews = state
    total = torch.zeros((), device=reviews.device)
    for step in range(steps):
        total += model(reviews[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=40)
