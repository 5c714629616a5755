"""Estimates operations of a model and, of a pipelined run on IPUs, each IPU's memory, balance, and communication.

The figures of IPUs are estimates, not a compiler's: they count tensors, derive the temporaries of matrix products from
the config's memory proportions, and estimate code by the rules of thumb below. They are meant to detect a run that
cannot fit before anyone waits for its compilation.

B micro batch · S sequence · H hidden · I intermediate · A heads · P masked positions · V vocabulary
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, idle_fraction, make_schedule, simulate
from model.architecture import (
    EMB,
    EMBEDDING_HEAD,
    GLUE_HEAD,
    HEADS,
    HID,
    POOL,
    QA_HEAD,
    SPARSE_PARTS,
    TOKEN_HEAD,
    Architecture,
    block_flops,
    block_parameters,
    hidden_matrix_parameters,
    model_flops_per_sample,
    total_parameters,
)
from model.tasks import expected_blocks
from settings.derived import derive_architecture, derive_blocks, masked_positions, number_of_labels
from settings.schema import LOW_PRECISION, TrainingConfig

MEGABYTE = 10**6
IN_PROCESSOR_MEMORY = 900 * MEGABYTE  # of one Mk2 IPU
STREAMING_MEMORY = 64_000 * MEGABYTE  # minimum for one IPU in the published systems
TILES, TILE_MEMORY = 1472, 624 * 1024  # of one Mk2 IPU, and bytes of each

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # moments of AdamW and LAMB per weight; of its matrices, Muon has only the first

# Rules of thumb for the program, in bytes; no figure was published. Outlined encoder layers share their code.
CODE_OF_A_PROGRAM = 60 * MEGABYTE
CODE_OF_A_BLOCK = 10 * MEGABYTE

SCHEDULES = ("grouped", "interleaved", "sequential")
LONGEST_SIMULATION = 200  # micro batches; for longer updates, the share of filling and draining is scaled


# Operations and parameters


def flops_per_row(config: TrainingConfig, task: str, architecture: Architecture) -> int:
    """Return the model FLOPs, forward and backward, of a row of the batch: a sample, or a pack of them."""
    sequences, positions = config.packing.max_sequences_per_pack or 1, masked_positions(config, task)
    layers = architecture.num_hidden_layers
    blocks = derive_blocks(config, task) or expected_blocks(task, layers, config.use_next_sentence)
    labels = number_of_labels(config)
    return model_flops_per_sample(architecture, blocks, config.max_seq_length, positions, labels, sequences)


def sparsity_figures(config: TrainingConfig, task: str, architecture: Architecture) -> Dict[str, float]:
    """Return parameters and operations of a model with a sparse encoder, and their ratio to those of the dense model.

    Empty for a dense model.
    """
    if not architecture.sparsity_ratio:
        return {}
    dense = dataclasses.replace(architecture, sparsity_ratio=0.0)
    blocks = expected_blocks(task, architecture.num_hidden_layers, config.use_next_sentence)
    parameters, of_dense = (total_parameters(a, blocks, number_of_labels(config)) for a in (architecture, dense))
    flops, flops_of_dense = (flops_per_row(config, task, a) for a in (architecture, dense))
    encoder, encoder_of_dense = (sum(a.encoder_weights(part) for part in SPARSE_PARTS) for a in (architecture, dense))
    return {
        "encoder_density": encoder / encoder_of_dense,
        "trainable_parameters": parameters,
        "parameters_of_dense": parameters / of_dense,
        "flops_per_sample": flops,
        "flops_of_dense": flops / flops_of_dense,
    }


# Memory


class IpuMemory(NamedTuple):
    """Bytes on one IPU.

    Attributes:
        weights: the weights in float16.
        gradients: the accumulators in float16.
        optimizer: the moments, if they are on the chip.
        activations: those kept for the backward pass of micro batches in flight, and those within one layer.
        temporaries: temporary values of matrix products.
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
        """The total number of bytes on the IPU."""
        return sum(self)

    @property
    def fits(self) -> bool:
        """Whether the memory of an IPU is sufficient."""
        return self.total <= IN_PROCESSOR_MEMORY


class Planned(NamedTuple):
    """A config whose sizes are known, and its pipeline.

    Attributes:
        config: the config.
        task: a name in ``model.tasks.TASKS``.
        architecture: the model's architecture.
        stages: the blocks of each stage.
        devices: the IPU of each stage.
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
    architecture, blocks = derive_architecture(config), derive_blocks(config, task)
    if architecture is None or blocks is None:
        return None
    ipu = config.ipu_config
    return Planned(config, task, architecture, ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def ipu_memory(run: Planned) -> List[IpuMemory]:
    """Return the memory of each IPU of a replica."""
    config = run.config
    proportions = config.ipu_config.matmul_available_memory_proportion_per_pipeline_stage
    schedule = make_schedule(config.ipu_config.pipeline_schedule, len(run.stages))
    memory: List[IpuMemory] = []
    for ipu, parameters in enumerate(run.parameters_by_ipu()):
        activations = sum(
            stage_activations(run, stage, schedule.kept(number))
            for number, (stage, device) in enumerate(zip(run.stages, run.devices))
            if device == ipu
        )
        memory.append(
            IpuMemory(
                weights=HALF * parameters,
                gradients=HALF * parameters,
                optimizer=0.0 if config.optimizer_state_offchip else run.moments(run.blocks_on(ipu)),
                activations=activations,
                temporaries=temporaries(proportions[ipu] if proportions else None),
                code=CODE_OF_A_PROGRAM + CODE_OF_A_BLOCK * separately_compiled(config, run.blocks_on(ipu)),
            )
        )
    return memory


def streaming_memory(run: Planned) -> float:
    """Return the bytes outside the chips for the IPU that needs most."""
    moments = [run.moments(run.blocks_on(ipu)) for ipu in range(max(run.devices) + 1)]
    return max(moments) if run.config.optimizer_state_offchip else 0.0


def temporaries(proportion: Optional[float]) -> float:
    """Return the bytes for a matrix product's temporaries; Poplar's default proportion is 0.6.

    A proportion limits each tile's memory. Most products need far less, so the estimate is a quarter of the limit.
    """
    return TILES * TILE_MEMORY * (0.6 if proportion is None else proportion) / 4


def separately_compiled(config: TrainingConfig, blocks: Sequence[str]) -> int:
    """Return the number of blocks that have their own code."""
    return len(set(blocks)) if config.use_outlining else len(blocks)


def stage_activations(run: Planned, blocks: Sequence[str], kept: int) -> float:
    """Return the bytes of activations of one stage, with ``kept`` micro batches in flight."""
    config = run.config
    tokens = config.global_batch.micro_batch_size * config.max_seq_length
    boundary = HALF * tokens * run.architecture.hidden_size
    inner = [block_activations(run, block) for block in blocks]
    if not config.enable_recomputation:
        return kept * sum(inner)
    # The stage keeps its input for each micro batch. For the one in its backward pass it also keeps the output of each
    # block, and the activations inside one block at a time.
    return kept * boundary + len(blocks) * boundary + max(inner)


def block_activations(run: Planned, block: str) -> float:
    """Return the bytes that the backward pass of a block needs for one micro batch."""
    config, task, a = run.config, run.task, run.architecture
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
    if block == TOKEN_HEAD:
        return HALF * tokens * number_of_labels(config)
    if block == EMBEDDING_HEAD:
        return SINGLE * (tokens + batch * len(config.embedding.text)) * h
    return HALF * batch * masked_positions(config, task) * h


def is_feasible(run: Planned) -> bool:
    """Return whether every IPU's share fits, and the rest fits in the streaming memory."""
    return all(ipu.fits for ipu in ipu_memory(run)) and streaming_memory(run) <= STREAMING_MEMORY


def host_memory(run: Planned) -> float:
    """Return the minimum memory of a run of one process on a CPU in bytes.

    It counts weights and, for training, accumulated gradients, moments, and the tensors that the backward pass needs.
    """
    config, blocks = run.config, [block for stage in run.stages for block in stage]
    width = HALF if config.execution.precision in LOW_PRECISION else SINGLE
    if not config.do_training:
        return width * run.parameters(blocks)
    moments = (
        0 if config.ipu_config.replicated_tensor_sharding else run.moments(blocks)
    )  # other processes may have them
    at_once = config.global_batch.micro_batches if config.execution.parallel_micro_batches else 1
    activations = at_once * stage_activations(run, blocks, kept=1)
    return 2 * width * run.parameters(blocks) + moments + activations * width / HALF


# Balance, idle time and communication


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
        costs[BACKWARD, stage] = work * (3.0 if stage == last or run.config.enable_recomputation else 2.0)
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
        streaming=2.0 * run.moments(blocks) if config.optimizer_state_offchip else 0.0,
    )
