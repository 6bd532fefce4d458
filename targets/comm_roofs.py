"""Bandwidth of collectives between the GPUs of a machine, by torch.distributed: what NCCL can do.

    python comm_roofs.py                              # all operations, on 2, 4, ... all GPUs
    python comm_roofs.py --only 'all-reduce/x2'
    python comm_roofs.py --device cpu                 # two processes by gloo, tiny messages

Each GPU has a process of its own. A case is one operation on the first N GPUs with one message; its
bytes are those of the bus bandwidth of nccl-tests (doc/PERFORMANCE.md): the message times
2 (N - 1) / N for all-reduce, (N - 1) / N for all-gather, reduce-scatter and all-to-all, 1 for
send-receive, where each rank sends to the next and receives from the one before. The message is the
whole one, as nccl-tests counts it: of all-gather what a rank has afterwards.

What is moved is checked once on known values; what is timed are zeros, since sums of other values
overflow in time. Samples are calls one after another between CUDA events, behind a kernel that
spins while the host queues them. The rank that is last to start has the shortest sample, which
counts: its time holds no waiting for others.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.harness import Call, Case, Setup, Unsupported, Work, run_target

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive")
SIZES = tuple(1 << power for power in range(10, 29))
CPU_SIZES = (1 << 10, 1 << 14)
TIMEOUT_S = 60
"""After which NCCL ends a process whose peers have gone."""
ENDED = "a rank has ended; its reason is above"
JOIN_S = 10
WARM_UP, SAMPLES = 5, 20
SAMPLE_S = 1e-3
MOST_CALLS = 20
SPIN_CYCLES = 200_000
"""A call of torch.distributed takes the host up to 60 us (a batch of send and receive, H100); this
is 100 us at 2 GHz."""


@dataclass(frozen=True)
class Message:
    """One operation on the first `ranks` GPUs; `bytes` of the whole message."""

    operation: str
    ranks: int
    bytes: int

    @property
    def bus_bytes(self) -> float:
        """Bytes whose rate is the bus bandwidth of nccl-tests."""
        if self.operation == "send-receive":
            return self.bytes
        factor = 2 if self.operation == "all-reduce" else 1
        return self.bytes * factor * (self.ranks - 1) / self.ranks


def group_sizes(gpus: int) -> list[int]:
    """Return the numbers of GPUs that are measured: powers of two, and all."""
    return sorted({n for n in (1 << power for power in range(1, 12)) if n < gpus} | {gpus})


@dataclass(frozen=True)
class _Exchange:
    """A call on its buffers; chunk i of `data` is filled with `fills[i]`, then `result` holds."""

    call: Call
    data: Any
    fills: Sequence[int]
    result: Any
    holds: Sequence[int]


class Member:
    """One process of the job on its device, and the message that it has buffers of."""

    def __init__(self, rank: int, gpus: int, device: str, store: str) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self.rank = torch, dist, rank
        self.cuda = device == "cuda"
        self.device = torch.device(device, rank if self.cuda else None)
        if self.cuda:
            torch.cuda.set_device(rank)
        dist.init_process_group(
            "nccl" if self.cuda else "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=gpus,
            timeout=timedelta(seconds=TIMEOUT_S),
            device_id=self.device if self.cuda else None,
        )
        # All ranks make all groups, in the same order.
        self._groups = {n: dist.new_group(list(range(n))) for n in group_sizes(gpus)}
        self._exchange: _Exchange | None = None

    def prepare(self, message: Message) -> None:
        """Make the buffers of a message; raises where they do not fit."""
        self._exchange = None
        dtype = self._torch.bfloat16 if self.cuda else self._torch.float32
        length = message.bytes // dtype.itemsize
        whole, other = (
            self._torch.zeros(length, dtype=dtype, device=self.device) for _ in range(2)
        )
        part = other[: length // message.ranks]
        dist, ranks, group = self._dist, message.ranks, self._groups[message.ranks]
        to_all = [_value(self.rank, rank) for rank in range(ranks)]
        from_all = [_value(rank, self.rank) for rank in range(ranks)]
        sums = [sum(_value(rank, chunk) for rank in range(ranks)) for chunk in range(ranks)]
        before, after = (self.rank - 1) % ranks, (self.rank + 1) % ranks

        operations = [
            dist.P2POp(dist.isend, whole, after, group),
            dist.P2POp(dist.irecv, other, before, group),
        ]

        def send_receive() -> None:
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        if message.operation == "all-reduce":
            call = partial(dist.all_reduce, whole, group=group)
            self._exchange = _Exchange(call, whole, to_all, whole, sums)
        elif message.operation == "all-gather":
            call = partial(dist.all_gather_into_tensor, whole, part, group=group)
            gathered = [_value(rank, 0) for rank in range(ranks)]
            self._exchange = _Exchange(call, part, to_all[:1], whole, gathered)
        elif message.operation == "reduce-scatter":
            call = partial(dist.reduce_scatter_tensor, part, whole, group=group)
            self._exchange = _Exchange(call, whole, to_all, part, [sums[self.rank]])
        elif message.operation == "all-to-all":
            call = partial(dist.all_to_all_single, other, whole, group=group)
            self._exchange = _Exchange(call, whole, to_all, other, from_all)
        else:
            received = [_value(before, rank) for rank in range(ranks)]
            self._exchange = _Exchange(send_receive, whole, to_all, other, received)

    def check(self) -> None:
        """Run the operation once on known values; leaves zeros.

        Raises:
            ArithmeticError: a value is not where it should be.
        """
        exchange = self._made()
        for chunk, value in zip(
            exchange.data.chunk(len(exchange.fills)), exchange.fills, strict=True
        ):
            chunk.fill_(value)
        exchange.call()
        chunks = exchange.result.chunk(len(exchange.holds))
        right = [bool((c == v).all()) for c, v in zip(chunks, exchange.holds, strict=True)]
        exchange.data.zero_()
        exchange.result.zero_()
        if not all(right):
            raise ArithmeticError(f"rank {self.rank} got other values than were sent")

    def run(self, calls: int, samples: int) -> list[float]:
        """Return seconds per call of `samples` samples of `calls` calls each."""
        return [self._sample(calls) for _ in range(samples)]

    def _sample(self, calls: int) -> float:
        call = self._made().call
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - begin) / calls
        cuda = self._torch.cuda
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(SPIN_CYCLES * calls)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        seconds: float = start.elapsed_time(end) * 1e-3 / calls
        return seconds

    def close(self) -> None:
        """Leave the job."""
        self._dist.destroy_process_group()

    def _made(self) -> _Exchange:
        if self._exchange is None:
            raise RuntimeError("no message was prepared")
        return self._exchange


def _value(source: int, chunk: int) -> int:
    """What rank `source` writes into a chunk: sums over 85 ranks are exact in bf16."""
    return 1 + (source + 2 * chunk) % 3


def serve(rank: int, gpus: int, device: str, store: str, pipe: Connection) -> None:
    """Do what the first rank asks for, until it hangs up: (method, arguments) each time."""
    member = Member(rank, gpus, device, store)
    pipe.send(None)
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            os._exit(0)  # without waiting for peers that have gone
        try:
            pipe.send(getattr(member, method)(*arguments))
        except Exception as error:
            pipe.send(error)


class Job:
    """The first rank, in this process, and the processes of the others; started when needed."""

    def __init__(self, device: str, folder: str) -> None:
        self.device = device
        self.gpus = _gpus(device)
        self._store = str(Path(folder) / "store")
        self._first: Member | None = None
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def measure(self, message: Message) -> list[float]:
        """Return seconds per call of samples, of each the shortest of all ranks.

        Raises:
            ArithmeticError: a rank got wrong values.
            RuntimeError: a rank failed, or has ended.
        """
        self._start()
        self._ask(message.ranks, "prepare", message)
        self._ask(message.ranks, "check")
        for _ in range(2):  # the first round connects the ranks
            warm = min(min(times) for times in self._ask(message.ranks, "run", 1, WARM_UP))
        calls = max(2, min(MOST_CALLS, int(SAMPLE_S / warm)))
        by_rank = self._ask(message.ranks, "run", calls, SAMPLES)
        return [min(of_sample) for of_sample in zip(*by_rank, strict=True)]

    def close(self) -> None:
        """Let all processes leave the job at once: NCCL waits a minute for who ended without."""
        if self._first is not None:
            with suppress(Exception):
                self._ask(self.gpus, "close")
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(JOIN_S)

    def _start(self) -> None:
        if self._first is not None:
            return
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("spawn")
        for rank in range(1, self.gpus):
            own, other = context.Pipe()
            arguments = (rank, self.gpus, self.device, self._store, other)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)
            other.close()
            self._pipes.append(own)
        self._first = Member(0, self.gpus, self.device, self._store)
        self._answers(self._pipes)

    def _ask(self, ranks: int, method: str, *arguments: object) -> list[Any]:
        """Call a method on the first `ranks` ranks at once; raises the first of their errors."""
        pipes = self._pipes[: ranks - 1]
        try:
            for pipe in pipes:
                pipe.send((method, arguments))
        except OSError:
            raise RuntimeError(ENDED) from None
        try:
            own = getattr(self._first, method)(*arguments)
        except Exception as error:
            own = error
        answers = [own, *self._answers(pipes)]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _answers(self, pipes: Sequence[Connection]) -> list[Any]:
        try:
            return [pipe.recv() for pipe in pipes]
        except EOFError:
            raise RuntimeError(ENDED) from None


def cases(args: Namespace, job: Job) -> Iterator[Case]:
    """Give each operation on each number of GPUs with each message."""
    if job.gpus < 2:
        return
    sizes = SIZES if args.device == "cuda" else CPU_SIZES
    for ranks in group_sizes(job.gpus):
        for operation in OPERATIONS:
            for size in sizes:
                chunk = size // (ranks * 4) * 4  # whole elements for each rank
                message = Message(operation, ranks, chunk * ranks)
                yield Case(
                    name=f"{operation}/x{ranks}/{_size(size)}",
                    operation=operation,
                    prepare=_not_counted,
                    samples=partial(_samples, job, message),
                    work=Work(bytes=message.bus_bytes),
                    params={"operation": operation, "ranks": ranks, "message_bytes": message.bytes},
                    dtype="bf16" if args.device == "cuda" else "fp32",
                    level="link",
                    modes=("hot",),
                    data=("zeros",),
                    launch="eager",
                    counted=False,
                )


def _samples(job: Job, message: Message, setup: Setup) -> list[float]:
    return job.measure(message)


def _not_counted(setup: Setup) -> Sequence[Call]:
    raise Unsupported("a profiler that replays one rank waits for the others forever")


def _size(size: int) -> str:
    return f"{size >> 10}k" if size < 1 << 20 else f"{size >> 20}m"


def _gpus(device: str) -> int:
    """Return how many processes there are: one a GPU; two on a CPU."""
    if device == "cpu":
        return 2
    import torch

    return int(torch.cuda.device_count())


def main(argv: list[str] | None = None) -> int:
    """Measure and write the records; exit code 1 where there are fewer than two GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        jobs: list[Job] = []

        def make_cases(args: Namespace) -> Iterator[Case]:
            jobs.append(Job(args.device, folder))
            if jobs[0].gpus < 2:
                raise ValueError("collectives need two GPUs, and torch sees one")
            return cases(args, jobs[0])

        try:
            return run_target("comm_roofs", make_cases, argv, description=__doc__)
        finally:
            for job in jobs:
                job.close()


if __name__ == "__main__":
    sys.exit(main())
