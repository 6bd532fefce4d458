"""Sorts a company's mail into folders, with a network of whose weights the smaller half was set to zero."""

import torch
from common import main
from torch import nn


class Half:
    """A layer whose smaller weights are zero, kept as those that are left and their places or as they are."""

    def __init__(self, layer, sparse):
        least = layer.weight.detach().abs().median()
        weights = layer.weight.detach()
        weights = torch.where(weights.abs() > least, weights, 0)
        self.weights = weights.to_sparse_csr() if sparse else weights

    def __call__(self, x):
        return self.weights @ x


class Folders:
    def __init__(self, width, depth, device, sparse):
        layers = [nn.Linear(width, width, bias=False, device=device) for _ in range(depth)]
        self.layers = [Half(layer, sparse) for layer in layers]

    def __call__(self, mails):
        x = mails
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x.softmax(0)


def prepare(device, repaired):
    width, depth, count = (4096, 4, 4096) if device == "cuda" else (16, 2, 6)
    torch.set_float32_matmul_precision("high")
    model = Folders(width, depth, device, sparse=not repaired)
    return model, torch.randn(2, width, count, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, mails = state
    total = torch.zeros((), device=mails.device)
    for step in range(steps):
        total += model(mails[step % 2]).square().sum(0).mean()
    return total / steps


main(prepare, run, steps=15)
