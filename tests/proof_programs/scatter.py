"""A graph network on a mesh: every node has the same number of neighbours, whose messages are added up."""

import torch
from common import main


def prepare(device, repaired):
    nodes, degree, c = (128, 16384, 64) if device == "cuda" else (8, 4, 4)
    messages = torch.rand(nodes * degree, c, device=device)
    target = torch.arange(nodes, device=device).repeat_interleave(degree)
    weight = torch.eye(c, device=device) * 0.5
    return messages, target, weight, nodes


@torch.no_grad()
def run(state, steps, repaired):
    messages, target, weight, nodes = state
    h = torch.zeros(nodes, messages.shape[1], device=messages.device)
    for _ in range(steps):
        if repaired:
            received = messages.view(nodes, -1, messages.shape[1]).sum(1)
        else:
            received = torch.zeros_like(h).index_add_(0, target, messages)
        h = torch.tanh(received / (messages.shape[0] // nodes) + h @ weight)
    return h.mean()


main(prepare, run, steps=60)
