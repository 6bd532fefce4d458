"""A short training loop of a multilayer perceptron: stands for "your own torch script".

    python train_mlp.py --width 4096 --batch 4096 --steps 10
    python train_mlp.py --compile       # forward, loss and their gradients by torch.compile

NVTX ranges: `forward`, `backward` and `optimizer`. Random data; prints the last loss.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

import torch

try:
    import nvtx
except ImportError:  # Without the package there are no phases, and the program is still the same.
    nvtx = None


def phase(name: str) -> contextlib.AbstractContextManager[object]:
    """Return an NVTX range called `name`."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


def train(width: int, batch: int, steps: int, device: str, compiled: bool = False) -> float:
    """Train for `steps` on random data of shape (batch, width) in bf16; return the last loss."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)]
    model = torch.nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width, device=device, dtype=torch.bfloat16)
    target = torch.randn_like(x)
    loss = torch.zeros(())

    def forward() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(x), target)

    if compiled:
        forward = torch.compile(forward)
    for _ in range(steps):
        with phase("forward"):
            loss = forward()
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    return float(loss)


def main(argv: list[str] | None = None) -> int:
    """Train and print the loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--width", type=int, default=4096, help="features (4096)")
    parser.add_argument("--batch", type=int, default=4096, help="rows (4096)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (10)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    a = parser.parse_args(argv)
    print(f"loss {train(a.width, a.batch, a.steps, a.device, a.compile):.4f} after {a.steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
