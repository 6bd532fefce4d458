"""Does the same work for each of many ranks: one after the other, or in processes of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from nsight_prof.parsers.errors import StepFailed

Item = TypeVar("Item")
Result = TypeVar("Result")


def mapped(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield `work` of each item in their order, done in as many processes as `workers`.

    With one worker each is done when it is asked for, in this process.

    Raises:
        StepFailed: a process was killed.
    """
    if workers == 1 or len(items) < 2:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(items)), mp_context=context) as pool:
        try:
            yield from pool.map(work, items)
        except BrokenProcessPool as error:
            raise StepFailed(
                "a process that worked on a rank was killed",
                "if the memory was full, take fewer --workers; tables that are made are kept",
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
