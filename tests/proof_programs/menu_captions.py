"""Names the dishes on photographs of menus: draws the next word for many of them from what is likeliest."""

import torch
from common import main
from torch import nn


class Sampler:
    """Keeps the k likeliest words, of these as many as make up p, and draws one by given noise."""

    def __init__(self, k, p, short):
        self.k, self.p, self.short = k, p, short

    def narrow(self, logits):
        """Sets the logits of words that may not be drawn to minus infinity."""
        if self.short:
            top, index = logits.topk(self.k, dim=-1)
            share = top.softmax(-1)
            top = top.masked_fill(share.cumsum(-1) - share > self.p, -float("inf"))
            return torch.full_like(logits, -float("inf")).scatter_(-1, index, top)
        ordered, index = logits.sort(dim=-1, descending=True)
        ordered[:, self.k :] = -float("inf")
        share = ordered.softmax(-1)
        ordered = ordered.masked_fill(share.cumsum(-1) - share > self.p, -float("inf"))
        return torch.empty_like(logits).scatter_(-1, index, ordered)

    def __call__(self, logits, noise):
        probs = self.narrow(logits).softmax(-1)
        return (probs / noise).argmax(-1), probs


def prepare(device, repaired):
    cuda = device == "cuda"
    dishes, width, words, k = (256, 4096, 128_000, 50) if cuda else (3, 8, 40, 5)
    dtype = torch.bfloat16 if cuda else torch.float32
    last = nn.Linear(width, words, bias=False).to(device, dtype)
    hidden = 4 * torch.randn(4, dishes, width, device=device, dtype=dtype)
    noise = torch.empty(2, dishes, words, device=device).exponential_()
    return last, Sampler(k, 0.9, short=repaired), hidden, noise


@torch.inference_mode()
def run(state, steps, repaired):
    last, sampler, hidden, noise = state
    total = torch.zeros((), device=noise.device)
    for step in range(steps):
        logits = last(hidden[step % 4]).float()
        word, probs = sampler(logits, noise[step % 2])
        total += probs.gather(1, word[:, None]).mean()
    return total / steps


main(prepare, run, steps=250)
