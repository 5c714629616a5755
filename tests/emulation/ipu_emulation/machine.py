"""The emulated IPU system of one process: its configuration, its queues, and what it was asked to do."""

from __future__ import annotations

import os
from typing import Any, Optional

from tensorflow.compiler.plugin.poplar.driver import config_pb2

from ipu_emulation.counts import Counts
from ipu_emulation.exchange import Exchange
from ipu_emulation.feeds import Infeeds, Outfeeds

NO_DEVICE = (config_pb2.IpuDeviceConnectionType.PRE_COMPILE, config_pb2.IpuDeviceConnectionType.NEVER)


class Machine:
    """
    Args:
        attached: IPUs that there are for all instances; None: as many as a configuration asks for.
        trace_only: make the programs, and run none.

    Attributes:
        replicas: of this process, as Keras' IPU extension worked them out for the last program.
    """

    def __init__(self, attached: Optional[int], trace_only: bool):
        self._attached = attached
        self._trace_only = trace_only
        self._options: Any = None
        self.replicas = 1
        self.infeeds, self.outfeeds = Infeeds(), Outfeeds()
        self.counts, self.exchange = Counts(), Exchange()

    @classmethod
    def of_environment(cls) -> Machine:
        """As ``run`` was told."""
        attached = os.environ.get("IPU_EMULATION_IPUS")
        return cls(int(attached) if attached else None, "IPU_EMULATION_TRACE_ONLY" in os.environ)

    def configure(self, serialized: bytes) -> None:
        """Take an ``IpuOptions`` message.

        Raises:
            RuntimeError: it asks for more IPUs than there are.
        """
        self._options = config_pb2.IpuOptions()
        self._options.ParseFromString(serialized)
        if self._attached is not None and self.ipus > self._attached and self.has_device:
            raise RuntimeError(f"the configuration asks for {self.ipus} IPUs, and {self._attached} are attached")
        self.counts.set("ipus", self.ipus)

    def configuration(self) -> list:
        """The message as it was given, in a list that is empty without one."""
        return [] if self._options is None else [self._options.SerializeToString()]

    @property
    def ipus(self) -> int:
        """IPUs of all instances together; one each where the configuration does not say."""
        if self._options is None:
            return 1
        own = sum(device.auto_count for device in self._options.device_config) or 1
        return own * max(1, self._options.multi_replica_process_count)

    @property
    def has_device(self) -> bool:
        return self._options is None or self._options.device_connection_type not in NO_DEVICE

    @property
    def executes(self) -> bool:
        """Whether programs run, or are only made."""
        return self.has_device and not self._trace_only
