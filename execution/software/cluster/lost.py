"""Which process is gone, when TensorFlow's collectives are aborted.

A process that dies closes its connections, which the others' collectives notice at once. TensorFlow then aborts the
collectives of all processes, with pages of text; here is the one line that tells of it. What closes no connection is
noticed by ``lookout.py``.
"""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Optional, Sequence

from execution.software.cluster.membership import Membership

SPEAKS_OF_OTHERS = ("ollective", "oordination", "task:", "GRPC", "RecvBuf", "heartbeat")
REACHABLE_WITHIN = 5.0  # seconds
# Those that find out later should find this process alive, or they would take it for the one that died first.
GRACE = 4.0
LISTENS, REFUSES, SILENT = "listens", "refuses", "silent"  # answers of a system to a knock at a port

_TASK = re.compile(r"/task:(\d+)")


def lost_replicas(membership: Membership, error: Exception) -> Optional[str]:
    """Which replicas are gone, in words; None where the error is not about that.

    Args:
        membership: who is who.
        error: TensorFlow's, that ended a computation of this process.
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
    return told(membership, lost)


def told(membership: Membership, gone: Sequence[int]) -> str:
    """Of processes that are gone, in words."""
    names = " and ".join(f"replica {number} ({membership.addresses[number]})" for number in gone)
    return f"{names} {'has' if len(gone) == 1 else 'have'} ended, or cannot be reached"


def unreachable(membership: Membership) -> List[int]:
    """Numbers of the processes on whose address nobody listens."""
    others = [number for number in range(membership.count) if number != membership.index]
    return [number for number, answer in knocks(membership, others).items() if answer != LISTENS]


def knocks(membership: Membership, numbers: Sequence[int]) -> Dict[int, str]:
    """What is answered at the addresses of these processes, by number."""
    with ThreadPoolExecutor(max_workers=min(len(numbers), 32) or 1) as threads:
        return dict(zip(numbers, threads.map(lambda number: knock(membership.addresses[number]), numbers)))


def knock(address: str) -> str:
    """Whether a process takes connections at ``host:port``: ``LISTENS``, ``REFUSES``, or ``SILENT`` if none can tell.

    The operating system answers, also for a process that gets no processor time.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHABLE_WITHIN):
            return LISTENS
    except ConnectionRefusedError:
        return REFUSES
    except OSError:
        return SILENT
