"""Waits until all processes of a run are there."""

from __future__ import annotations

import logging
import time

from execution.software.cluster.lost import unreachable
from execution.software.cluster.membership import Membership

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_LOOKS = 60.0, 0.5


def wait_for_all(membership: Membership, every: float = SECONDS_BETWEEN_LINES) -> None:
    """Return when every other process takes connections; a line now and then names those that do not yet.

    Args:
        membership: who is who.
        every: seconds between lines.
    """
    said = time.monotonic()
    while True:
        absent = [f"{number} ({membership.addresses[number]})" for number in unreachable(membership)]
        if not absent:
            return
        if time.monotonic() - said >= every:
            said = time.monotonic()
            logger.warning("replica %d waits for %s", membership.index, ", ".join(absent))
        time.sleep(min(SECONDS_BETWEEN_LOOKS, every))
