"""Who does the work of many ranks: in which order, and on how many cores each."""

from concurrent.futures import Executor, Future
from typing import Any

from nsight_prof.orchestrator.workers.mapping import executor_of, mapped
from nsight_prof.parsers.nsys.sqlite import database


class InOrder(Executor):
    """Does what it is given at once, and keeps what it was given."""

    def __init__(self) -> None:
        self.begun: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.begun.append(args[0])
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def test_the_longest_is_begun_first_and_results_keep_their_order() -> None:
    executor = InOrder()
    found = list(mapped(str, [3, 20, 7, 20], executor, size=lambda item: item))
    assert executor.begun == [20, 20, 7, 3]
    assert found == ["3", "20", "7", "20"]


def test_without_sizes_the_order_is_that_of_the_items() -> None:
    executor = InOrder()
    assert list(mapped(str, [3, 20, 7], executor)) == ["3", "20", "7"]
    assert executor.begun == [3, 20, 7]


def test_workers_share_the_cores_to_read_by_threads() -> None:
    with executor_of(2) as executor:
        assert executor is not None
        found = executor.submit(readers).result()
    assert found == max(1, min(4, database.CORES // 2))


def readers() -> int:
    return database.READERS
