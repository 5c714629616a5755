"""Estimates of a pipelined run on IPUs: what each IPU's memory holds, how work is spread, and what is moved.

These are estimates, not a compiler's figures: they count tensors, take the temporaries of matrix products from the
config's memory proportions, and allow for code by rules of thumb that are written down here. They are meant to tell a
run that fits from one that cannot, before anyone waits for a compilation.

B micro batch · S sequence · H hidden · I intermediate · A heads · P masked positions · V vocabulary
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, idle_fraction, make_schedule, simulate
from model.architecture import EMB, GLUE_HEAD, HEADS, HID, POOL, QA_HEAD, Architecture, block_flops, block_parameters
from utilities.config.figures import masked_positions, number_of_labels
from utilities.config.schema import NARROW, TrainingConfig

MEGABYTE = 10**6
IN_PROCESSOR_MEMORY = 900 * MEGABYTE  # of one Mk2 IPU
STREAMING_MEMORY = 64_000 * MEGABYTE  # of one IPU, at least, in the published systems
TILES, TILE_MEMORY = 1472, 624 * 1024  # of one Mk2 IPU, and bytes of each

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # of AdamW and LAMB, per weight

# Rules of thumb for the program, in bytes; no figure was published. Outlined encoder layers share their code.
CODE_OF_A_PROGRAM = 60 * MEGABYTE
CODE_OF_A_BLOCK = 10 * MEGABYTE

SCHEDULES = ("grouped", "interleaved", "sequential")
LONGEST_SIMULATION = 200  # micro batches; the share of filling and draining in longer updates is scaled


# Memory


class IpuMemory(NamedTuple):
    """Bytes on one IPU.

    Attributes:
        weights: in float16.
        gradients: accumulators, in float16.
        optimizer: moments, where they are on the chip.
        activations: those kept for the backward pass of micro batches in flight, and those live within one layer.
        temporaries: those of matrix products.
        code: the program.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    temporaries: float
    code: float

    @property
    def total(self) -> float:
        """All bytes on the IPU."""
        return sum(self)

    @property
    def fits(self) -> bool:
        """Whether the memory of an IPU suffices."""
        return self.total <= IN_PROCESSOR_MEMORY


class Layout(NamedTuple):
    """The blocks of each stage, and each stage's IPU."""

    stages: Sequence[Sequence[str]]
    devices: Sequence[int]


def layout_of(config: TrainingConfig, blocks: List[str]) -> Layout:
    """Return the config's stages, or one stage with all blocks."""
    ipu = config.ipu_config
    return Layout(ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def ipu_memory(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> List[IpuMemory]:
    """Return the memory of each IPU of a replica."""
    proportions = config.ipu_config.matmul_available_memory_proportion_per_pipeline_stage
    schedule = make_schedule(config.ipu_config.pipeline_schedule, len(layout.stages))
    found: List[IpuMemory] = []
    for ipu in range(max(layout.devices) + 1):
        here = [number for number, device in enumerate(layout.devices) if device == ipu]
        blocks = [block for number in here for block in layout.stages[number]]
        parameters = sum(block_parameters(architecture, block, number_of_labels(config)) for block in blocks)
        activations = sum(
            stage_activations(config, task, architecture, layout.stages[number], schedule.kept(number))
            for number in here
        )
        found.append(
            IpuMemory(
                weights=HALF * parameters,
                gradients=HALF * parameters,
                optimizer=0.0 if config.optimizer_state_offchip else moments_per_weight(config) * parameters,
                activations=activations,
                temporaries=temporaries(proportions[ipu] if proportions else None),
                code=CODE_OF_A_PROGRAM + CODE_OF_A_BLOCK * different(config, blocks),
            )
        )
    return found


def moments_per_weight(config: TrainingConfig) -> float:
    """Return the bytes of optimizer state that one replica keeps for each weight, on the chip or off it."""
    replicas = config.global_batch.replicas
    return MOMENTS / replicas if config.ipu_config.replicated_tensor_sharding else MOMENTS


def streaming_memory(config: TrainingConfig, architecture: Architecture, layout: Layout) -> float:
    """Return the bytes outside the chips, for the IPU with most."""
    if not config.optimizer_state_offchip:
        return 0.0
    by_ipu: Dict[int, float] = {}
    for blocks, device in zip(layout.stages, layout.devices):
        parameters = sum(block_parameters(architecture, block, number_of_labels(config)) for block in blocks)
        by_ipu[device] = by_ipu.get(device, 0.0) + moments_per_weight(config) * parameters
    return max(by_ipu.values())


def temporaries(proportion: Optional[float]) -> float:
    """Return the bytes for a matrix product's temporaries; Poplar's default proportion is 0.6.

    A proportion is a limit on each tile's memory. Most products need far less, so the estimate is a quarter of it.
    """
    return TILES * TILE_MEMORY * (0.6 if proportion is None else proportion) / 4


def different(config: TrainingConfig, blocks: Sequence[str]) -> int:
    """Return the number of blocks with code of their own."""
    return len(set(blocks)) if config.use_outlining else len(blocks)


def stage_activations(
    config: TrainingConfig, task: str, architecture: Architecture, blocks: Sequence[str], kept: int
) -> float:
    """Return the bytes of activations of one stage, with ``kept`` micro batches in flight."""
    tokens = config.global_batch.micro_batch_size * config.max_seq_length
    boundary = HALF * tokens * architecture.hidden_size
    inner = [block_activations(config, task, architecture, block) for block in blocks]
    if not config.enable_recomputation:
        return kept * sum(inner)
    # The stage keeps its input for each micro batch. For the one in its backward pass it holds a checkpoint after each
    # block, and the activations inside one block at a time.
    return kept * boundary + len(blocks) * boundary + max(inner)


def block_activations(config: TrainingConfig, task: str, a: Architecture, block: str) -> float:
    """Return the bytes that the backward pass of a block needs for one micro batch."""
    batch, length = config.global_batch.micro_batch_size, config.max_seq_length
    tokens, h = batch * length, a.hidden_size
    if block == EMB:
        return HALF * tokens * h * 2
    if block == HID:
        # Q, K, V, context, projection, sum, norm, output, sum, norm: 10 H; two of I; scores and probabilities: 2 A S
        return HALF * tokens * (10 * h + 2 * a.intermediate_size + 2 * a.num_attention_heads * length)
    if block == POOL:
        return HALF * batch * h * 2
    if block == HEADS:
        positions = batch * masked_positions(config, task)
        slices = max(1, config.embedding_serialization_factor)
        return HALF * positions * (2 * h + a.vocab_size + a.vocab_size / slices)
    if block == QA_HEAD:
        return HALF * tokens * 2 * 2
    if block == GLUE_HEAD:
        return HALF * batch * number_of_labels(config)
    return HALF * batch * masked_positions(config, task) * h


def is_feasible(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> bool:
    """Return whether every IPU holds its share, and the streaming memory the rest."""
    on_chip = all(ipu.fits for ipu in ipu_memory(config, task, architecture, layout))
    return on_chip and streaming_memory(config, architecture, layout) <= STREAMING_MEMORY


def host_memory(config: TrainingConfig, task: str, architecture: Architecture, blocks: Sequence[str]) -> float:
    """Return the least bytes of a process that runs on a CPU with one micro batch at a time.

    Counted are weights and, for training, accumulated gradients, moments, and what the backward pass keeps.
    """
    parameters = sum(block_parameters(architecture, block, number_of_labels(config)) for block in blocks)
    width = HALF if config.execution.precision in NARROW else SINGLE
    if not config.do_training:
        return width * parameters
    moments = 0 if config.ipu_config.replicated_tensor_sharding else MOMENTS  # other processes may keep them
    activations = stage_activations(config, task, architecture, blocks, kept=1)
    return (2 * width + moments) * parameters + activations * width / HALF


# Balance, waiting and communication


class Communication(NamedTuple):
    """Bytes that one replica moves for one weight update.

    Attributes:
        between_stages: activations forward and their gradients backward.
        between_replicas: the all-reduce of the gradients, as a ring.
        streaming: optimizer state to and from the memory outside the chips.
    """

    between_stages: float
    between_replicas: float
    streaming: float


def stage_flops(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> List[int]:
    """Return the operations of each stage's forward pass on one sample; an embedding counts as the cost of its copy."""
    masked, labels = masked_positions(config, task), number_of_labels(config)
    return [
        sum(block_flops(architecture, block, config.max_seq_length, masked, labels) for block in blocks)
        for blocks in layout.stages
    ]


def balance(flops: List[int], layout: Layout) -> float:
    """Return the mean load of the IPUs divided by the largest; 1 is perfect."""
    by_ipu: Dict[int, int] = {}
    for work, device in zip(flops, layout.devices):
        by_ipu[device] = by_ipu.get(device, 0) + work
    return sum(by_ipu.values()) / (len(by_ipu) * max(by_ipu.values()))


def bubbles(config: TrainingConfig, flops: List[int], layout: Layout) -> Dict[str, float]:
    """Return the share of their time that the IPUs wait, by schedule."""
    return {name: bubble(config, flops, layout, name) for name in SCHEDULES}


def bubble(config: TrainingConfig, flops: List[int], layout: Layout, name: str) -> float:
    """Return the share of their time that the IPUs wait under one schedule."""
    micro_batches = min(config.global_batch.grad_acc_steps_per_replica, LONGEST_SIMULATION)
    intervals = simulate(
        make_schedule(name, len(layout.stages)), job_costs(config, flops), micro_batches, list(layout.devices)
    )
    return idle_fraction(intervals, len(set(layout.devices)))


def job_costs(config: TrainingConfig, flops: List[int]) -> Dict[Job, float]:
    """Return the operations of each job: backward is twice forward, plus one forward where it is recomputed."""
    last = len(flops) - 1
    backward = 3.0 if config.enable_recomputation else 2.0
    costs: Dict[Job, float] = {}
    for stage, work in enumerate(flops):
        costs[FORWARD, stage] = float(work)
        costs[BACKWARD, stage] = work * (3.0 if stage == last else backward)
    return costs


def communication(config: TrainingConfig, architecture: Architecture, layout: Layout) -> Communication:
    """Return the bytes that an update moves."""
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
