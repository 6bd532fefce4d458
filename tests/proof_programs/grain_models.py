"""Trains a model of how grain dries in a silo, and notes for each of its parameters how its gradients behave."""

import torch
from common import main
from torch import nn


class Drying(nn.Module):
    def __init__(self, layers, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(layers, width), nn.Linear(width, layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = x + nn.functional.gelu(linear(norm(x)))
        return self.last(x)


class Notes:
    """Norm and largest value of each gradient: taken one by one, or gathered where they are."""

    def __init__(self, model, gathered):
        self.names = [name for name, _ in model.named_parameters()]
        self.parameters, self.gathered = list(model.parameters()), gathered

    @torch.no_grad()
    def collect(self):
        metrics = {}
        if self.gathered:
            grads = [p.grad for p in self.parameters]
            norms = torch.stack(torch._foreach_norm(grads))
            tops = torch.stack(torch._foreach_norm(grads, float("inf")))
            for name, norm, top in zip(
                self.names, *torch.stack([norms, tops]).tolist(), strict=True
            ):
                metrics[f"norm/{name}"], metrics[f"max/{name}"] = norm, top
            return metrics
        for name, p in zip(self.names, self.parameters, strict=True):
            metrics[f"norm/{name}"] = p.grad.norm().item()
            metrics[f"max/{name}"] = p.grad.abs().max().item()
        return metrics


def prepare(device, repaired):
    sizes, count = ((128, 1024, 32), 4096) if device == "cuda" else ((6, 8, 2), 5)
    torch.set_float32_matmul_precision("high")
    model = Drying(*sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    silos = torch.randn(4, 2, count, sizes[0], device=device)
    return model, optimizer, Notes(model, gathered=repaired), silos


def run(state, steps, repaired):
    model, optimizer, notes, silos = state
    total = 0.0
    for step in range(steps):
        before, after = silos[step % 4]
        loss = nn.functional.mse_loss(model(before), after)
        loss.backward()
        metrics = notes.collect()
        optimizer.step()
        optimizer.zero_grad()
        total += sum(metrics.values())
    return total / steps


main(prepare, run, steps=150)
