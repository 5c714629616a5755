"""Finds a partition of the layers over IPUs by dynamic programming."""

from __future__ import annotations

import functools
from typing import Dict, List, Tuple

from model.architecture import EMB, HID
from model.tasks import expected_blocks
from planning.estimates import IN_PROCESSOR_MEMORY, Planned, flops_by_ipu, ipu_memory
from utilities.errors import UserError


def suggest(run: Planned, ipus: int, limit: float = IN_PROCESSOR_MEMORY) -> Planned:
    """Return the run partitioned over ``ipus`` with the least work on the busiest and at most ``limit`` bytes on each.

    The first and last stage share IPU 0, because the embedding is tied to the heads. Encoder layers are split in order.

    Raises:
        UserError: no partition fits.
    """
    layers = run.architecture.num_hidden_layers
    if ipus > layers + 1:
        raise UserError(
            f"--suggest {ipus}: {layers} encoder layers take at most {layers + 1} IPUs, of which the first may have the"
            " embedding and the heads alone; give fewer IPUs"
        )

    @functools.lru_cache(maxsize=None)
    def cost(ipu: int, count: int) -> Tuple[int, float]:
        """Return operations and bytes of an IPU with ``count`` layers; the other IPUs' layers change neither."""
        split = partitioned(run, [count if other == ipu else 1 for other in range(ipus)])
        return flops_by_ipu(split)[ipu], ipu_memory(split)[ipu].total

    # best[n], after i IPUs: the partition of the first n layers over those IPUs with the smallest bottleneck
    best: Dict[int, Tuple[int, float, List[int]]] = {}
    for count in range(layers + 1):
        flops, memory = cost(0, count)
        if memory <= limit:
            best[count] = flops, memory, [count]
    for ipu in range(1, ipus):
        extended: Dict[int, Tuple[int, float, List[int]]] = {}
        for done, (bottleneck, fullest, counts) in best.items():
            for count in range(1, layers - done + 1):
                flops, memory = cost(ipu, count)
                if memory > limit:
                    break
                candidate = max(bottleneck, flops), max(fullest, memory), [*counts, count]
                if done + count not in extended or candidate < extended[done + count]:
                    extended[done + count] = candidate
        best = extended
    if layers not in best:
        raise UserError(
            f"--suggest {ipus}: no partition of {layers} encoder layers over {ipus} IPUs keeps each within"
            f" {limit / 1e6:,.0f} MB; give more IPUs, lower global_batch.micro_batch_size, or set enable_recomputation"
        )
    return partitioned(run, best[layers][2])


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
