"""Threads that make clients' messages while the caller's thread trains the next client.

NumPy, the compiled loops and AES let go of the interpreter's lock on long vectors.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
MOST = 4
"""Threads that one round starts, at most: more would hold more vectors in memory."""


def available() -> int:
    """Return how many threads are worth starting here: none on one core, and up to `MOST`."""
    bound = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    return min(cores, MOST) if cores > 1 else 0


def run(jobs: Iterable[Callable[[], T]], *, threads: int) -> Generator[T]:
    """Yield what ``jobs`` return, in their order; without threads the caller's own runs them.

    Each job is taken from ``jobs`` in the caller's thread, at most one more than there are threads
    before the result of an earlier one is asked for. What a job raises is raised here; then, or
    when the iterator is closed, no further job begins and the threads end.
    """
    if not threads:
        yield from (job() for job in jobs)
        return
    under_way: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(threads, "skellam")
    try:
        for job in jobs:
            under_way.append(pool.submit(job))
            if len(under_way) > threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
