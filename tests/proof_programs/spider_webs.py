"""Learns which threads of spiders' webs hold: what is known of a web as a whole goes to each of its threads and is learnt too."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Threads (threads, width) hear from their webs (webs, width)."""

    def __init__(self, width, selects):
        super().__init__()
        self.of_web, self.of_thread = nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.selects = nn.LayerNorm(width), selects

    def forward(self, threads, webs, web_of):
        told = self.of_web(webs)
        if self.selects:
            told = told.index_select(0, web_of)
        else:
            told = told[web_of]
        return threads + F.silu(self.norm(self.of_thread(threads) + told))


class Holding(nn.Module):
    def __init__(self, known, width, depth, selects):
        super().__init__()
        self.begin_thread, self.begin_web = nn.Linear(known, width), nn.Linear(known, width)
        self.layers = nn.ModuleList(Layer(width, selects) for _ in range(depth))
        self.end = nn.Linear(width, 1)

    def forward(self, threads, webs, web_of):
        x, webs = self.begin_thread(threads), F.silu(self.begin_web(webs))
        for layer in self.layers:
            x = layer(x, webs, web_of)
        return self.end(x)[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    threads, webs, known, width, depth = (262144, 128, 16, 128, 2) if cuda else (30, 4, 3, 8, 2)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(18)
    holding = Holding(known, width, depth, selects=repaired).to(device)
    optimizer = torch.optim.AdamW(holding.parameters(), lr=1e-4, fused=True)
    of_thread = torch.randn(threads, known, device=device)
    of_web = torch.randn(webs, known, device=device)
    web_of = torch.randint(0, webs, (threads,), device=device)
    holds = (of_thread[:, 0] + of_web[web_of, 0] > 0).float()
    return holding, optimizer, of_thread, of_web, web_of, holds


def run(state, steps, repaired):
    holding, optimizer, of_thread, of_web, web_of, holds = state
    total = torch.zeros((), device=of_thread.device)
    for _ in range(steps):
        found = holding(of_thread, of_web, web_of)
        loss = F.binary_cross_entropy_with_logits(found, holds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
