"""Draws the plan: the pipeline's schedule over time, and each IPU's weights, gradients and moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

from execution.software.pipeline.schedule import FORWARD, make_schedule, simulate
from planning.estimates import (
    IN_PROCESSOR_MEMORY,
    MEGABYTE,
    IpuMemory,
    Planned,
    ipu_memory,
    job_costs,
    planned,
)
from settings.loading import LoadedConfig
from settings.sizes import weights_key
from utilities.errors import UserError

MICRO_BATCHES = 8  # drawn


def draw(loaded: LoadedConfig, path: Path) -> None:
    """Write the picture as SVG, PNG or PDF, as its name ends; PNG if it has no ending.

    Raises:
        UserError: the model must be loaded to know its sizes, or the file cannot be written.
    """
    run = planned(loaded.config, loaded.task)
    if run is None:
        source = weights_key(loaded.config)
        assert source is not None, "the sizes are unknown only if weights determine them"
        raise UserError(f"--picture: the sizes of {getattr(loaded.config, source)} are unknown; name a local folder")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(11, 6))
    _draw_schedule(upper, run)
    _draw_memory(lower, ipu_memory(run))
    figure.tight_layout()
    try:
        figure.savefig(path, format=path.suffix[1:] or "png")  # without a format, matplotlib may change the name
    except (OSError, ValueError) as error:
        raise UserError(f"--picture {path}: {error}; name a file that ends in .svg, .png or .pdf") from error
    finally:
        pyplot.close(figure)


def _draw_schedule(axes: Any, run: Planned) -> None:
    name = run.config.ipu_config.pipeline_schedule
    schedule = make_schedule(name, len(run.stages))
    for (kind, stage), micro_batch, start, end in simulate(schedule, job_costs(run), MICRO_BATCHES, list(run.devices)):
        ipu = run.devices[stage]
        color = "tab:blue" if kind == FORWARD else "tab:orange"
        axes.barh(ipu, end - start, left=start, color=color, edgecolor="white", linewidth=0.5)
        axes.text((start + end) / 2, ipu, str(micro_batch), ha="center", va="center", fontsize=6)
    what = f"{name} schedule, {MICRO_BATCHES} micro batches"
    axes.set_title(f"{run.config.name}: {what} (blue forward, orange backward)", fontsize=9, loc="left")
    _label_ipus(axes, max(run.devices) + 1)
    axes.set_xlabel("operations")


def _draw_memory(axes: Any, memory: List[IpuMemory]) -> None:
    left = [0.0] * len(memory)
    for field in IpuMemory._fields:
        sizes = [getattr(ipu, field) / MEGABYTE for ipu in memory]
        axes.barh(range(len(memory)), sizes, left=left, label=field)
        left = [a + b for a, b in zip(left, sizes)]
    axes.axvline(IN_PROCESSOR_MEMORY / MEGABYTE, color="black", linestyle=":", linewidth=1)
    _label_ipus(axes, len(memory))
    axes.set_xlabel("MB, without activations, temporaries and code; dotted: In-Processor-Memory")
    axes.legend(fontsize=7, ncol=6, loc="upper center", bbox_to_anchor=(0.5, -0.2))


def _label_ipus(axes: Any, count: int) -> None:
    axes.set_yticks(range(count), [f"IPU {number}" for number in range(count)])
    axes.invert_yaxis()
