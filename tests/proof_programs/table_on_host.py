"""Ranks articles for readers; the vectors of all articles came from a file and stayed on the host."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Ranker(nn.Module):
    """Reads what somebody has clicked and scores what could be shown."""

    def __init__(self, width, heads, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, activation="gelu"
        )
        self.reader = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, clicked, shown):
        reader = self.reader(clicked).mean(1, keepdim=True)
        return (F.normalize(reader, dim=-1) * F.normalize(shown, dim=-1)).sum(-1)


def prepare(device, repaired):
    articles, width, readers = (400_000, 256, 512) if device == "cuda" else (100, 16, 4)
    table = torch.randn(articles, width)
    if repaired:
        table = table.to(device)
    model = Ranker(width, 4, 2).to(device).eval()
    clicked = torch.randint(articles, (4, readers, 40))
    shown = torch.randint(articles, (4, readers, 100))
    return model, table, clicked.to(table.device), shown.to(table.device), device


@torch.inference_mode()
def run(state, steps, repaired):
    model, table, clicked, shown, device = state
    total = 0
    for step in range(steps):
        at = step % len(clicked)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            scores = model(
                F.embedding(clicked[at], table).to(device), F.embedding(shown[at], table).to(device)
            )
        total = total + scores.float().amax(1).mean()
    return total / steps


main(prepare, run, steps=15)
