"""What a run on stock TensorFlow says of settings for IPUs."""

from __future__ import annotations

import logging

from execution.interface import Platform
from execution.processes import Processes
from graphcore.effects import Machine, warning_line
from settings.loading import LoadedConfig

logger = logging.getLogger(__name__)


def warn_of_ignored_settings(loaded: LoadedConfig, platform: Platform, processes: Processes) -> None:
    """Log one warning of the chief that names the flags that have an effect only on IPUs."""
    if platform.name != "software" or not processes.is_chief:
        return
    machine = Machine(platform.precision, platform.pipelined, platform.on_gpu, processes.count)
    line = warning_line(loaded.config, loaded.origins, machine)
    if line is not None:
        logger.warning(line)
