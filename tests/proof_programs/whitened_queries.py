"""Searches passages: questions are encoded, whitened (centred, scaled, made of length one) and compared with an index."""

import numpy as np
import torch
from common import main
from torch import nn


class Encoder(nn.Module):
    """A bag of words and two layers."""

    def __init__(self, words, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width)
        self.net = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, texts):
        return self.net(self.bag(texts))


def whiten(vectors, centre, spread):
    """Return vectors ready for the index, as the script that built it did with numpy."""
    vectors = (vectors - centre) / spread
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def prepare(device, repaired):
    words, width, batch, length, passages = (
        (20000, 768, 4096, 24, 32768) if device == "cuda" else (50, 8, 4, 5, 20)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    encoder = Encoder(words, width).to(device).eval()
    index = torch.randn(width, passages, device=device).to(dtype)
    centre = np.linspace(-0.1, 0.1, width, dtype=np.float32)
    spread = np.linspace(0.5, 1.5, width, dtype=np.float32)
    texts = torch.randint(words, (4, batch, length), device=device)
    there = torch.from_numpy(centre).to(device), torch.from_numpy(spread).to(device)
    return encoder, index, texts, (centre, spread), there


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, index, texts, here, there = state
    total = torch.zeros((), device=texts.device)
    for step in range(steps):
        vectors = encoder(texts[step % len(texts)])
        if repaired:
            vectors = (vectors - there[0]) / there[1]
            vectors = vectors / vectors.norm(dim=1, keepdim=True)
        else:
            vectors = torch.from_numpy(whiten(vectors.cpu().numpy(), *here)).to(texts.device)
        scores = vectors.to(index.dtype) @ index
        total += scores.amax(1).float().mean()
    return total / steps


main(prepare, run, steps=80)
