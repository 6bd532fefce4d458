"""Data-parallel training of a small transformer on several GPUs: stands for a job under torchrun.

    python data_parallel.py --gpus 2 --steps 5
    python data_parallel.py --gpus 2 --device cpu --preset tiny      # by gloo, without a GPU

Each GPU has a process of its own, started by spawn, which profilers follow (they lose forked ones).
The model learns under DistributedDataParallel: gradients are averaged in buckets while the backward
pass goes on. Then come all-reduce, all-gather, reduce-scatter and broadcast of known sizes. Data
and weights are random.

NVTX ranges: `forward`, `backward` and `optimizer`, then `collectives`. The CUDA profiler API
brackets all of it on every GPU; processes, communicators and the warm-up come before. stdout gets
one JSON line of the first rank: the sizes of the model and of all collectives of a rank.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Barrier

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import complain, need

need("torch")
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

try:
    import nvtx
except ImportError:  # Without the package there are no phases, and the program is still the same.
    nvtx = None

PRESETS = {
    "small": {"layers": 4, "hidden": 2048, "heads": 16, "batch": 8, "tokens": 1024},
    "tiny": {"layers": 2, "hidden": 64, "heads": 4, "batch": 2, "tokens": 8},
}
BYTES = (1 << 20, 1 << 26, 1 << 28)
"""Bytes of the whole message on each rank, as nccl-tests counts them."""


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of the run; lengths in tokens."""

    gpus: int
    steps: int
    warmup: int
    repeats: int
    layers: int
    hidden: int
    heads: int
    batch: int
    tokens: int
    device: str
    seed: int

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, data and messages."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16


def phase(name: str) -> contextlib.AbstractContextManager[object]:
    """Return an NVTX range called `name`."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


class Block(torch.nn.Module):
    """One layer of a transformer: causal attention and an MLP, each after a normalization."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.up = torch.nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = torch.nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, tokens, hidden) to the same shape."""
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3 * self.heads, -1).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=1)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Rank:
    """One process of the job, on its device."""

    def __init__(self, rank: int, config: Config, meet: Callable[[], object]) -> None:
        self.rank, self.config, self.meet = rank, config, meet
        self.device = torch.device(config.device, rank if config.device == "cuda" else None)

    def run(self) -> None:
        """Warm up, then train and exchange messages inside of the profiler's brackets."""
        c = self.config
        torch.manual_seed(c.seed)
        model = torch.nn.Sequential(*(Block(c.hidden, c.heads) for _ in range(c.layers)))
        model = model.to(self.device, c.dtype)
        weights = sum(p.numel() for p in model.parameters())
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=c.device == "cuda")
        shape = (c.batch, c.tokens, c.hidden)
        x = torch.randn(shape, device=self.device, dtype=c.dtype)
        buffers = self.buffers()
        self.train(parallel, optimizer, x, c.warmup)
        self.exchange(buffers, 1)
        self.profiler("start")
        self.train(parallel, optimizer, x, c.steps)
        with phase("collectives"):
            self.exchange(buffers, c.repeats)
        self.profiler("stop")
        if self.rank == 0:
            known = {"target": "data_parallel", "config": asdict(c), "parameters": weights}
            size = torch.empty((), dtype=c.dtype).element_size()
            print(
                json.dumps({**known, "gradient_bytes": weights * size, "collectives": self.plan()})
            )

    def train(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        x: torch.Tensor,
        steps: int,
    ) -> None:
        """Train for `steps`."""
        for _ in range(steps):
            with phase("forward"):
                loss = model(x).float().square().mean()
            with phase("backward"):
                loss.backward()
            with phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)

    def sizes(self) -> list[int]:
        """Bytes of the messages: small ones on a CPU."""
        return [size // 1024 if self.config.device == "cpu" else size for size in BYTES]

    def plan(self) -> list[dict[str, object]]:
        """Say what each rank exchanges in range `collectives`."""
        names = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")
        calls = self.config.repeats
        return [
            {"operation": name, "bytes": size, "dtype": str(self.config.dtype), "calls": calls}
            for size in self.sizes()
            for name in names
        ]

    def buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return for each size the whole message and this rank's part of it."""
        width = torch.empty((), dtype=self.config.dtype).element_size()
        wholes = [
            torch.zeros(size // width, device=self.device, dtype=self.config.dtype)
            for size in self.sizes()
        ]
        return [
            (whole, torch.zeros_like(whole[: len(whole) // self.config.gpus])) for whole in wholes
        ]

    def exchange(self, buffers: list[tuple[torch.Tensor, torch.Tensor]], repeats: int) -> None:
        """Run each collective of `plan` one after the other."""
        for whole, part in buffers:
            for _ in range(repeats):
                dist.all_reduce(whole)
            for _ in range(repeats):
                dist.all_gather_into_tensor(whole, part)
            for _ in range(repeats):
                dist.reduce_scatter_tensor(part, whole)
            for _ in range(repeats):
                dist.broadcast(whole, src=0)

    def profiler(self, action: str) -> None:
        """Start or stop the profiler on all ranks: the first stop ends the whole capture."""
        if self.config.device == "cuda":
            torch.cuda.synchronize()
            self.meet()
            getattr(torch.cuda.profiler, action)()
        self.meet()


def work(rank: int, config: Config, store: str, barrier: Barrier) -> None:
    """Run one rank; called in a process of its own."""
    rank_of = Rank(rank, config, barrier.wait)
    on_gpu = config.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=config.gpus,
        device_id=rank_of.device if on_gpu else None,
    )
    try:
        rank_of.run()
    finally:
        dist.destroy_process_group()


def parse_arguments(argv: list[str] | None = None) -> Config:
    """Turn the command line into a Config; a preset fills the sizes that are not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="small")
    for size in PRESETS["tiny"]:
        parser.add_argument(f"--{size}", type=int, help="overrides the preset")
    for name, default, text in (
        ("gpus", 2, "GPUs, each with a process of its own"),
        ("steps", 5, "training steps"),
        ("warmup", 3, "steps before these"),
        ("repeats", 5, "times of each collective of known size"),
        ("seed", 0, "of weights and data"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = vars(parser.parse_args(argv))
    preset = PRESETS[given.pop("preset")]
    config = Config(**{**given, **{k: given[k] or preset[k] for k in preset}})
    if config.hidden % config.heads:
        parser.error("hidden must divide by heads")
    if min(config.gpus, config.steps) < 1:
        parser.error("gpus and steps must be at least 1")
    return config


def main(argv: list[str] | None = None) -> int:
    """Start a process for each GPU; exit code 1 with a reason where there are too few GPUs."""
    config = parse_arguments(argv)
    if config.device == "cuda" and torch.cuda.device_count() < config.gpus:
        seen = torch.cuda.device_count()
        complain(
            f"torch sees {seen} CUDA devices, fewer than --gpus {config.gpus}",
            "fewer --gpus, or --device cpu --preset tiny",
        )
        return 1
    # The processes call their own threads; more of them than cores slow a CPU down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        barrier = multiprocessing.get_context("spawn").Barrier(config.gpus)
        arguments = (config, str(Path(folder) / "store"), barrier)
        multiprocessing.spawn(work, args=arguments, nprocs=config.gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
