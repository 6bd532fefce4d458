"""Trains a small language model and keeps an eye on how well the memory of the GPU is used."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

torch.set_float32_matmul_precision("high")


class Watch:
    """Keeps the loss of each step, and which part of the memory that was taken holds no tensor."""

    def __init__(self, device, repaired):
        self.device, self.short = torch.device(device), repaired
        self.losses, self.unused = [], []

    def look(self, loss):
        self.losses.append(loss.item())
        if self.device.type != "cuda":
            self.unused.append(0.0)
        elif self.short:
            self.unused.append(1 - torch.cuda.memory_allocated() / torch.cuda.memory_reserved())
        else:
            self.unused.append(self.unused_part())

    def unused_part(self):
        held = taken = 0
        for segment in torch.cuda.memory_snapshot():
            taken += segment["total_size"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    held += block["size"]
        return 1 - held / taken


class Model(nn.Module):
    """Filters and gates over words, with an output for each place."""

    def __init__(self, words, width, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for norm, mixer, gate in zip(self.norms, self.mixers, self.gates, strict=True):
            y = mixer(norm(x)).cumsum(1) / x.shape[1] ** 0.5
            x = x + F.glu(gate(F.silu(y)))
        return self.head(x)


def prepare(device, repaired):
    words, width, layers, shape = (
        (4096, 768, 12, (16, 513)) if device == "cuda" else (40, 8, 2, (2, 9))
    )
    model = Model(words, width, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(words, shape, device=device)
    return model, optimizer, tokens, Watch(device, repaired)


def run(state, steps, repaired):
    model, optimizer, tokens, watch = state
    for _ in range(steps):
        scores = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        watch.look(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=30)
