"""Counts a model's operations, its parameters, and the memory for them; activations are not estimated."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from model.architecture import (
    Architecture,
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

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # moments of AdamW and LAMB per weight; of its matrices, Muon has only the first


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


def planned(config: TrainingConfig, task: str) -> Optional[Planned]:
    """Return the config with its stages, or with one stage of all blocks; None if the sizes are unknown."""
    architecture, blocks = known_architecture(config, task), derive_blocks(config, task)
    if architecture is None or blocks is None:
        return None
    ipu = config.ipu_config
    return Planned(config, task, architecture, ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def host_memory(run: Planned) -> float:
    """Return the bytes of weights and, for training, accumulated gradients and moments of one process on a CPU."""
    config, blocks = run.config, [block for stage in run.stages for block in stage]
    weights = (HALF if config.execution.precision in LOW_PRECISION else SINGLE) * run.parameters(blocks)
    if not config.do_training:
        return weights
    shared = config.ipu_config.replicated_tensor_sharding  # other processes may have the moments
    return 2 * weights + (0 if shared else run.moments(blocks))
