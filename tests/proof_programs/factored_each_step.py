"""Lets heat spread through parts of a machine in large steps (implicit method), with a dense matrix of what each part passes on."""

import torch
from common import main


def prepare(device, repaired):
    parts = 3072 if device == "cuda" else 24
    links = torch.rand(parts, parts, device=device)
    links = torch.where(links > 0.9, links, 0.0)
    links = (links + links.T) / 2
    flow = torch.diag(links.sum(1)) - links
    matrix = torch.eye(parts, device=device) + 0.001 * flow
    heating = torch.rand(parts, 4, device=device)
    return matrix, heating, torch.linalg.lu_factor(matrix) if repaired else None


@torch.inference_mode()
def run(state, steps, repaired):
    matrix, heating, factors = state
    heat = torch.zeros_like(heating)
    for step in range(steps):
        known = heat + 0.1 * heating * (1 + step % 3)
        if repaired:
            heat = torch.linalg.lu_solve(*factors, known)
        else:
            heat = torch.linalg.solve(matrix, known)
    return heat.mean()


main(prepare, run, steps=60)
