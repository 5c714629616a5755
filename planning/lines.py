"""Formats the memory of the host and the duration of ``--plan`` as text."""

from __future__ import annotations

from typing import Iterator, Tuple

from planning.estimates import Planned, host_memory, planned
from settings.derived import packing_factor, training_steps
from settings.loading import LoadedConfig
from settings.metadata import manifest_count
from settings.published import runs_on_ipus
from utilities.environment import memory_bytes
from utilities.errors import LESS_MEMORY
from utilities.tables import titled


def duration_lines(loaded: LoadedConfig, throughput: float) -> Iterator[str]:
    """Yield the duration of a run whose sizes are known, line by line."""
    run = planned(loaded.config, loaded.task)
    if run is not None:
        yield from titled("Duration", (), duration_rows(run, throughput))


def host_memory_lines(loaded: LoadedConfig) -> Iterator[str]:
    """Yield a warning if the memory of this machine is too small for the run on its CPU."""
    run = planned(loaded.config, loaded.task)
    if run is None:
        return
    needed, available = host_memory(run), memory_bytes()
    if runs_on_ipus(run.config) or run.config.execution.device == "gpu" or available is None or needed <= available:
        return
    yield (
        f"warning: on a CPU this run needs at least {needed / 2**30:,.1f} GiB of memory, and this machine has "
        f"{available / 2**30:,.1f} GiB; {LESS_MEMORY}"
    )


def duration_rows(run: Planned, throughput: float) -> Iterator[Tuple]:
    """Yield the duration of the whole run."""
    config = run.config
    samples_per_row = packing_factor(config) or 1  # if it is unknown until the data is read, no duration is shown
    steps = training_steps(config, manifest_count(config.data_folder, "totals", "records"))
    yield "throughput", f"{throughput:,.4g} samples/s"
    if steps is None:
        yield "duration", "unknown until the data set is read"
        return
    hours = steps * config.samples_per_update * samples_per_row / throughput / 3600
    yield "duration", f"{hours:,.1f} hours for {steps:,} updates"
