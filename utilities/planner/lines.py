"""The estimates of ``--plan``, as text."""

from __future__ import annotations

import datetime
import json
from typing import Iterator, List, Optional, Tuple

from model.architecture import Architecture, model_flops_per_sample
from utilities.config.figures import (
    architecture_of,
    blocks_of,
    manifest_records,
    masked_positions,
    number_of_labels,
    runs_on_ipus,
    training_steps,
)
from utilities.config.loading import LoadedConfig
from utilities.config.plan import titled
from utilities.config.schema import TrainingConfig
from utilities.environment import memory_bytes
from utilities.planner.estimates import (
    IN_PROCESSOR_MEMORY,
    MEGABYTE,
    STREAMING_MEMORY,
    IpuMemory,
    Layout,
    balance,
    bubbles,
    communication,
    host_memory,
    ipu_memory,
    is_feasible,
    layout_of,
    stage_flops,
    streaming_memory,
)
from utilities.planner.suggest import fragment, suggest

Rows = List[Tuple[str, ...]]


def planner_lines(
    loaded: LoadedConfig,
    throughput: Optional[float] = None,
    calibrated: bool = False,
    ipus: Optional[int] = None,
    limit_megabytes: Optional[float] = None,
) -> Iterator[str]:
    """Yield memory, balance and duration of a run, line by line.

    Args:
        loaded: the config.
        throughput: samples per second, from which the duration follows.
        calibrated: measure this machine where no throughput is given.
        ipus: number of IPUs to suggest a partition for.
        limit_megabytes: memory of one IPU for the suggestion; None: all of it.
    """
    config, task = loaded.config, loaded.task
    architecture, blocks = architecture_of(config), blocks_of(config, task)
    if architecture is None or blocks is None:
        return
    layout = layout_of(config, blocks)
    yield from host_memory_lines(config, task, architecture, blocks)
    yield from memory_table(config, task, architecture, layout)
    yield from titled("Pipeline", (), pipeline_rows(config, task, architecture, layout), "")
    if throughput is not None or calibrated:
        yield from titled("Duration", (), duration_rows(config, task, architecture, blocks, throughput), "")
    if ipus is not None:
        limit = IN_PROCESSOR_MEMORY if limit_megabytes is None else limit_megabytes * MEGABYTE
        yield from suggestion_lines(config, task, architecture, ipus, limit)


def host_memory_lines(
    config: TrainingConfig, task: str, architecture: Architecture, blocks: List[str]
) -> Iterator[str]:
    """Yield a warning where the memory of this machine cannot hold a run on its CPU."""
    needed, there = host_memory(config, task, architecture, blocks), memory_bytes()
    if runs_on_ipus(config) or config.execution.device == "gpu" or there is None or needed <= there:
        return
    yield ""
    yield (
        f"warning: on a CPU this run needs at least {needed / 2**30:,.1f} GiB of memory, and this machine has "
        f"{there / 2**30:,.1f} GiB; lower --global-batch.micro-batch-size, --max-seq-length or the sizes of the model, "
        "or give --enable-recomputation"
    )


def memory_table(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> Iterator[str]:
    """Yield what each IPU would hold, with the config's setting of recomputation and with the opposite."""
    used = ipu_memory(config, task, architecture, layout)
    other = config.model_copy(update={"enable_recomputation": not config.enable_recomputation})
    otherwise = ipu_memory(other, task, architecture, layout)
    header = ("IPU", *IpuMemory._fields, "together", "fits", "activations " + _recomputation(other))
    rows: Rows = [
        (str(number), *map(_mega, ipu), _mega(ipu.total), "yes" if ipu.fits else "NO", _mega(alternative.activations))
        for number, (ipu, alternative) in enumerate(zip(used, otherwise))
    ]
    title = f"Memory by IPU, estimated, in MB of {_mega(IN_PROCESSOR_MEMORY)} ({_recomputation(config)} recomputation)"
    yield from titled(title, header, rows, ">" * 8)
    streaming = streaming_memory(config, architecture, layout)
    where = f"{_mega(streaming)} MB of {_mega(STREAMING_MEMORY)} on the IPU with most"
    yield f"Streaming memory for optimizer state: {where if streaming else 'not used'}."
    verdict = "feasible" if is_feasible(config, task, architecture, layout) else "INFEASIBLE"
    yield f"On IPUs this run is {verdict}, as estimated. On a CPU or GPU these limits do not apply."


def _recomputation(config: TrainingConfig) -> str:
    return "with" if config.enable_recomputation else "without"


def _mega(size: float) -> str:
    return f"{size / MEGABYTE:,.0f}"


def pipeline_rows(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> Iterator[Tuple]:
    """Yield balance, waiting times and bytes moved."""
    flops = stage_flops(config, task, architecture, layout)
    yield "balance of the IPUs", f"{balance(flops, layout):.0%} (mean load over the largest)"
    if len(set(layout.devices)) > 1:
        for name, share in bubbles(config, flops, layout).items():
            chosen = " (chosen)" if name == config.ipu_config.pipeline_schedule else ""
            yield f"IPUs wait, {name}", f"{share:.0%} of the time{chosen}"
    moved = communication(config, architecture, layout)
    yield (
        "moved per update",
        ", ".join(f"{name.replace('_', ' ')} {_mega(size)} MB" for name, size in moved._asdict().items())
        + " for each replica",
    )


def duration_rows(
    config: TrainingConfig, task: str, architecture: Architecture, blocks: List[str], throughput: Optional[float]
) -> Iterator[Tuple]:
    """Yield the duration of the whole run."""
    if throughput is None:
        from utilities.planner.calibration import calibrate  # numpy, which a plan does not need otherwise

        measured = calibrate()
        flops = model_flops_per_sample(
            architecture,
            task,
            config.max_seq_length,
            masked_positions(config, task),
            blocks=blocks,
            num_labels=number_of_labels(config),
        )
        throughput = measured.samples_per_second(flops)
        yield "this machine", f"{measured.flops / 1e9:,.0f} GFLOP/s in matrix products"
    steps = training_steps(config, manifest_records(config))
    yield "throughput", f"{throughput:,.4g} samples/s"
    if steps is None:
        yield "duration", "unknown until the data set is read"
        return
    seconds = steps * config.samples_per_update / throughput
    yield (
        "duration",
        f"{seconds / 3600:,.1f} hours ({datetime.timedelta(seconds=round(seconds))}) for {steps:,} updates",
    )


def suggestion_lines(
    config: TrainingConfig, task: str, architecture: Architecture, ipus: int, limit: float
) -> Iterator[str]:
    """Yield a partition, and the part of a config that asks for it."""
    found = suggest(config, task, architecture, ipus, limit)
    flops = stage_flops(config, task, architecture, found.layout)
    yield ""
    yield f"Suggested for {ipus} IPUs"
    yield f"  balance {balance(flops, found.layout):.0%}; the fullest IPU holds {_mega(found.memory)} MB"
    yield from ("  " + line for line in json.dumps(fragment(found), indent=2).splitlines())
