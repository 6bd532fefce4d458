"""Serves many customers with one network: each request brings its small adapter (low rank)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

RANK = 16


class Adapted(nn.Module):
    """A linear layer; what the adapter of each request adds comes on top."""

    def __init__(self, before, after, customers):
        super().__init__()
        self.base = nn.Linear(before, after, bias=False)
        self.down = nn.Parameter(torch.randn(customers, before, RANK) / before**0.5)
        self.up = nn.Parameter(torch.randn(customers, RANK, after) / RANK)

    def forward(self, x, who, together):
        y = self.base(x)
        if together is not None:
            return y + (x[:, None] @ self.down[together] @ self.up[together])[:, 0]
        rows = []
        for request, customer in enumerate(who):
            rows.append(x[request] @ self.down[customer] @ self.up[customer])
        return y + torch.stack(rows)


class Net(nn.Module):
    """Adapted feed-forward blocks."""

    def __init__(self, width, layers, customers):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.ups = nn.ModuleList(Adapted(width, 2 * width, customers) for _ in range(layers))
        self.downs = nn.ModuleList(Adapted(2 * width, width, customers) for _ in range(layers))

    def forward(self, x, who, together):
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(F.gelu(up(norm(x), who, together)), who, together)
        return x


def prepare(device, repaired):
    width, layers, customers, batch = (2048, 6, 64, 48) if device == "cuda" else (16, 2, 4, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Net(width, layers, customers).to(device, dtype).eval()
    who = [(7 * at) % customers for at in range(batch)]
    together = torch.tensor(who, device=device) if repaired else None
    return model, who, together, torch.randn(batch, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, who, together, x = state
    for _ in range(steps):
        y = model(x, who, together)
    return y.float().square().mean()


main(prepare, run, steps=20)
