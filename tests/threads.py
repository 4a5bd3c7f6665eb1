"""Several threads that begin together, and whose failures are the test's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def run_together(*works: Callable[[], T]) -> list[T]:
    """Each work in a thread of its own; none begins before all are there."""
    there = Barrier(len(works))

    def begin(work: Callable[[], T]) -> T:
        there.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [done.result() for done in [pool.submit(begin, work) for work in works]]
