"""Answers questions from an index of passages: the best ones of it for each batch of questions."""

import torch
from common import main
from torch import nn


class Index:
    """The vectors of all passages, in memory of the host; `resident` says whether they stay on the GPU."""

    def __init__(self, vectors, device, resident):
        self.vectors = vectors.to(device) if resident else vectors
        self.device = device

    def search(self, questions, best):
        vectors = self.vectors.to(self.device, non_blocking=True)
        scores = questions @ vectors.T
        return scores.topk(best)


def prepare(device, repaired):
    passages, width, batch, best = (200_000, 768, 128, 10) if device == "cuda" else (100, 16, 4, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    vectors = (
        nn.functional.normalize(torch.randn(passages, width, device=device), dim=1).to(dtype).cpu()
    )
    if device == "cuda":
        vectors = vectors.pin_memory()
    encoder = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    questions = torch.randn(4, batch, width, device=device, dtype=dtype)
    return encoder.to(device, dtype).eval(), Index(vectors, device, repaired), questions, best


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, index, questions, best = state
    total = torch.zeros((), device=questions.device)
    for step in range(steps):
        scores, _ = index.search(encoder(questions[step % len(questions)]), best)
        total += scores.float().mean()
    return total / steps


main(prepare, run, steps=200)
