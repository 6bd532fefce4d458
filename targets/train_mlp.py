"""A short training loop of a multilayer perceptron: stands for "your own torch script".

    python train_mlp.py --width 4096 --batch 4096 --steps 10
    python train_mlp.py --compile       # forward, loss and their gradients by torch.compile
    python train_mlp.py --compile --warmup 3    # compile and tune before the profiler starts
    python train_mlp.py --count-work    # FLOPs and bytes of the phases, for their MFU and MBU

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

from nsight_prof.targets.static_compute import Count, write_beside_records

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
    width: int,
    batch: int,
    steps: int,
    device: str,
    compiled: bool = False,
    warmup: int = 0,
    count_work: bool = False,
) -> float:
    """Train for `steps` on random data of shape (batch, width) in bf16; return the last loss.

    `warmup` steps come before those, outside of what the profiler API brackets, and with
    `count_work` as many behind them, not compiled, whose FLOPs and bytes go to static_compute.json.
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
    last = float(loss.detach())
    if count_work:
        with Count(model) as counter:
            for _ in range(steps):
                counter.enter("forward")
                loss = torch.nn.functional.mse_loss(model(x), target)
                counter.enter("backward")
                counter.add_read(model.parameters())
                loss.backward()
                counter.enter("optimizer")
                state = [t for of in optimizer.state.values() for t in of.values()]
                counter.add_read([*model.parameters(), *state])
                counter.add_read(p.grad for p in model.parameters() if p.grad is not None)
                optimizer.step()
                optimizer.zero_grad()
        write_beside_records(counter.result({"model": "train_mlp", "device": device}))
    return last


def main(argv: list[str] | None = None) -> int:
    """Train and print the loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--width", type=int, default=4096, help="features (4096)")
    parser.add_argument("--batch", type=int, default=4096, help="rows (4096)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (10)")
    parser.add_argument("--warmup", type=int, default=0, help="steps before these (0)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument(
        "--count-work", action="store_true", help="count the FLOPs and bytes of each phase, behind"
    )
    a = parser.parse_args(argv)
    loss = train(a.width, a.batch, a.steps, a.device, a.compile, a.warmup, a.count_work)
    print(f"loss {loss:.4f} after {a.warmup + a.steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
