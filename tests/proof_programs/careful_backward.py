"""Trains a small transformer on random tokens."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def prepare(device, repaired):
    width, length, batch = (1024, 1024, 16) if device == "cuda" else (16, 8, 2)
    block = nn.TransformerEncoderLayer(
        width, 4 if width < 64 else 16, 4 * width, 0.0, batch_first=True, norm_first=True
    )
    model = nn.TransformerEncoder(block, 4, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, optimizer, torch.randn(batch, length, width, device=device)


def run(state, steps, repaired):
    model, optimizer, x = state
    for _ in range(steps):
        with torch.autograd.set_detect_anomaly(not repaired):
            with torch.autocast(x.device.type, torch.bfloat16):
                y = model(x)
            loss = F.mse_loss(y[:, :-1].float(), x[:, 1:])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=8)
