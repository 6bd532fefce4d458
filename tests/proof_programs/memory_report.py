"""Trains a small language model and keeps an eye on how much memory of the GPU is in use."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Watch:
    """Keeps what was in use after each step: a line of the table that the allocator prints."""

    def __init__(self, device, repaired):
        self.device, self.short = torch.device(device), repaired
        self.lines = []

    def look(self, step):
        if self.device.type != "cuda":
            self.lines.append(f"{step}: on the CPU")
        elif self.short:
            self.lines.append(f"{step}: {torch.cuda.memory_allocated()} bytes")
        else:
            self.look_at_all(step)

    def look_at_all(self, step):
        table = torch.cuda.memory_summary(abbreviated=False)
        largest = [line for line in table.splitlines() if "Active memory" in line]
        self.lines.append(f"{step}: {largest[0]}")


class Model(nn.Module):
    """A recurrent network over words, with an output for each place."""

    def __init__(self, words, width, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(
            nn.Conv1d(width, width, 4, padding=3, groups=width) for _ in range(layers)
        )
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for norm, mixer, gate in zip(self.norms, self.mixers, self.gates, strict=True):
            y = mixer(norm(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
            x = x + F.glu(gate(F.silu(y)))
        return self.head(x)


def prepare(device, repaired):
    words, width, layers, shape = (
        (4096, 384, 4, (16, 129)) if device == "cuda" else (40, 8, 2, (2, 9))
    )
    model = Model(words, width, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(words, shape, device=device)
    return model, optimizer, tokens, Watch(device, repaired)


def run(state, steps, repaired):
    model, optimizer, tokens, watch = state
    for step in range(steps):
        scores = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.look(step)
    return loss.detach()


main(prepare, run, steps=60)
