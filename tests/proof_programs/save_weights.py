"""Trains a network and writes its weights to a file every few steps."""

import tempfile
import threading
from pathlib import Path

import torch
from common import main
from torch import nn

EVERY = 5


def prepare(device, repaired):
    width, batch = (2048, 16384) if device == "cuda" else (16, 8)
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    kept = [
        torch.empty(p.shape, dtype=p.dtype, pin_memory=device == "cuda") for p in model.parameters()
    ]
    x = torch.randn(batch, width, device=device)
    return model, optimizer, kept, x, Path(tempfile.mkdtemp())


def write(kept, folder, copied):
    if copied:
        copied.synchronize()
    with (folder / "weights.bin").open("wb") as file:
        for weight in kept:
            weight.numpy().tofile(file)


def run(state, steps, repaired):
    model, optimizer, kept, x, folder = state
    writer = None
    for step in range(steps):
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = (model(x).float() - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY:
            continue
        if repaired:
            if writer:
                writer.join()
            for weight, to in zip(model.parameters(), kept, strict=True):
                to.copy_(weight.detach(), non_blocking=True)
            copied = torch.cuda.Event() if x.is_cuda else None
            if copied:
                copied.record()
            writer = threading.Thread(target=write, args=(kept, folder, copied))
            writer.start()
        else:
            torch.save(model.state_dict(), folder / "weights.pt")
    if writer:
        writer.join()
    return loss.detach()


main(prepare, run, steps=20)
