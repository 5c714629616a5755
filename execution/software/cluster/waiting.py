"""Says whom this process is waiting for, while not all have come."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Iterator

from execution.software.cluster.lost import unreachable
from execution.software.cluster.membership import Membership

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 60.0


@contextlib.contextmanager
def waiting_told(membership: Membership, every: float = SECONDS_BETWEEN_LINES) -> Iterator[None]:
    """For the time of a block, a line now and then that names the processes that do not answer yet.

    Args:
        membership: who is who.
        every: seconds between lines.
    """
    done = threading.Event()

    def tell() -> None:
        while not done.wait(every):
            absent = [f"{number} ({membership.addresses[number]})" for number in unreachable(membership)]
            if absent:
                logger.warning("replica %d waits for %s", membership.index, ", ".join(absent))

    thread = threading.Thread(target=tell, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
