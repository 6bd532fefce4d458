"""Data-parallel training under torchrun: one rank of it, with a planted straggler or none.

    torchrun --nproc-per-node 2 train.py --steps 50 --plant sleep

Each step has NVTX range `step`; the model is averaged by DistributedDataParallel. Afterwards come
collectives of known sizes in range `known`, each between CUDA events (--calls N: N of them, one
behind the other; --more-calls M: and M of them once more, so that what two events take themselves
is known), on the world's communicator and on a second one of the same ranks. The first rank writes
what was sent, and all events' times, to --out. `--seconds` trains for so long instead,
and says "training" once 20 steps are done.

Plants of the last rank: `sleep` (5 ms on the host before each step), `loader` (a DataLoader that
takes as long for its items), `input` (a batch longer by half), `kernels` (matrix products beside
those of the model), `copies` (64 MiB of pageable memory). What each of them takes a step is written
to --out as well: by the host's clock, by CUDA events, or of `input` what the model alone needs more
for that batch. `--plant-rank N` plants it in another rank. `--go FILE`: the GPU is used from the
moment on at which FILE is there, so that several jobs can be made ready beside one another.
"""

import argparse
import contextlib
import json
import os
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

ITEM_S = 0.005
BYTES = (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
REPEATS = 4
SPIN_CYCLES = 200_000  # for each call: the host launches all of them before the first one runs


@contextlib.contextmanager
def named(name):
    """An NVTX range."""
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_push(name)
    yield
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_pop()


class Slow(torch.utils.data.IterableDataset):
    """Items that take the host a while."""

    def __iter__(self):
        while True:
            end = time.perf_counter() + ITEM_S
            total = 0
            while time.perf_counter() < end:
                total += 1
            yield total


class Rank:
    def __init__(self, args):
        self.args = args
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        cuda = args.device == "cuda"
        self.cuda = cuda
        local = int(os.environ["LOCAL_RANK"])
        self.device = torch.device(args.device, local if cuda else None)
        if cuda:
            torch.cuda.set_device(local)
        dist.init_process_group("nccl" if cuda else "gloo", device_id=self.device if cuda else None)
        self.second = dist.new_group(list(range(self.size)))
        hidden, batch = (args.hidden, args.batch) if cuda else (64, 8)
        layers = [torch.nn.Linear(hidden, hidden, bias=False) for _ in range(args.layers)]
        dtype = torch.bfloat16 if cuda else torch.float32
        stack = [part for layer in layers for part in (layer, torch.nn.GELU())]
        model = torch.nn.Sequential(*stack).to(self.device, dtype)
        slow = self.rank == (self.size - 1 if args.plant_rank is None else args.plant_rank)
        self.plant = args.plant if slow else "none"
        more = batch // 2 if self.plant == "input" else 0
        self.x = torch.randn(batch + more, hidden, device=self.device, dtype=dtype)
        self.planted = []
        self.input_s = 0.0
        if more:
            self.input_s = self.alone(model, self.x) - self.alone(model, self.x[:batch])
        self.model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.items = iter(torch.utils.data.DataLoader(Slow(), batch_size=1))
        self.more = torch.randn(hidden, hidden, device=self.device, dtype=dtype)
        self.pageable = torch.ones(16 << 20) if self.plant == "copies" else None

    def alone(self, model, x):
        """Median seconds of forward and backward without the other ranks."""
        times = []
        for _ in range(15):
            start = self.event()
            model(x).float().square().mean().backward()
            times.append((start, self.event()))
            model.zero_grad()
        self.sync()
        return sorted(self.between(*pair) for pair in times[5:])[5]

    def event(self):
        """A moment of the GPU, of the host where there is none."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start, end):
        return start.elapsed_time(end) * 1e-3 if self.cuda else end - start

    def plant_it(self):
        """Do what makes this rank slow; keep when it began and ended."""
        host = self.plant in ("sleep", "loader", "copies")
        begin = time.perf_counter() if host else self.event()
        if self.plant == "sleep":
            time.sleep(ITEM_S)
        if self.plant == "loader":
            next(self.items)
        if self.plant == "kernels":
            for _ in range(8):
                self.more @ self.more
        if self.pageable is not None:
            self.pageable.to(self.device)
        end = time.perf_counter() if host else self.event()
        self.planted.append((host, begin, end))

    def planted_s(self):
        """Seconds of each planted piece of work."""
        if self.plant == "input":
            return [self.input_s] * len(self.planted)
        return [end - begin if host else self.between(begin, end)
                for host, begin, end in self.planted]  # fmt: skip

    def step(self):
        with named("step"):
            if self.plant != "none":
                self.plant_it()
            self.model(self.x).float().square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, steps):
        """Seconds a step on the host's clock, each waited for."""
        seconds = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            self.sync()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def known(self):
        """Collectives of known sizes; returns for each its milliseconds by CUDA events."""
        width, sent = self.x.element_size(), []
        sizes = BYTES if self.cuda else BYTES[:2]
        pairs = [self.buffers(size // width) for size in sizes]
        for group, communicator in ((None, "world"), (self.second, "second")):
            for whole, part in pairs:
                calls = {
                    "all-reduce": partial(dist.all_reduce, whole),
                    "all-gather": partial(dist.all_gather_into_tensor, whole, part),
                    "reduce-scatter": partial(dist.reduce_scatter_tensor, part, whole),
                    "broadcast": partial(dist.broadcast, whole, src=0),
                }
                for name, call in calls.items():
                    in_group = partial(call, group=group)
                    times = [self.clocked(in_group, self.args.calls) for _ in range(REPEATS)]
                    sent.append([communicator, name, whole.numel() * width, times])
                    if self.args.more_calls:
                        more = [self.clocked(in_group, self.args.more_calls) for _ in times]
                        sent[-1].append(more)
        for whole, _ in pairs[:4]:
            times = [self.clocked(partial(self.ring, whole), self.args.calls)]
            sent.append(["world", "send-receive", whole.numel() * width, times])
        return sent

    def buffers(self, length):
        whole = torch.zeros(length, device=self.device, dtype=self.x.dtype)
        return whole, torch.zeros_like(whole[: length // self.size])

    def ring(self, whole):
        other = torch.empty_like(whole)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        sends = dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, other, before)
        for work in dist.batch_isend_irecv(list(sends)):
            work.wait()

    def clocked(self, call, calls):
        if not self.cuda:
            call()
            return None
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.sync()
        if calls > 1:
            torch.cuda._sleep(SPIN_CYCLES * calls)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls

    def run(self):
        args = self.args
        self.timed(5)
        if args.seconds:
            return self.long()
        if args.known and args.calls > 1:
            self.known()  # NCCL's first all-reduces of 4 MiB took 0.8 ms, later ones 0.03
        if args.window and self.cuda:
            dist.barrier()
            self.sync()
            torch.cuda.profiler.start()
            dist.barrier()  # a profiler takes each rank another time to start
            self.sync()
        self.planted.clear()
        seconds = self.timed(args.steps)
        sent = []
        if args.known:
            with named("known"):
                sent = self.known()
        if args.window and self.cuda:
            self.sync()
            torch.cuda.profiler.stop()
        self.sync()
        facts = {"rank": self.rank, "plant": self.plant, "steps_s": seconds, "known": sent}
        facts["planted_s"] = self.planted_s()
        if args.out:
            Path(f"{args.out}.{self.rank}.json").write_text(json.dumps(facts))

    def long(self):
        begin, steps = time.monotonic(), 0
        while time.monotonic() - begin < self.args.seconds:
            self.step()
            steps += 1
            if steps == 20:
                self.sync()
                print("training", flush=True)
            if steps % 20 == 0:
                self.sync()
                if self.args.out:
                    Path(f"{self.args.out}.{self.rank}.steps").write_text(str(steps))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--plant", default="none")
    parser.add_argument("--plant-rank", type=int)
    parser.add_argument("--go", type=Path)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--calls", type=int, default=1, help="of each known one, between events")
    parser.add_argument("--more-calls", type=int, default=0, help="between events, too")
    parser.add_argument(
        "--window", action="store_true", help="call the CUDA profiler's start, stop"
    )
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    while args.go and not args.go.exists():
        time.sleep(0.02)
    Rank(args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
