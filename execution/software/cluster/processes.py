"""Processes of stock TensorFlow that train together: how one of them joins the others."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, ContextManager, Iterator, Optional

from execution.processes import Processes
from execution.software.cluster.collectives import Collectives
from execution.software.cluster.heartbeat import Heartbeat, lost_replicas, wait_for_all
from execution.software.cluster.membership import Membership
from keras_extensions.backend import tf


class ClusterProcesses(Processes):
    """The processes that the environment names.

    Args:
        membership: the processes of the run.
        collectives: see :class:`execution.processes.Processes`; :meth:`join` makes them.
    """

    def __init__(self, membership: Membership, collectives: Any = None) -> None:
        super().__init__(membership.count, membership.index, collectives)
        self._membership = membership
        self._heartbeat: Optional[Heartbeat] = None

    def join(self) -> None:
        """Wait for all other processes and connect with them.

        TensorFlow must not have computed anything before, and names its devices differently afterwards.
        """
        if self.is_single or self.collectives is not None:
            return
        start_server(self._membership)
        wait_for_all(self._membership)
        self._heartbeat = Heartbeat(self._membership)
        self.collectives = Collectives(self.count, self.index)
        self.barrier()

    def monitored(self) -> ContextManager[None]:
        if self._heartbeat is None:
            return contextlib.nullcontext()
        self._heartbeat.run_name = self.run_name
        return self._heartbeat.monitored()

    def lost(self, error: Exception) -> Optional[str]:
        return lost_replicas(self._membership, error)


def start_server(membership: Membership) -> None:
    """Start TensorFlow's server in this process, through which the collectives of the others reach it.

    Uses the one public function that does only this. ``tf.distribute.MultiWorkerMirroredStrategy`` would also start the
    coordination service; see ``heartbeat.py``. Variables are plain ones on the devices of this process, and stay equal
    because every process applies the same update.
    """
    with dtensor_environment(membership):
        tf.experimental.dtensor.initialize_accelerator_system("CPU", enable_coordination_service=False)
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has replaced Python's handler of SIGTERM by its own, which ignores the signal.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextlib.contextmanager
def dtensor_environment(membership: Membership) -> Iterator[None]:
    """Within the block, set the environment variables from which that function takes the addresses."""
    values = {
        "DTENSOR_JOBS": ",".join(membership.addresses),
        "DTENSOR_CLIENT_ID": str(membership.index),
        "DTENSOR_JOB_NAME": "worker",
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
