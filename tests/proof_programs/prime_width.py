"""A feed-forward block whose inner width of 5461 came from two thirds of 8192."""

import torch
from common import main


def prepare(device, repaired):
    width, inner, tokens = (2048, 5461, 8192) if device == "cuda" else (8, 13, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    up = torch.randn(inner, width, device=device, dtype=dtype) / width**0.5
    down = torch.randn(width, inner, device=device, dtype=dtype) / inner**0.5
    if repaired:
        more = -inner % 64
        up = torch.nn.functional.pad(up, (0, 0, 0, more))
        down = torch.nn.functional.pad(down, (0, more))
    return up, down, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    up, down, x = state
    for _ in range(steps):
        inner = torch.relu(torch.nn.functional.linear(x, up))
        y = torch.nn.functional.linear(inner, down)
    return y.float().square().mean()


main(prepare, run, steps=80)
