"""Tells jokes to many listeners at once: each next word is drawn from the likeliest ones that make up nine tenths."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Teller(nn.Module):
    """A recurrent model of words, as small as may be, with many words."""

    def __init__(self, words, width):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.last = nn.Linear(width, words, bias=False)

    def forward(self, ids, state):
        state = self.cell(self.words(ids), state)
        scale = 6 * state.shape[1] ** 0.5
        return self.last(F.normalize(state, dim=-1)) * scale, state


def drawn(sorted_logits, sorted_ids, whole, luck, share):
    """Draw of each row one of the first words, which together make up `share`."""
    chances = (sorted_logits - whole).exp()
    below = chances.cumsum(-1)
    chances = chances.masked_fill(below - chances > share, 0.0)
    marks = chances.cumsum(-1)
    place = (marks < luck[:, None] * marks[:, -1:]).sum(-1, keepdim=True)
    return sorted_ids.gather(1, place.clamp(max=sorted_ids.shape[1] - 1))[:, 0]


def next_word(logits, luck, share, candidates):
    whole = logits.logsumexp(-1, keepdim=True)
    if candidates:
        best, ids = logits.topk(candidates)
    else:
        best, ids = logits.sort(descending=True, dim=-1)
    return drawn(best, ids, whole, luck, share)


def prepare(device, repaired):
    cuda = device == "cuda"
    listeners, words, width, candidates = (48, 152064, 512, 512) if cuda else (3, 60, 16, 40)
    torch.manual_seed(15)
    model = Teller(words, width)
    nn.init.normal_(model.last.weight, std=width**-0.5)
    model = model.to(device).eval()
    first = torch.randint(words, (listeners,), device=device)
    luck = torch.rand(64, listeners, device=device)
    return model, first, luck, candidates if repaired else 0


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids, luck, candidates = state
    kept = torch.zeros(len(ids), model.words.embedding_dim, device=ids.device)
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        logits, kept = model(ids, kept)
        ids = next_word(logits, luck[step % 64], 0.9, candidates)
        total += ids.float().mean() / model.words.num_embeddings
    return total / steps


main(prepare, run, steps=250)
