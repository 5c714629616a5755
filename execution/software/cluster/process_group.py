"""Connects the processes of stock TensorFlow that train together."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import stat
import threading
from typing import ContextManager, List, Optional

from execution.processes import Processes
from execution.software.cluster.collectives import Collectives
from execution.software.cluster.heartbeat import Heartbeat, lost_processes, wait_for_servers
from execution.software.cluster.introduction import introduce
from execution.software.cluster.membership import Membership, host_and_port
from keras_extensions.backend import tf
from utilities.errors import UserError

logger = logging.getLogger(__name__)

LOOPBACK = b"lo\0"  # Linux' name of the network device


class ClusterProcesses(Processes):
    """The processes that the environment describes."""

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership.count, membership.index)
        self._membership = membership
        self._heartbeat: Optional[Heartbeat] = None

    def join(self) -> None:
        """Wait for all other processes and connect with them.

        TensorFlow must not have computed anything before this call, which also changes the names of its devices.
        """
        if self.is_single or self.collectives is not None:
            return
        introduce(self._membership, self.settings)
        start_server(self._membership)
        wait_for_servers(self._membership)
        self._heartbeat = Heartbeat(self._membership)
        self.collectives = Collectives(self.count, self.index)
        self.barrier()

    @property
    def is_waiting(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.is_waiting

    def monitored(self) -> ContextManager[None]:
        if self._heartbeat is None:
            return contextlib.nullcontext()
        self._heartbeat.run_name = self.run_name
        return self._heartbeat.monitored()

    def lost(self, error: Exception) -> Optional[str]:
        return lost_processes(self._membership, error)


def start_server(membership: Membership) -> None:
    """Start TensorFlow's server in this process, to which the other processes' collectives connect.

    This calls the only public function that does nothing else. ``tf.distribute.MultiWorkerMirroredStrategy`` would also
    start the coordination service; see ``heartbeat.py``. Variables are plain ones on the devices of this process, and
    stay equal because every process applies the same update.
    """
    own = membership.addresses[membership.index]
    addresses = {
        "DTENSOR_JOBS": ",".join(membership.addresses),
        "DTENSOR_CLIENT_ID": str(membership.index),
        "DTENSOR_JOB_NAME": "worker",
    }
    os.environ.update(addresses)  # the function reads them from there
    try:
        tf.experimental.dtensor.initialize_accelerator_system("CPU", enable_coordination_service=False)
    except tf.errors.UnknownError as error:
        raise UserError(
            f"process {membership.index} ({own}): TensorFlow cannot listen on the port ({error.message}); end the"
            " program that has it, or give the process another port"
        ) from error
    finally:
        for name in addresses:
            del os.environ[name]
    if membership.is_on_loopback:
        confine_to_loopback(host_and_port(own)[1])
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has replaced Python's handler of SIGTERM by its own, which ignores the signal.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def confine_to_loopback(port: int) -> None:
    """Make the system refuse connections from other machines to this process' server.

    TensorFlow's server has no password and always listens on every address (``0.0.0.0`` is fixed in its source code),
    so its sockets are bound to the loopback device afterwards.
    """
    try:
        for listener in listening_sockets():
            with listener:
                if listener.getsockname()[1] == port:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LOOPBACK)
    except (AttributeError, OSError) as error:  # AttributeError: not Linux; OSError: not allowed before Linux 5.7
        logger.warning("port %d of this process can be reached from other machines (%s)", port, error)


def listening_sockets() -> List[socket.socket]:
    """Return duplicates of all TCP sockets on which any library in this process accepts connections."""
    listeners = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the socket was closed meanwhile
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                candidate = socket.socket(fileno=os.dup(number))
                is_tcp = candidate.family in (socket.AF_INET, socket.AF_INET6)
                if is_tcp and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listeners.append(candidate)
                else:
                    candidate.close()
    return listeners
