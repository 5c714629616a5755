"""Formats the sizes and the duration of ``--plan`` as text."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from planning.estimates import (
    IN_PROCESSOR_MEMORY,
    MEGABYTE,
    SCHEDULES,
    STREAMING_MEMORY,
    IpuMemory,
    Planned,
    balance,
    bubble,
    communication,
    host_memory,
    ipu_memory,
    planned,
    streaming_memory,
)
from planning.overview import titled
from settings.derived import packing_factor, training_steps
from settings.loading import LoadedConfig
from settings.metadata import manifest_count
from settings.published import runs_on_ipus
from utilities.environment import memory_bytes
from utilities.errors import LESS_MEMORY

Rows = List[Tuple[str, ...]]


def planner_lines(
    loaded: LoadedConfig,
    throughput: Optional[float] = None,
    everything: bool = True,
) -> Iterator[str]:
    """Yield memory, balance and duration of a run, line by line.

    Args:
        everything: whether to show the figures of IPUs also if the run is not on IPUs.
    """
    run = planned(loaded.config, loaded.task)
    if run is None:
        return
    if everything or runs_on_ipus(run.config):
        yield from memory_table(run)
        yield from titled("Pipeline", (), pipeline_rows(run))
    if throughput is not None:
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


def memory_table(run: Planned) -> Iterator[str]:
    """Yield each IPU's memory for weights, gradients and moments."""
    used = ipu_memory(run)
    rows: Rows = [(str(number), *map(_mega, ipu), _mega(ipu.total)) for number, ipu in enumerate(used)]
    title = f"Memory by IPU, in MB of {_mega(IN_PROCESSOR_MEMORY)}, without activations, temporaries and code"
    yield from titled(title, ("IPU", *IpuMemory._fields, "together"), rows, ">")
    streaming = streaming_memory(run)
    where = f"{_mega(streaming)} MB of {_mega(STREAMING_MEMORY)} on the IPU with most"
    yield f"Streaming memory for optimizer state: {where if streaming else 'not used'}."
    if max(ipu.total for ipu in used) > IN_PROCESSOR_MEMORY or streaming > STREAMING_MEMORY:
        yield "On IPUs this run does not fit. On a CPU or GPU these limits do not apply."


def _mega(size: float) -> str:
    return f"{size / MEGABYTE:,.0f}"


def pipeline_rows(run: Planned) -> Iterator[Tuple]:
    """Yield balance, waiting times and bytes moved."""
    yield "balance of the IPUs", f"{balance(run):.0%} (mean load over the largest)"
    for name in SCHEDULES if len(set(run.devices)) > 1 else ():
        chosen = " (chosen)" if name == run.config.ipu_config.pipeline_schedule else ""
        yield f"IPUs wait, {name}", f"{bubble(run, name):.0%} of the time{chosen}"
    moved = communication(run)
    yield (
        "moved per update",
        ", ".join(f"{name.replace('_', ' ')} {_mega(size)} MB" for name, size in moved._asdict().items())
        + " for each replica",
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
