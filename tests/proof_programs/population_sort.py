"""Breeds controllers that steer a mass to a place (evolution strategy): the best of each generation are changed a little."""

import torch
from common import main

TIME = 0.05


def play(genes, starts, moves):
    """Return how well each controller did: the mean distance from the place, over all its starts."""
    first, second = genes
    place, speed = starts.expand(len(first), -1, -1).split(2, -1)
    cost = 0
    for _ in range(moves):
        h = torch.tanh(torch.baddbmm(first[:, -1:], torch.cat([place, speed], -1), first[:, :-1]))
        speed = speed + TIME * torch.tanh(torch.bmm(h, second))
        place = place + TIME * speed
        cost = cost + place.square().sum(-1).mean(-1)
    return -cost / moves


def prepare(device, repaired):
    number, starts, hidden, moves = (192, 256, 32, 30) if device == "cuda" else (8, 4, 4, 3)
    genes = (
        0.5 * torch.randn(number, 5, hidden, device=device),
        0.5 * torch.randn(number, hidden, 2, device=device),
    )
    return genes, torch.randn(starts, 4, device=device), moves


@torch.inference_mode()
def run(state, steps, repaired):
    genes, starts, moves = state
    torch.manual_seed(1)
    number = len(genes[0])
    for _ in range(steps):
        fitness = play(genes, starts, moves)
        if repaired:
            best = fitness.argsort(descending=True)[: number // 4]
        else:
            ranking = sorted(range(number), key=fitness.__getitem__, reverse=True)
            best = ranking[: number // 4]
        genes = [
            torch.cat(
                [gene[best], (gene[best] + 0.1 * torch.randn_like(gene[best])).repeat(3, 1, 1)]
            )
            for gene in genes
        ]
    return play(genes, starts, moves).mean()


main(prepare, run, steps=6)
