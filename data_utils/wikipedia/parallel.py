"""Work spread over processes, results in order, memory bounded."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from utilities.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Cores that this process may use (a container's share, not the machine's number)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int = 2
) -> Iterator[Result]:
    """``map`` over ``workers`` processes: same results, same order, whatever their number.

    At most ``workers × ahead`` items are under way, so a long input is streamed and not collected.

    Args:
        function: picklable (a module's function, or ``functools.partial`` of one).
        items: picklable; taken one by one in this process.
        workers: 1 runs everything here, without a pool.
        ahead: items under way per worker.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    # "spawn": a forked child would inherit locks of the tokenizers' threads in whatever state they are.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= workers * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError("a worker process ended (out of memory?); use fewer --workers") from error
        finally:
            for future in waiting:
                future.cancel()
