"""Which process is gone, when TensorFlow's collectives are aborted.

A process that dies closes its connections, which the others' collectives notice at once; a machine that dies stops its
heartbeats, which takes TensorFlow some ten seconds more. TensorFlow then aborts the collectives of all processes, with
pages of text; here is the one line that tells of it.
"""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import List, Optional

from execution.software.cluster.membership import Membership
from keras_extensions.backend import tf

SPEAKS_OF_OTHERS = ("ollective", "oordination", "task:", "GRPC", "RecvBuf", "heartbeat")
REACHABLE_WITHIN = 5.0  # seconds
# Those that find out later should find this process alive, or they would take it for the one that died first.
GRACE = 4.0

_TASK = re.compile(r"/task:(\d+)")


def lost_replicas(membership: Membership, error: tf.errors.OpError) -> Optional[str]:
    """Which replicas are gone, in words; None where the error is not about that.

    Args:
        membership: who is who.
        error: that ended a computation of this process.
    """
    text = str(error)
    if not any(word in text for word in SPEAKS_OF_OTHERS):
        return None
    gone = unreachable(membership)
    named = [int(number) for number in _TASK.findall(text) if int(number) != membership.index]
    first = [number for number in named if number in gone][:1]
    time.sleep(GRACE)
    lost = first or gone or [number for number in named if number < membership.count][:1]
    if not lost:
        return f"the connection with the other replicas was lost ({' '.join(text.split())[:300]})"
    told = " and ".join(f"replica {number} ({membership.addresses[number]})" for number in lost)
    return f"{told} {'has' if len(lost) == 1 else 'have'} ended, or cannot be reached"


def unreachable(membership: Membership) -> List[int]:
    """Numbers of the processes on whose address nobody listens."""
    others = [number for number in range(membership.count) if number != membership.index]
    with ThreadPoolExecutor(max_workers=min(len(others), 32) or 1) as threads:
        heard = list(threads.map(lambda number: listens(membership.addresses[number]), others))
    return [number for number, there in zip(others, heard) if not there]


def listens(address: str) -> bool:
    """Whether a process takes connections at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHABLE_WITHIN):
            return True
    except OSError:
        return False
