"""A compiled feed-forward block that serves batches of different lengths."""

import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = (
    tempfile.mkdtemp()
)  # as on a machine that sees it first
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch
from common import main


def block(x, scale, shift):
    return torch.nn.functional.silu(x * scale + shift) * x


def prepare(device, repaired):
    torch._dynamo.reset()
    width = 1024 if device == "cuda" else 16
    scale, shift = torch.randn(2, width, device=device)
    compiled = torch.compile(
        block, dynamic=repaired, backend="inductor" if device == "cuda" else "eager"
    )
    compiled(torch.randn(100, width, device=device), scale, shift)
    return compiled, scale, shift


@torch.no_grad()
def run(state, steps, repaired):
    compiled, scale, shift = state
    total = torch.zeros((), device=scale.device)
    for step in range(steps):
        x = torch.ones(128 * (2 + step), scale.shape[0], device=scale.device)
        total += compiled(x, scale, shift).mean()
    return total


main(prepare, run, steps=5, warm=0)
