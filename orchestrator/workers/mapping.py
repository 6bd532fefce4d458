"""Does the same work for each of many ranks, in whatever `concurrent.futures.Executor` there is."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.forkserver import ensure_running
from typing import TypeVar

from nsight_prof.parsers.errors import StepFailed, UsageError

RAY = "ray"
# Workers are forks of one process that has imported what reads a rank, a second and more of each.
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["nsight_prof.orchestrator.imports.reading"])

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def executor_of(
    workers: int, on: str | None = None, memory: int | None = None
) -> Iterator[Executor | None]:
    """Give what does the work: processes of this machine, or with `on` a cluster.

    None: one worker, this process. `on` is `ray` (the cluster that RAY_ADDRESS or this machine
    names), `ray:ADDRESS` or `ray://ADDRESS`; `memory` is what each of its workers needs (bytes).

    Raises:
        UsageError: `on` is none of these, or there is a number of workers, too.
        ToolMissing: Ray is not installed, or there is no cluster.
    """
    if on is None:
        if workers == 1:
            yield None
            return
        ensure_running()  # it imports while this process does
        with ProcessPoolExecutor(workers, WARM, _begin, (dict(os.environ), workers)) as executor:
            yield executor
        return
    engine, _, address = on.partition(":")
    if engine != RAY:
        raise UsageError(f"--on {on} names no engine", "take --on ray or --on ray:ADDRESS")
    if workers != 1:
        raise UsageError(
            "--on and --workers were given", "leave out --workers: Ray has a worker for each CPU"
        )
    from nsight_prof.orchestrator.workers.on_ray import ray_executor

    with ray_executor(on if address.startswith("//") else address, memory) as cluster:
        yield cluster


def _begin(environment: Mapping[str, str], workers: int) -> None:
    """Give a worker the variables of now, its part of the cores to read by threads, and memory.

    What it is a fork of has the variables of its own start. Threads beyond the cores wait for each
    other: they cost a rank a tenth of its time where each core has a worker.
    """
    from nsight_prof.parsers.nsys.freed import keep_freed
    from nsight_prof.parsers.nsys.sqlite import database

    keep_freed()
    os.environ.clear()
    os.environ.update(environment)
    database.READERS = max(1, min(database.READERS, database.CORES // workers))


def mapped(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    executor: Executor | None,
    submit: Callable[..., Future[Result]] | None = None,
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield `work` of each item in their order; `submit` chooses where, else the executor does.

    Those of the largest `size` are begun first: a long one that is begun last is waited for alone.
    Without an executor each is done when it is asked for, in this process.

    Raises:
        StepFailed: what worked on an item was killed.
    """
    if executor is None:
        yield from map(work, items)
        return
    begin = submit or executor.submit
    longest = sorted(range(len(items)), key=lambda number: size(items[number]), reverse=True)
    begun = {number: begin(work, items[number]) for number in longest}
    futures = [begun.pop(number) for number in range(len(items))]
    try:
        for number, future in enumerate(futures):
            yield future.result()
            futures[number] = Future()  # what was yielded is not kept
    except BrokenExecutor as error:
        raise StepFailed(
            "a process that worked on a rank was killed",
            "if the memory was full, take fewer --workers; tables that are made are kept",
        ) from error
    finally:
        for future in futures:
            future.cancel()
