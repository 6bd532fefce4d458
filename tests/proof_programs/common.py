"""What the programs of this folder share: arguments, the measured loop, and turns on one GPU.

Each program gives `prepare(device, repaired)`, which makes its state, and `run(state, steps, repaired)`, which does the work and
returns a number or tensor that both variants must agree on. It runs by itself: `python item_norms.py --device cpu --both`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

State = Any
Work = Callable[[State, int, bool], "torch.Tensor | float"]


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Wait for the turn on the GPU: one program at a time holds the file that PROGRAMS_LOCK names."""
    name = os.environ.get("PROGRAMS_LOCK")
    if not name:
        yield
        return
    # never closed: what a profiler holds of the GPU is free only once this process is gone
    fcntl.flock(os.open(name, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
    yield


def open_gpu(device: str) -> None:
    """Do what a process does once on the GPU, in some seconds: its context, and cuBLAS."""
    if not device.startswith("cuda"):
        return
    some = torch.ones(64, 64, device=device)
    some @ some, some.bfloat16() @ some.bfloat16()
    torch.cuda.synchronize()


def main(
    prepare: Callable[[str, bool], State], run: Work, *, steps: int, small: int = 2, warm: int = 3
) -> None:
    """Measure the slow or the repaired loop, or both in turns, and print a JSON line with milliseconds.

    `steps` is what a loop does on a GPU, `small` on a CPU, and `warm` what each variant does unmeasured first.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repaired", action="store_true")
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--choice", choices=("graph", "tf32"), help="measure this choice of an owner, too"
    )
    parser.add_argument("--changed", help="a changed file, whose repaired variant is the slow one")
    args = parser.parse_args()
    prepare, run = _beside(prepare, run, args.changed)
    if args.choice == "tf32":
        torch.set_float32_matmul_precision("high")
    cuda = args.device.startswith("cuda")
    count = args.steps or (steps if cuda else small)
    variants = [False, True] if args.both else [args.repaired]
    open_gpu(args.device)
    with turn():
        states = {}
        for repaired in variants:
            torch.manual_seed(0)
            states[repaired] = prepare(args.device, repaired)
            if args.choice == "graph":
                _make_capturable(states[repaired])
        times: dict[bool, list[float]] = {repaired: [] for repaired in variants}
        sums: dict[bool, float] = {}
        for repaired in variants:
            if warm:
                run(states[repaired], min(warm, count), repaired)
        if args.choice == "graph":
            run = _graphed(run, states)
        for _ in range(args.repeats):
            for repaired in variants:
                milliseconds, value = measure(lambda r=repaired: run(states[r], count, r), cuda)
                times[repaired].append(milliseconds)
                sums.setdefault(repaired, float(value))
    name = Path(sys.argv[0]).stem
    for repaired in variants:
        row = {
            "program": name,
            "repaired": repaired,
            "steps": count,
            "ms": statistics.median(times[repaired]),
            "checksum": sums[repaired],
            **({"choice": args.choice} if args.choice else {}),
            "samples": times[repaired],
        }
        print(json.dumps(row), flush=True)


def _beside(
    prepare: Callable[[str, bool], State], run: Work, changed: str | None
) -> tuple[Callable[[str, bool], State], Work]:
    """Return as the slow variant the repaired one of a changed file, if any, beside the one here."""
    if changed is None:
        return prepare, run
    here, taken = sys.modules["common"], []
    kept, here.main = here.main, lambda *given, **_: taken.append(given)
    spec = importlib.util.spec_from_file_location("changed", changed)
    sys.modules["changed"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    here.main = kept
    pair = {False: taken[0], True: (prepare, run)}
    return (
        lambda device, repaired: pair[repaired][0](device, True),
        lambda state, steps, repaired: pair[repaired][1](state, steps, True),
    )


def _make_capturable(state: State) -> None:
    """Let optimizers in a state keep their counters on the GPU, as a CUDA graph needs it."""
    for part in state if isinstance(state, (tuple, list)) else (state,):
        if isinstance(part, torch.optim.Optimizer):
            for group in part.param_groups:
                if "capturable" in group:
                    group["capturable"] = True


def _graphed(run: Work, states: dict[bool, State]) -> Work:
    """Return the loop as replays of a CUDA graph of one step; raises where a step cannot be one."""
    graphs = {}
    for repaired, state in states.items():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run(state, 1, repaired)
        torch.cuda.current_stream().wait_stream(side)
        graphs[repaired] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[repaired]):
            result = run(state, 1, repaired)

    def replay(state: State, steps: int, repaired: bool) -> torch.Tensor | float:
        for _ in range(steps):
            graphs[repaired].replay()
        return result

    return replay


def measure(
    work: Callable[[], torch.Tensor | float], cuda: bool
) -> tuple[float, torch.Tensor | float]:
    """Milliseconds of `work`, the GPU's included, and its result; a profiler captures just this."""
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    start = time.perf_counter()
    value = work()
    if cuda:
        torch.cuda.synchronize()
    taken = (time.perf_counter() - start) * 1e3
    if cuda:
        torch.cuda.profiler.stop()
    return taken, value
