"""The plan as a picture: the pipeline's schedule over time, and what fills each IPU's memory."""

from __future__ import annotations

from pathlib import Path

from execution.software.pipeline.schedule import FORWARD, make_schedule
from execution.software.pipeline.timeline import simulate
from utilities.config.figures import architecture_of, blocks_of
from utilities.config.loading import LoadedConfig
from utilities.errors import UserError
from utilities.planner.balance import job_costs, stage_flops
from utilities.planner.memory import IN_PROCESSOR_MEMORY, MEGABYTE, IpuMemory, ipu_memory, layout_of

MICRO_BATCHES = 8  # drawn


def draw(loaded: LoadedConfig, path: Path) -> None:
    """Write an SVG, PNG or PDF.

    Raises:
        UserError: the model is not known before it is loaded, or the file cannot be written.
    """
    config, task = loaded.config, loaded.task
    architecture, blocks = architecture_of(config), blocks_of(config, task)
    if architecture is None or blocks is None:
        raise UserError(f"--picture: the sizes of {config.bert_model_name} are unknown; name a local folder")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    layout = layout_of(config, blocks)
    flops = stage_flops(config, task, architecture, layout)
    schedule = make_schedule(config.ipu_config.pipeline_schedule, len(layout.stages))
    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(11, 6))
    for (kind, stage), micro_batch, start, end in simulate(
        schedule, job_costs(config, flops), MICRO_BATCHES, list(layout.devices)
    ):
        color = "tab:blue" if kind == FORWARD else "tab:orange"
        upper.barh(layout.devices[stage], end - start, left=start, color=color, edgecolor="white", linewidth=0.5)
        upper.text((start + end) / 2, layout.devices[stage], str(micro_batch), ha="center", va="center", fontsize=6)
    upper.set_title(f"{config.name}: {config.ipu_config.pipeline_schedule} schedule, {MICRO_BATCHES} micro batches"
                    " (blue forward, orange backward)", fontsize=9, loc="left")  # fmt: skip
    upper.set_yticks(range(max(layout.devices) + 1), [f"IPU {n}" for n in range(max(layout.devices) + 1)])
    upper.invert_yaxis()
    upper.set_xlabel("operations")
    memory = ipu_memory(config, task, architecture, layout)
    left = [0.0] * len(memory)
    for field in IpuMemory._fields:
        sizes = [getattr(ipu, field) / MEGABYTE for ipu in memory]
        lower.barh(range(len(memory)), sizes, left=left, label=field)
        left = [a + b for a, b in zip(left, sizes)]
    lower.axvline(IN_PROCESSOR_MEMORY / MEGABYTE, color="black", linestyle=":", linewidth=1)
    lower.set_yticks(range(len(memory)), [f"IPU {n}" for n in range(len(memory))])
    lower.invert_yaxis()
    lower.set_xlabel("MB, estimated; dotted: In-Processor-Memory")
    lower.legend(fontsize=7, ncol=6, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--picture {path}: {error}; name a file that ends in .svg, .png or .pdf") from error
    finally:
        pyplot.close(figure)
