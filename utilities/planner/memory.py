"""What an IPU's memory has to hold, estimated block by block.

An estimate, not a compiler's figure: it counts tensors, takes the temporaries of matrix products from the config's
memory proportions, and allows for code by rules of thumb that are written down here. It is meant to tell a run that
fits from one that cannot, before anyone waits for a compilation.

B micro batch · S sequence · H hidden · I intermediate · A heads · P masked positions · V vocabulary
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from execution.software.pipeline.schedule import make_schedule
from model.architecture import EMB, GLUE_HEAD, HEADS, HID, POOL, QA_HEAD, Architecture, block_parameters
from utilities.config.figures import masked_positions, number_of_labels
from utilities.config.schema import TrainingConfig

MEGABYTE = 10**6
IN_PROCESSOR_MEMORY = 900 * MEGABYTE  # of one Mk2 IPU
STREAMING_MEMORY = 64_000 * MEGABYTE  # of one IPU, at least, in the published systems
TILES, TILE_MEMORY = 1472, 624 * 1024  # of one Mk2 IPU, and bytes of each

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # of AdamW and LAMB, per weight

# Rules of thumb for the program, in bytes; no figure was published. Outlined encoder layers share their code.
CODE_OF_A_PROGRAM = 60 * MEGABYTE
CODE_OF_A_BLOCK = 10 * MEGABYTE


class IpuMemory(NamedTuple):
    """Bytes on one IPU.

    Attributes:
        weights, gradients: float16; gradients are the accumulators.
        optimizer: moments, where they are on the chip.
        activations: kept for the backward pass of micro batches on their way, and live within one layer.
        temporaries: of matrix products.
        code: of the program.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    temporaries: float
    code: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self)

    @property
    def fits(self) -> bool:
        """Whether an IPU can hold it."""
        return self.total <= IN_PROCESSOR_MEMORY


class Layout(NamedTuple):
    """Blocks by stage, and each stage's IPU."""

    stages: Sequence[Sequence[str]]
    devices: Sequence[int]


def layout_of(config: TrainingConfig, blocks: List[str]) -> Layout:
    """The config's stages, or one stage with all blocks."""
    ipu = config.ipu_config
    return Layout(ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def ipu_memory(config: TrainingConfig, task: str, architecture: Architecture, layout: Layout) -> List[IpuMemory]:
    """The memory of each IPU of a replica."""
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
    """Bytes outside the chips, of the IPU that has most."""
    if not config.optimizer_state_offchip:
        return 0.0
    by_ipu: Dict[int, float] = {}
    for blocks, device in zip(layout.stages, layout.devices):
        parameters = sum(block_parameters(architecture, block, number_of_labels(config)) for block in blocks)
        by_ipu[device] = by_ipu.get(device, 0.0) + moments_per_weight(config) * parameters
    return max(by_ipu.values())


def temporaries(proportion: Optional[float]) -> float:
    """Bytes for a matrix product's temporaries; Poplar's default proportion is 0.6.

    A proportion is of a tile's memory, and a limit; most products need far less, so the estimate takes a quarter of it.
    """
    return TILES * TILE_MEMORY * (0.6 if proportion is None else proportion) / 4


def different(config: TrainingConfig, blocks: Sequence[str]) -> int:
    """Blocks with code of their own."""
    return len(set(blocks)) if config.use_outlining else len(blocks)


def stage_activations(
    config: TrainingConfig, task: str, architecture: Architecture, blocks: Sequence[str], kept: int
) -> float:
    """Bytes of activations of one stage, with ``kept`` micro batches on their way."""
    tokens = config.global_batch.micro_batch_size * config.max_seq_length
    boundary = HALF * tokens * architecture.hidden_size
    inner = [block_activations(config, task, architecture, block) for block in blocks]
    if not config.enable_recomputation:
        return kept * sum(inner)
    # Of each micro batch the stage's input is kept; of the one that is worked backward, a checkpoint after each block,
    # and the inside of one block at a time.
    return kept * boundary + len(blocks) * boundary + max(inner)


def block_activations(config: TrainingConfig, task: str, a: Architecture, block: str) -> float:
    """Bytes that the backward pass of a block needs for one micro batch."""
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
    """Whether every IPU holds its share, and the streaming memory the rest."""
    on_chip = all(ipu.fits for ipu in ipu_memory(config, task, architecture, layout))
    return on_chip and streaming_memory(config, architecture, layout) <= STREAMING_MEMORY
