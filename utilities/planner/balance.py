"""How a pipeline's work is spread, what it waits for, and what it sends."""

from __future__ import annotations

from typing import Dict, List, NamedTuple

from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, make_schedule
from execution.software.pipeline.timeline import idle_fraction, simulate
from model.architecture import Architecture, block_flops, block_parameters
from utilities.config.figures import masked_positions, number_of_labels
from utilities.config.schema import TrainingConfig
from utilities.planner.memory import HALF, Layout, moments_per_weight

SCHEDULES = ("grouped", "interleaved", "sequential")
LONGEST_SIMULATION = 200  # micro batches; the share of filling and draining in longer updates is scaled


class Communication(NamedTuple):
    """Bytes that one replica moves for one weight update.

    Attributes:
        between_stages: activations forward and their gradients backward.
        between_replicas: the all-reduce of the gradients, as a ring.
        streaming: optimizer state from and to the memory outside the chips.
    """

    between_stages: float
    between_replicas: float
    streaming: float


def stage_flops(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> List[int]:
    """Operations of each stage's forward pass on one sample; embeddings are counted as what copying them costs."""
    masked, labels = masked_positions(config, task), number_of_labels(config)
    return [
        sum(block_flops(architecture, block, config.max_seq_length, masked, labels) for block in blocks)
        for blocks in layout.stages
    ]


def balance(flops: List[int], layout: Layout) -> float:
    """Mean load of the IPUs over the largest, 1 being perfect."""
    by_ipu: Dict[int, int] = {}
    for work, device in zip(flops, layout.devices):
        by_ipu[device] = by_ipu.get(device, 0) + work
    return sum(by_ipu.values()) / (len(by_ipu) * max(by_ipu.values()))


def bubbles(config: TrainingConfig, flops: List[int], layout: Layout) -> Dict[str, float]:
    """Share of the IPUs' time in which they wait, by schedule."""
    return {name: bubble(config, flops, layout, name) for name in SCHEDULES}


def bubble(config: TrainingConfig, flops: List[int], layout: Layout, name: str) -> float:
    """Share of the IPUs' time in which they wait under one schedule."""
    micro_batches = min(config.global_batch.grad_acc_steps_per_replica, LONGEST_SIMULATION)
    intervals = simulate(
        make_schedule(name, len(layout.stages)), job_costs(config, flops), micro_batches, list(layout.devices)
    )
    return idle_fraction(intervals, len(set(layout.devices)))


def job_costs(config: TrainingConfig, flops: List[int]) -> Dict[Job, float]:
    """Cost of each job in operations: backward is twice forward, and once more where it is recomputed."""
    last = len(flops) - 1
    backward = 3.0 if config.enable_recomputation else 2.0
    costs: Dict[Job, float] = {}
    for stage, work in enumerate(flops):
        costs[FORWARD, stage] = float(work)
        costs[BACKWARD, stage] = work * (3.0 if stage == last else backward)
    return costs


def communication(config: TrainingConfig, architecture: Architecture, layout: Layout) -> Communication:
    """What an update moves."""
    batch = config.global_batch
    tokens = batch.micro_batch_size * config.max_seq_length
    links = sum(one != other for one, other in zip(layout.devices, layout.devices[1:]))
    parameters = sum(
        block_parameters(architecture, block, number_of_labels(config)) for blocks in layout.stages for block in blocks
    )
    return Communication(
        between_stages=2.0 * HALF * tokens * architecture.hidden_size * links * batch.grad_acc_steps_per_replica,
        between_replicas=2.0 * HALF * parameters * (batch.replicas - 1) / batch.replicas,
        streaming=2.0 * moments_per_weight(config) * parameters if config.optimizer_state_offchip else 0.0,
    )
