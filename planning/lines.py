"""Formats the estimates of ``--plan`` as text."""

from __future__ import annotations

import json
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
    is_feasible,
    planned,
    streaming_memory,
)
from planning.overview import titled
from planning.suggest import fragment, suggest
from settings.derived import manifest_records, packing_factor, runs_on_ipus, training_steps
from settings.loading import LoadedConfig
from settings.schema import TrainingConfig
from utilities.environment import memory_bytes
from utilities.errors import LESS_MEMORY

Rows = List[Tuple[str, ...]]


def planner_lines(
    loaded: LoadedConfig,
    throughput: Optional[float] = None,
    ipus: Optional[int] = None,
    limit_megabytes: Optional[float] = None,
) -> Iterator[str]:
    """Yield memory, balance and duration of a run, line by line.

    Args:
        loaded: the config.
        throughput: samples per second, from which the duration follows.
        ipus: number of IPUs to suggest a partition for.
        limit_megabytes: memory of one IPU for the suggestion; None: all of it.
    """
    run = planned(loaded.config, loaded.task)
    if run is None:
        return
    yield from host_memory_lines(run)
    yield from memory_table(run)
    yield from titled("Pipeline", (), pipeline_rows(run), "")
    if throughput is not None:
        yield from titled("Duration", (), duration_rows(run, throughput), "")
    if ipus is not None:
        limit = IN_PROCESSOR_MEMORY if limit_megabytes is None else limit_megabytes * MEGABYTE
        yield from suggestion_lines(run, ipus, limit)


def host_memory_lines(run: Planned) -> Iterator[str]:
    """Yield a warning if the memory of this machine is too small for the run on its CPU."""
    needed, available = host_memory(run), memory_bytes()
    if runs_on_ipus(run.config) or run.config.execution.device == "gpu" or available is None or needed <= available:
        return
    yield ""
    yield (
        f"warning: on a CPU this run needs at least {needed / 2**30:,.1f} GiB of memory, and this machine has "
        f"{available / 2**30:,.1f} GiB; {LESS_MEMORY}"
    )


def memory_table(run: Planned) -> Iterator[str]:
    """Yield each IPU's memory with the config's setting of recomputation and with the opposite one."""
    config, used = run.config, ipu_memory(run)
    other = config.model_copy(update={"enable_recomputation": not config.enable_recomputation})
    otherwise = ipu_memory(run._replace(config=other))
    header = ("IPU", *IpuMemory._fields, "together", "fits", "activations " + _recomputation(other))
    rows: Rows = [
        (str(number), *map(_mega, ipu), _mega(ipu.total), "yes" if ipu.fits else "NO", _mega(alternative.activations))
        for number, (ipu, alternative) in enumerate(zip(used, otherwise))
    ]
    title = f"Memory by IPU, estimated, in MB of {_mega(IN_PROCESSOR_MEMORY)} ({_recomputation(config)} recomputation)"
    yield from titled(title, header, rows, ">" * 8)
    streaming = streaming_memory(run)
    where = f"{_mega(streaming)} MB of {_mega(STREAMING_MEMORY)} on the IPU with most"
    yield f"Streaming memory for optimizer state: {where if streaming else 'not used'}."
    verdict = "feasible" if is_feasible(run) else "INFEASIBLE"
    yield f"On IPUs this run is {verdict}, as estimated. On a CPU or GPU these limits do not apply."


def _recomputation(config: TrainingConfig) -> str:
    return "with" if config.enable_recomputation else "without"


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
    steps = training_steps(config, manifest_records(config))
    yield "throughput", f"{throughput:,.4g} samples/s"
    if steps is None:
        yield "duration", "unknown until the data set is read"
        return
    hours = steps * config.samples_per_update * samples_per_row / throughput / 3600
    yield "duration", f"{hours:,.1f} hours for {steps:,} updates"


def suggestion_lines(run: Planned, ipus: int, limit: float) -> Iterator[str]:
    """Yield a partition, and the config fragment that selects it."""
    suggested = suggest(run, ipus, limit)
    fullest = max(ipu.total for ipu in ipu_memory(suggested))
    yield ""
    yield f"Suggested for {ipus} IPUs"
    yield f"  balance {balance(suggested):.0%}; the fullest IPU uses {_mega(fullest)} MB"
    yield from ("  " + line for line in json.dumps(fragment(suggested), indent=2).splitlines())
