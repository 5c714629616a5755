"""Counts a model's operations and, of a pipelined run on IPUs, each IPU's weights, balance, and communication.

Only what is exact is counted. Activations, temporaries and code, which an IPU's compiler determines, are not estimated.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, idle_fraction, make_schedule, simulate
from model.architecture import (
    Architecture,
    block_flops,
    block_parameters,
    hidden_matrix_parameters,
    model_flops_per_sample,
    total_parameters,
)
from model.tasks import expected_blocks
from settings.architecture import known_architecture
from settings.derived import derive_blocks, masked_positions, number_of_labels
from settings.rooms import FIGURES
from settings.schema import LOW_PRECISION, TrainingConfig

MEGABYTE = 10**6
IN_PROCESSOR_MEMORY = 900 * MEGABYTE  # of one Mk2 IPU
STREAMING_MEMORY = 64_000 * MEGABYTE  # minimum for one IPU in the published systems

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # moments of AdamW and LAMB per weight; of its matrices, Muon has only the first

SCHEDULES = ("grouped", "interleaved", "sequential")
LONGEST_SIMULATION = 200  # micro batches; for longer updates, the share of filling and draining is scaled


Row = Tuple[str, str]

# Operations and parameters


def flops_per_row(config: TrainingConfig, task: str, architecture: Architecture) -> int:
    """Return the model FLOPs, forward and backward, of a row of the batch: a sample, or a pack of them."""
    sequences, positions = config.packing.max_sequences_per_pack or 1, masked_positions(config, task)
    layers = architecture.num_hidden_layers
    blocks = derive_blocks(config, task) or expected_blocks(task, layers, config.use_next_sentence)
    labels = number_of_labels(config)
    return model_flops_per_sample(architecture, blocks, config.max_seq_length, positions, labels, sequences)


def model_figures(config: TrainingConfig, task: str, architecture: Architecture, labels: int) -> Dict[str, int]:
    """Return the sizes of a model by which runs are compared; ``labels`` is the number of a classifier's outputs."""
    layers = architecture.num_hidden_layers
    blocks = expected_blocks(task, layers, config.use_next_sentence)
    parameters = total_parameters(architecture, blocks, labels)
    sizes = {"layers": layers, "hidden_size": architecture.hidden_size, "vocab_size": architecture.vocab_size}
    return {"trainable_parameters": parameters, **sizes}


def room_figures(config: TrainingConfig, task: str, architecture: Architecture) -> Tuple[Dict[str, Any], List[Row]]:
    """Return what the rooms add to the figures of a model, and to the rows of its plan."""
    blocks = expected_blocks(task, architecture.num_hidden_layers, config.use_next_sentence)

    def parameters(each: Architecture) -> int:
        return total_parameters(each, blocks, number_of_labels(config))

    def flops(each: Architecture) -> int:
        return flops_per_row(config, task, each)

    values: Dict[str, Any] = {}
    rows: List[Row] = []
    for figures in FIGURES:
        more_values, more_rows = figures(architecture, parameters, flops)
        values.update(more_values)
        rows += more_rows
    return values, rows


# Memory


class IpuMemory(NamedTuple):
    """Bytes on one IPU of weights, accumulators (both float16) and moments on the chip; no activations or code."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """The sum of these bytes."""
        return sum(self)


class Planned(NamedTuple):
    """A config whose sizes are known, and its pipeline.

    ``stages`` are the blocks, and ``devices`` the IPU, of each pipeline stage.
    """

    config: TrainingConfig
    task: str
    architecture: Architecture
    stages: Sequence[Sequence[str]]
    devices: Sequence[int]

    def parameters(self, blocks: Iterable[str]) -> int:
        """Return the number of parameters of these blocks."""
        labels = number_of_labels(self.config)
        return sum(block_parameters(self.architecture, block, labels) for block in blocks)

    def moments(self, blocks: Sequence[str]) -> float:
        """Return the bytes of optimizer state of these blocks that one replica keeps, on or off the chip."""
        size = MOMENTS * self.parameters(blocks)
        if self.config.optimizer_opts.name == "Muon":
            size -= SINGLE * sum(hidden_matrix_parameters(self.architecture, block) for block in blocks)
        sharded = self.config.ipu_config.replicated_tensor_sharding
        return size / self.config.global_batch.replicas if sharded else size

    def parameters_by_ipu(self) -> List[int]:
        """Return the number of parameters on each IPU."""
        return [self.parameters(self.blocks_on(ipu)) for ipu in range(max(self.devices) + 1)]

    def blocks_on(self, ipu: int) -> List[str]:
        """Return the blocks of an IPU's stages."""
        return [block for stage, device in zip(self.stages, self.devices) if device == ipu for block in stage]


def planned(config: TrainingConfig, task: str) -> Optional[Planned]:
    """Return the config with its stages, or with one stage of all blocks; None if the sizes are unknown."""
    architecture, blocks = known_architecture(config, task), derive_blocks(config, task)
    if architecture is None or blocks is None:
        return None
    ipu = config.ipu_config
    return Planned(config, task, architecture, ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def ipu_memory(run: Planned) -> List[IpuMemory]:
    """Return the memory of each IPU of a replica."""
    return [
        IpuMemory(
            weights=HALF * parameters,
            gradients=HALF * parameters,
            optimizer=run.moments(run.blocks_on(ipu)) if run.config.optimizer_state_offchip is False else 0.0,
        )
        for ipu, parameters in enumerate(run.parameters_by_ipu())
    ]


def streaming_memory(run: Planned) -> float:
    """Return the bytes outside the chips for the IPU that needs most."""
    moments = [run.moments(run.blocks_on(ipu)) for ipu in range(max(run.devices) + 1)]
    return 0.0 if run.config.optimizer_state_offchip is False else max(moments)


def host_memory(run: Planned) -> float:
    """Return the bytes of weights and, for training, accumulated gradients and moments of one process on a CPU."""
    config, blocks = run.config, [block for stage in run.stages for block in stage]
    weights = (HALF if config.execution.precision in LOW_PRECISION else SINGLE) * run.parameters(blocks)
    if not config.do_training:
        return weights
    shared = config.ipu_config.replicated_tensor_sharding  # other processes may have the moments
    return 2 * weights + (0 if shared else run.moments(blocks))


# Balance, idle time and communication


class Communication(NamedTuple):
    """Bytes that one replica moves for one weight update.

    They are activations and their gradients, an all-reduce as a ring, and optimizer state to and from off-chip memory.
    """

    between_stages: float
    between_replicas: float
    streaming: float


def stage_flops(run: Planned) -> List[int]:
    """Return the operations of each stage's forward pass on one sample; an embedding counts as its copy."""
    masked, labels = masked_positions(run.config, run.task), number_of_labels(run.config)
    return [
        sum(block_flops(run.architecture, block, run.config.max_seq_length, masked, labels) for block in blocks)
        for blocks in run.stages
    ]


def flops_by_ipu(run: Planned) -> List[int]:
    """Return the operations of each IPU's forward pass on one sample."""
    pairs = list(zip(stage_flops(run), run.devices))
    return [sum(work for work, device in pairs if device == ipu) for ipu in range(max(run.devices) + 1)]


def balance(run: Planned) -> float:
    """Return the mean load of the IPUs divided by the largest; 1 is perfect."""
    loads = flops_by_ipu(run)
    return sum(loads) / (len(loads) * max(loads))


def bubble(run: Planned, schedule: str) -> float:
    """Return the share of time that the IPUs wait under a schedule."""
    micro_batches = min(run.config.global_batch.grad_acc_steps_per_replica, LONGEST_SIMULATION)
    jobs = make_schedule(schedule, len(run.stages))
    intervals = simulate(jobs, job_costs(run), micro_batches, list(run.devices))
    return idle_fraction(intervals, len(set(run.devices)))


def job_costs(run: Planned) -> Dict[Job, float]:
    """Return the operations of each job: backward is twice forward, plus one forward if it is recomputed."""
    last = len(run.stages) - 1
    costs: Dict[Job, float] = {}
    for stage, work in enumerate(stage_flops(run)):
        costs[FORWARD, stage] = float(work)
        costs[BACKWARD, stage] = work * (2.0 if stage != last and run.config.enable_recomputation is False else 3.0)
    return costs


def communication(run: Planned) -> Communication:
    """Return the bytes that an update moves."""
    config, batch = run.config, run.config.global_batch
    tokens = batch.micro_batch_size * config.max_seq_length
    links = sum(one != other for one, other in zip(run.devices, run.devices[1:]))
    blocks = [block for stage in run.stages for block in stage]
    parameters = run.parameters(blocks)
    return Communication(
        between_stages=2.0 * HALF * tokens * run.architecture.hidden_size * links * batch.grad_acc_steps_per_replica,
        between_replicas=2.0 * HALF * parameters * (batch.replicas - 1) / batch.replicas,
        streaming=0.0 if config.optimizer_state_offchip is False else 2.0 * run.moments(blocks),
    )
