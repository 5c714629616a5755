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
from model.tasks import PRETRAINING, expected_blocks
from settings.architecture import known_architecture
from settings.rooms import FIGURES
from settings.schema import LOW_PRECISION, TrainingConfig

HALF, SINGLE = 2, 4  # bytes
MOMENTS = 2 * SINGLE  # moments of AdamW and LAMB per weight; of its matrices, Muon has only the first


class Planned(NamedTuple):
    """A config whose sizes are known; ``stages`` are the blocks, ``devices`` the IPU, of each pipeline stage."""

    config: TrainingConfig
    task: str
    architecture: Architecture
    stages: Sequence[Sequence[str]]
    devices: Sequence[int]

    @property
    def blocks(self) -> List[str]:
        return [block for stage in self.stages for block in stage]

    @property
    def masked_positions(self) -> int:
        """The number of positions of a row that the masked-LM head computes; 0 outside pre-training."""
        return self.config.predictions_per_row if self.task == PRETRAINING else 0

    @property
    def flops_per_row(self) -> int:
        """The model FLOPs, forward and backward, of a row of the batch: a sample, or a pack of them."""
        config, sequences = self.config, self.config.packing.max_sequences_per_pack or 1
        tokens, positions, labels = config.max_seq_length, self.masked_positions, config.number_of_labels
        return model_flops_per_sample(self.architecture, self.blocks, tokens, positions, labels, sequences)

    def parameters(self, blocks: Iterable[str]) -> int:
        return sum(block_parameters(self.architecture, block, self.config.number_of_labels) for block in blocks)

    def moments(self, blocks: Sequence[str]) -> float:
        """Return the bytes of optimizer state of these blocks that one replica keeps, on or off the chip."""
        size = MOMENTS * self.parameters(blocks)
        if self.config.optimizer_opts.name == "Muon":
            size -= SINGLE * sum(hidden_matrix_parameters(self.architecture, block) for block in blocks)
        sharded = self.config.ipu_config.replicated_tensor_sharding
        return size / self.config.global_batch.replicas if sharded else size

    def sizes(self, labels: int) -> Dict[str, int]:
        """Return the sizes by which runs are compared; ``labels`` is the number of a classifier's outputs."""
        shape = self.architecture
        sizes = {"layers": shape.num_hidden_layers, "hidden_size": shape.hidden_size, "vocab_size": shape.vocab_size}
        return {"trainable_parameters": total_parameters(shape, self._task_blocks, labels), **sizes}

    def of_rooms(self) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
        """Return what the rooms add to the sizes, and to the rows of a plan."""

        def parameters(each: Architecture) -> int:
            return total_parameters(each, self._task_blocks, self.config.number_of_labels)

        def flops(each: Architecture) -> int:
            return self._replace(architecture=each).flops_per_row

        values: Dict[str, Any] = {}
        rows: List[Tuple[str, str]] = []
        for figures in FIGURES:
            more_values, more_rows = figures(self.architecture, parameters, flops)
            values.update(more_values)
            rows += more_rows
        return values, rows

    @property
    def _task_blocks(self) -> List[str]:
        return expected_blocks(self.task, self.architecture.num_hidden_layers, self.config.use_next_sentence)


def planned(config: TrainingConfig, task: str, architecture: Architecture) -> Planned:
    """Return the config with its stages, or with one stage of all blocks."""
    ipu = config.ipu_config
    blocks = expected_blocks(task, architecture.num_hidden_layers, config.use_next_sentence)
    return Planned(config, task, architecture, ipu.pipeline_stages or [blocks], ipu.pipeline_device_mapping or [0])


def planned_if_known(config: TrainingConfig, task: str) -> Optional[Planned]:
    """Return the same for the architecture of the config; None if the weights must be opened to know it."""
    architecture = known_architecture(config, task)
    return None if architecture is None else planned(config, task, architecture)


def host_memory(run: Planned) -> float:
    """Return the bytes of weights and, for training, accumulated gradients and moments of one process on a CPU."""
    config = run.config
    weights = (HALF if config.execution.precision in LOW_PRECISION else SINGLE) * run.parameters(run.blocks)
    if not config.do_training:
        return weights
    shared = config.ipu_config.replicated_tensor_sharding  # other processes may have the moments
    return 2 * weights + (0 if shared else run.moments(run.blocks))
