"""Goes through pages of the web and keeps those that it has not met before, by a print of each (SimHash)."""

import torch
from common import main
from torch import nn


class Prints(nn.Module):
    """Makes a whole number of each page: on which side of some planes its vector lies."""

    def __init__(self, words, width, depth, bits):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.planes = nn.Linear(width, bits, bias=False)
        self.register_buffer("powers", 2 ** torch.arange(bits))

    def forward(self, pages):
        x = self.words(pages)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        sides = self.planes(x.mean(1)) > 0
        return (sides * self.powers).sum(1)


class Known:
    """Prints of all pages that were met."""

    def __init__(self, prints, hashed):
        self.prints = set(prints) if hashed else list(prints)

    def add(self, page):
        if isinstance(self.prints, set):
            self.prints.add(page)
        else:
            self.prints.append(page)

    def fresh(self, pages):
        """Return how many of these pages were not met before, and keep them."""
        count = 0
        for page in pages:
            if page in self.prints:
                continue
            self.add(page)
            count += 1
        return count


def prepare(device, repaired):
    words, width, depth, bits = (50_000, 1024, 6, 48) if device == "cuda" else (60, 8, 2, 48)
    many, length, before = (256, 512, 20_000) if device == "cuda" else (6, 10, 40)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Prints(words, width, depth, bits).to(device, dtype).eval()
    pages = torch.randint(words, (8, many, length), device=device)
    pages[:, : many // 4] = pages[:1, : many // 4]
    return model, pages, torch.randint(2**48, (before,)).tolist()


@torch.inference_mode()
def run(state, steps, repaired):
    model, pages, before = state
    known = Known(before, hashed=repaired)
    fresh, width = 0, pages.shape[2]
    for step in range(steps):
        moved = pages[step % 8].roll(step // 8 % width, 1).clone()
        moved[:, 0] = (moved[:, 0] + step // 8) % model.words.num_embeddings
        fresh += known.fresh(model(moved).tolist())
    return fresh / steps


main(prepare, run, steps=24)
