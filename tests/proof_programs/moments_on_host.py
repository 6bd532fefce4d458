"""Trains a language model whose optimizer is written by hand, on a GPU with plenty of memory."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Adam:
    """Keeps the moments where it is told to."""

    def __init__(self, parameters, rate, where):
        self.parameters, self.rate, self.step_number = list(parameters), rate, 0
        pin = where == "cpu" and torch.cuda.is_available()

        def empty(p):
            return torch.zeros(p.shape, device=where, dtype=torch.float32, pin_memory=pin)

        self.first = [empty(p) for p in self.parameters]
        self.second = [empty(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.step_number += 1
        device = self.parameters[0].device
        first = [m.to(device, non_blocking=True) for m in self.first]
        second = [v.to(device, non_blocking=True) for v in self.second]
        grads = [p.grad for p in self.parameters]
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, grads, grads, 0.001)
        scale = torch._foreach_sqrt(second)
        torch._foreach_div_(scale, (1 - 0.999**self.step_number) ** 0.5)
        torch._foreach_add_(scale, 1e-8)
        size = self.rate / (1 - 0.9**self.step_number)
        torch._foreach_addcdiv_(self.parameters, first, scale, -size)
        for kept, new in zip(self.first + self.second, first + second, strict=True):
            if kept is not new:
                kept.copy_(new, non_blocking=True)
        for p in self.parameters:
            p.grad = None


def prepare(device, repaired):
    width, length, batch, layers = (1024, 1024, 24, 8) if device == "cuda" else (16, 8, 2, 2)
    words = 8192 if device == "cuda" else 50
    block = nn.TransformerEncoderLayer(
        width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    model = nn.Sequential(
        nn.Embedding(words, width),
        nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
        nn.Linear(width, words),
    ).to(device)
    optimizer = Adam(model.parameters(), 1e-4, device if repaired else "cpu")
    tokens = torch.randint(words, (batch, length + 1), device=device)
    return model, optimizer, tokens


def run(state, steps, repaired):
    model, optimizer, tokens = state
    for _ in range(steps):
        with torch.autocast(tokens.device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return loss.detach()


main(prepare, run, steps=5)
