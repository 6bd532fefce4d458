"""A short training loop of a multilayer perceptron: stands for "your own torch script".

    python train_mlp.py --width 4096 --batch 4096 --steps 10
    python train_mlp.py --compile       # forward, loss and their gradients by torch.compile
    python train_mlp.py --compile --warmup 3    # compile and tune before the profiler starts

NVTX ranges: `forward`, `backward` and `optimizer`. The CUDA profiler API brackets the steps after
the warm-up, for `capture: profiler-api`. Random data; prints the last loss.
"""

from __future__ import annotations

import argparse
import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import need

need("torch")
import torch

try:
    import nvtx
except ImportError:  # Without the package there are no phases, and the program is still the same.
    nvtx = None


def phase(name: str) -> contextlib.AbstractContextManager[object]:
    """Return an NVTX range called `name`."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


@contextlib.contextmanager
def profiled(device: str) -> Iterator[None]:
    """Bracket what is inside with start and stop of the CUDA profiler API, and wait for its end."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    yield
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def train(
    width: int, batch: int, steps: int, device: str, compiled: bool = False, warmup: int = 0
) -> float:
    """Train for `steps` on random data of shape (batch, width) in bf16; return the last loss.

    `warmup` steps come before those, outside of what the profiler API brackets.
    """
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

    def run(times: int) -> None:
        nonlocal loss
        for _ in range(times):
            with phase("forward"):
                loss = forward()
            with phase("backward"):
                loss.backward()
            with phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    run(warmup)
    with profiled(device):
        run(steps)
    return float(loss.detach())


def main(argv: list[str] | None = None) -> int:
    """Train and print the loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--width", type=int, default=4096, help="features (4096)")
    parser.add_argument("--batch", type=int, default=4096, help="rows (4096)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (10)")
    parser.add_argument("--warmup", type=int, default=0, help="steps before these (0)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    a = parser.parse_args(argv)
    loss = train(a.width, a.batch, a.steps, a.device, a.compile, a.warmup)
    print(f"loss {loss:.4f} after {a.warmup + a.steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
