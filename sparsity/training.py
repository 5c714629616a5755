"""Trains a sparse encoder: chooses its first pattern, and changes the pattern between weight updates."""

from __future__ import annotations

import collections
import json
import logging
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from data_utils.records.order import samples_at, select_batch
from execution.processes import SINGLE_PROCESS, Processes
from execution.software.devices import on_gpu
from keras_extensions.backend import keras, tf
from keras_extensions.listeners.reporting import Listener, Period
from model.architecture import Architecture
from optimization.sharding import UNSHARDED, ShardedMoments
from settings.schema import TrainingConfig
from sparsity.charts import PATTERNS
from sparsity.layer import BlockSparseDense, DenseGradients, sparse_layers
from sparsity.patterns import (
    Change,
    moved,
    norms,
    pattern_steps,
    prune_fraction,
    random_pattern,
    rigl_change,
    set_change,
)
from sparsity.products import AUTO, INSTALL, NATIVE, choose, missing_package
from sparsity.rules import RIGL, STATIC, fitting_block_size
from sparsity.section import Sparsity
from training.resume import Position
from training.run_context import RunContext, TrainingData
from training.task import BuiltModel
from utilities.errors import UserError
from utilities.files import append_json_line, read_steps, write_atomically

logger = logging.getLogger(__name__)


def check_sizes(config: TrainingConfig, architecture: Architecture) -> None:
    """Refuse blocks that do not divide the matrices of weights whose sizes were not known before."""
    size, widths = config.sparsity.block_size, (architecture.hidden_size, architecture.intermediate_size)
    if config.weights is not None and config.sparsity.ratio and any(width % size for width in widths):
        raise UserError(
            f"sparsity.block_size is {size}, which does not divide hidden_size {widths[0]} and intermediate_size"
            f" {widths[1]} of {config.weights}; set it to {fitting_block_size(*widths)}"
        )


def execution_changes(config: TrainingConfig) -> Dict[str, Any]:
    """Return the options of execution that a sparse model changes: no XLA if it would rule out the faster products."""
    sparsity, xla, device = config.sparsity, config.execution.xla, config.execution.device
    if not sparsity.ratio:
        return {}
    uses_gpu = device == "gpu" or (device == "auto" and tf.config.list_physical_devices("GPU"))
    if xla is None and not uses_gpu and sparsity.kernel in (AUTO, NATIVE):
        choice = choose(sparsity.kernel, sparsity.block_size, 1 - sparsity.ratio, on_host=True)
        xla = False if choice.kernel == NATIVE else None
    return {"xla": xla, "has_fused_parts": False}


def prepare_layers(config: TrainingConfig, blocks: Sequence[keras.layers.Layer]) -> None:
    """Choose random patterns for a model that starts from random weights; the conversion then fills them."""
    layers, seed = sparse_layers(blocks), pattern_seed(config.sparsity, config.seed)
    for number, layer in enumerate(layers if config.weights is None else ()):
        layer.choose_pattern(random_pattern(layer.size, layer.count, seed, 0, number))
    for line in sparse_lines(layers):
        logger.info(line)


def pattern_seed(sparsity: Sparsity, seed: int) -> int:
    return seed if sparsity.seed is None else sparsity.seed


def sparse_lines(layers: Sequence[BlockSparseDense]) -> List[str]:
    """Describe the sparse layers for the log: sizes, density, kernel and the reason for it, or what it lacks."""
    counts = collections.Counter(layer.describe() for layer in layers)
    lines = [f"{count} sparse matrices of {line}" for line, count in counts.items()]
    if not on_gpu() and any(
        missing_package(layer.requested_kernel, layer.block_size, layer.count / layer.size) for layer in layers
    ):
        lines.append(f"llvmlite, which computes only the blocks that exist, is not installed: {INSTALL}")
    return lines


def change_patterns(
    context: RunContext,
    data: TrainingData,
    built: BuiltModel,
    optimizer: keras.optimizers.Optimizer,
    position: Position,
) -> List[PatternUpdates]:
    """Return what changes the patterns during training; nothing for a dense model."""
    layers = sparse_layers(built.blocks)
    if not layers:
        return []
    config, updates = context.config, data.plan.updates
    changes = 0 if config.sparsity.method == STATIC else config.sparsity.pattern_updates
    due = pattern_steps(updates, changes)
    per_period = data.plan.updates_per_period
    # At the end of a logging period, because evaluations and signals that end periods must not change the training.
    change_steps = sorted({min(-(-step // per_period) * per_period, updates) for step in due})
    if len(change_steps) < len(due):
        logger.warning(
            "sparsity.pattern_updates: the pattern changes at the end of a logging period, so %d times instead of %d;"
            " lower global_batches_per_log (%d) for more",
            len(change_steps), len(due), per_period,
        )  # fmt: skip
    gradients = None
    if config.sparsity.method == RIGL and due:
        dense = DenseGradients(built.model, context.task.objective, layers)
        gradients = gradient_norms(config, data, dense, position.skipped)
    shards = context.platform.shards(optimizer)
    rule = PatternRule(config.sparsity, config.seed, updates, optimizer.moments, gradients, context.processes, shards)
    return [PatternUpdates(layers, change_steps, rule, context.run.path / PATTERNS)]


def gradient_norms(
    config: TrainingConfig, data: TrainingData, gradients: DenseGradients, skipped: Sequence[int]
) -> Callable[[int], List[np.ndarray]]:
    """Return a function that computes norms of the blocks of the dense gradient, (R · C,) for each sparse layer.

    The gradient is that of the first micro batch of a weight update, without dropout, for any number of replicas.
    """

    def norms_at(update: int) -> List[np.ndarray]:
        start = select_batch(update, skipped) * config.samples_per_update
        size = config.global_batch.micro_batch_size
        arrays = data.reader.read(samples_at(config.seed, start, size, data.reader.count, config.data.shuffle))
        return gradients.block_norms(
            {feature.name: tf.constant(arrays[feature.name]) for feature in data.reader.spec.features}
        )

    return norms_at


class PatternRule:
    """Changes patterns. If there are several processes, the chief decides and broadcasts the change.

    The processes have bit-equal weights, but different processors may compute different gradient norms. ``moments``
    returns the optimizer's variables for a weight; ``shards`` gives access to sharded ones.
    """

    def __init__(
        self,
        sparsity: Sparsity,
        seed: int,
        updates: int,
        moments: Callable[[tf.Variable], Sequence[tf.Variable]],
        gradients: Optional[Callable[[int], List[np.ndarray]]] = None,
        processes: Processes = SINGLE_PROCESS,
        shards: ShardedMoments = UNSHARDED,
    ):
        self._sparsity, self._seed, self._updates = sparsity, pattern_seed(sparsity, seed), updates
        self._moments = moments
        self._gradients = gradients
        self._processes = processes
        self._shards = shards

    def fraction(self, step: int) -> float:
        return prune_fraction(step, self._updates, self._sparsity.prune_fraction)

    def apply(self, layers: Sequence[BlockSparseDense], step: int) -> int:
        """Change the pattern of every layer and return the number of new blocks. All processes call this."""
        # In the other processes, only the shapes and dtypes count.
        changes = [Change(np.zeros(layer.count, np.int32), np.zeros(layer.count, np.int64)) for layer in layers]
        if self._processes.is_chief:
            changes = self._changes(layers, step)
        shared = self._processes.broadcast([array for change in changes for array in change])
        changes = [Change(*pair) for pair in zip(shared[::2], shared[1::2])]
        for layer, change in zip(layers, changes):
            change_pattern(layer, change, self._moments(layer.blocks), self._shards)
        return sum(change.grown for change in changes)

    def _changes(self, layers: Sequence[BlockSparseDense], step: int) -> List[Change]:
        of_gradients = self._gradients(step) if self._gradients is not None else None
        fraction, changes = self.fraction(step), []
        for number, layer in enumerate(layers):
            pattern, block_norms = layer.positions.numpy(), norms(layer.blocks.numpy())
            if of_gradients is None:
                changes.append(set_change(pattern, block_norms, fraction, layer.size, self._seed, step, number))
            else:
                changes.append(rigl_change(pattern, block_norms, of_gradients[number], fraction))
        return changes


def change_pattern(
    layer: BlockSparseDense, change: Change, moments: Sequence[tf.Variable], shards: ShardedMoments = UNSHARDED
) -> None:
    """Move a layer's blocks and their moments to a new pattern, in all processes; new blocks are zero."""
    layer.blocks.assign(moved(layer.blocks.numpy(), change))
    for moment in moments:
        moment.assign(shards.own(moment, moved(shards.whole(moment), change)))
    layer.positions.assign(change.pattern)
    layer.mark_explored(change.pattern)


class PatternUpdates(Listener):
    """Changes the patterns on schedule, at the end of a logging period, and records each change in a file."""

    def __init__(self, layers: Sequence[BlockSparseDense], due: Sequence[int], rule: PatternRule, path: Path) -> None:
        self._layers, self._due, self._rule, self._path = layers, due, rule, path

    def begin(self, first_step: int, total_steps: int) -> None:
        self._step = first_step
        rows = [row for row in read_steps(self._path) if row["step"] <= self._step]
        write_atomically(self._path, "".join(json.dumps(row) + "\n" for row in rows))
        if not rows:
            self._write(self._step, 0.0, 0)

    def period(self, period: Period) -> None:
        before, step = self._step, period.step
        self._step = step
        if any(before < due <= step for due in self._due):
            grown = self._rule.apply(self._layers, step)
            self._write(step, self._rule.fraction(step), grown)

    def _write(self, step: int, fraction: float, grown: int) -> None:
        layers = {layer.blocks.name.rsplit("/", 1)[0]: layer for layer in self._layers}  # by their path in the model
        explored = {path: layer.explored_count() for path, layer in layers.items()}
        row = {
            "step": step,
            "fraction": fraction,
            "grown": grown,
            "explored": sum(explored.values()) / sum(layer.size for layer in layers.values()),
            "density": {path: layer.count / layer.size for path, layer in layers.items()},
            "layers": {path: explored[path] / layer.size for path, layer in layers.items()},
        }
        append_json_line(self._path, row)
