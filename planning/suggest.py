"""Finds a partition of the layers over IPUs."""

from __future__ import annotations

from typing import Dict, Iterator, List

from model.architecture import EMB, HID
from model.tasks import expected_blocks
from planning.estimates import IN_PROCESSOR_MEMORY, Planned, flops_by_ipu, ipu_memory
from utilities.errors import UserError


def suggest(run: Planned, ipus: int, limit: float = IN_PROCESSOR_MEMORY) -> Planned:
    """Return the run partitioned over ``ipus`` with the least work on the busiest.

    The first and last stage share IPU 0, because the embedding is tied to the heads. Encoder layers are split in order.

    Args:
        run: the run.
        ipus: number of IPUs.
        limit: bytes of weights, gradients and moments that each may have.

    Raises:
        UserError: no partition fits.
    """
    layers = run.architecture.num_hidden_layers
    if ipus > layers + 1:
        raise UserError(
            f"--suggest {ipus}: {layers} encoder layers take at most {layers + 1} IPUs, of which the first may have the"
            " embedding and the heads alone; give fewer IPUs"
        )
    fitting = [split for split in _even_splits(run, layers, ipus) if _fullest(split) <= limit]
    if not fitting:
        raise UserError(
            f"--suggest {ipus}: no partition of {layers} encoder layers over {ipus} IPUs keeps weights, gradients and"
            f" moments of each within {limit / 1e6:,.0f} MB; give more IPUs, or set optimizer_state_offchip"
        )
    return min(fitting, key=lambda split: (max(flops_by_ipu(split)), _fullest(split)))


def _even_splits(run: Planned, layers: int, ipus: int) -> Iterator[Planned]:
    """Yield for each number of layers on IPU 0 the partition that divides the others evenly between the other IPUs."""
    if ipus == 1:
        yield partitioned(run, [layers])
        return
    for first in range(layers - ipus + 2):
        each, larger = divmod(layers - first, ipus - 1)
        yield partitioned(run, [first] + [each + (number < larger) for number in range(ipus - 1)])


def _fullest(run: Planned) -> float:
    return max(ipu.total for ipu in ipu_memory(run))


def partitioned(run: Planned, counts: List[int]) -> Planned:
    """Return the run with these counts of encoder layers by IPU; embedding first and heads last, both on IPU 0.

    It has no memory proportions, because the number of IPUs may have changed.
    """
    ipu = run.config.ipu_config.model_copy(update={"matmul_available_memory_proportion_per_pipeline_stage": None})
    config = run.config.model_copy(update={"ipu_config": ipu})
    first, tail = [EMB] + [HID] * counts[0], expected_blocks(run.task, 1, config.use_next_sentence)[2:]
    if len(counts) == 1:
        return run._replace(config=config, stages=[[*first, *tail]], devices=[0])
    middle = [[HID] * count for count in counts[1:]]
    return run._replace(config=config, stages=[first, *middle, tail], devices=[*range(len(counts)), 0])


def fragment(run: Planned) -> Dict[str, object]:
    """Return the config fragment that selects the partition of a run."""
    stages = [" ".join(stage) for stage in run.stages]
    return {"ipu_config": {"pipeline_stages": stages, "pipeline_device_mapping": list(run.devices)}}
