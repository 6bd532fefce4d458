"""Trains a detector of products on shelves: each layer of the decoder is matched with the products and pays for its errors."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


def assign(cost):
    """Give each product, one after another, the cheapest query that is free; cost is (queries, products)."""
    taken = []
    for product in range(cost.shape[1]):
        column = cost[:, product].copy()
        column[taken] = np.inf
        taken.append(int(column.argmin()))
    return taken


class Decoder(nn.Module):
    def __init__(self, width, heads, depth, queries, kinds):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(depth)
        )
        self.kinds, self.boxes = nn.Linear(width, kinds), nn.Linear(width, 4)

    def forward(self, memory):
        x = self.queries.expand(len(memory), -1, -1)
        for layer in self.layers:
            x = layer(x, memory)
            yield self.kinds(x), self.boxes(x).sigmoid()


@torch.no_grad()
def cost_of(scores, boxes, kinds, places):
    """Return what each query would cost for each product, (shelves, queries, products)."""
    chance = scores.softmax(-1).gather(2, kinds[:, None, :].expand(-1, scores.shape[1], -1))
    return (boxes[:, :, None] - places[:, None]).abs().sum(-1) - chance


def match(costs, repaired):
    """Return which query each product got, (layers, shelves, products)."""
    if repaired:
        costs = torch.stack(costs).cpu().numpy()
        return [[assign(cost) for cost in layer] for layer in costs]
    return [[assign(cost.cpu().numpy()) for cost in layer] for layer in costs]


def prepare(device, repaired):
    cuda = device == "cuda"
    shelves, pixels, width, heads, depth, queries, products, kinds = (
        (32, 256, 256, 8, 6, 100, 3, 40) if cuda else (3, 9, 8, 2, 2, 6, 2, 5)
    )
    torch.set_float32_matmul_precision("high")
    model = Decoder(width, heads, depth, queries, kinds).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=cuda)
    memory = torch.randn(shelves, pixels, width, device=device)
    labels = torch.randint(kinds, (shelves, products), device=device)
    return model, optimizer, memory, labels, torch.rand(shelves, products, 4, device=device)


def run(state, steps, repaired):
    model, optimizer, memory, kinds, places = state
    total = torch.zeros((), device=memory.device)
    for _ in range(steps):
        layers = list(model(memory))
        costs = [cost_of(scores, boxes, kinds, places) for scores, boxes in layers]
        picks = torch.tensor(match(costs, repaired), device=memory.device)
        loss = 0.0
        for (scores, boxes), pick in zip(layers, picks, strict=True):
            rows = torch.arange(len(pick), device=pick.device)[:, None]
            loss = loss + F.cross_entropy(scores[rows, pick].flatten(0, 1), kinds.flatten())
            loss = loss + F.l1_loss(boxes[rows, pick], places)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
