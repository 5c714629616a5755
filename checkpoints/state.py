"""Training's state to and from checkpoints: weights named by block, optimizer, and whatever else training changes."""

from __future__ import annotations

import shutil
from itertools import zip_longest
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence

import numpy as np

from checkpoints.folder import OPTIMIZER, VOCABULARY, WEIGHTS, Checkpoint, name_of, writing
from checkpoints.host_copy import HostCopy, names_of, value_of, variables_of
from keras_extensions.backend import keras, tf
from optimization.sharding import pieces
from utilities.errors import UserError

ORDER = "optimizer_order"  # the fact by which moments belong to weights
BYTES_AT_ONCE = 1 << 26  # that the chief sends to the others


class Parts(Protocol):
    """Which variables are only a part of something larger, the other parts being with other processes."""

    def whole(self, variable: tf.Variable) -> np.ndarray:
        """The whole that a variable is a part of, or its value; all processes must ask for it at the same place."""

    def blank(self, variable: tf.Variable) -> np.ndarray:
        """Something of the whole's shape and dtype."""

    def own(self, variable: tf.Variable, whole: np.ndarray) -> np.ndarray:
        """What of the whole belongs into the variable."""


class Together(Protocol):
    """Processes of a run; see ``execution.software.cluster.processes``."""

    @property
    def is_alone(self) -> bool:
        """Whether there is one only."""

    @property
    def is_chief(self) -> bool:
        """Whether this is the one that reads and writes."""

    def from_chief(self, arrays: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The chief's arrays."""


class TrainingState:
    """What training changes.

    Args:
        blocks: the model's blocks, whose names become names in the checkpoint.
        optimizer: its moments and counter are saved beside the weights.
        variables: those that the optimizer was built with, in its order, by which its moments are saved.
        others: name → anything else that TensorFlow tracks and that training changes, such as a loss scale that adapts.

    Attributes:
        parts: knows which moments are only a part of something that several processes keep; None: all are whole.
    """

    parts: Optional[Parts] = None

    def __init__(
        self,
        blocks: Sequence[keras.layers.Layer],
        optimizer: keras.optimizers.Optimizer,
        variables: Sequence[tf.Variable] = (),
        others: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self._weights = named(blocks)
        self._order = names_of(variables, self._weights)
        self._optimizer = {**(others or {}), "optimizer": optimizer}

    @property
    def is_shared(self) -> bool:
        """Whether it takes several processes to copy the state; all must do so at the same step."""
        return self.parts is not None

    def copy(self) -> StateCopy:
        """The present values, whole, in the host's memory."""
        value = None if self.parts is None else self.parts.whole
        return StateCopy(HostCopy(self._weights), HostCopy(self._optimizer, value), self._order)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set everything to the values of a checkpoint; variables must have been created before.

        Raises:
            UserError: the checkpoint lacks a value, has one of another shape, or has moments in another order.
        """
        self._check_order(checkpoint)
        _read(tf.train.Checkpoint(**self._weights), checkpoint, checkpoint.weights)
        _read(tf.train.Checkpoint(**self._optimizer), checkpoint, checkpoint.folder / OPTIMIZER)

    def restore_together(self, checkpoint: Optional[Checkpoint], processes: Together) -> None:
        """Set everything, in all processes, to the values of a checkpoint that the chief alone reads.

        Args:
            checkpoint: None for the values that the chief has now.
            processes: all must call this at the same place.

        Raises:
            UserError: see :meth:`restore`.
        """
        if processes.is_alone:
            if checkpoint is not None:
                self.restore(checkpoint)
            return
        weights, moments = variables_of(self._weights), variables_of(self._optimizer)
        if checkpoint is not None and processes.is_chief:
            self._check_order(checkpoint)
            _read(tf.train.Checkpoint(**self._weights), checkpoint, checkpoint.weights)
        values = [variable.numpy() for variable in weights] + self._whole_moments(moments, checkpoint, processes)
        for group in pieces([value.nbytes for value in values], BYTES_AT_ONCE):
            told = processes.from_chief([values[number] for number in group])
            for number, value in zip(group, told):
                variable = [*weights, *moments][number]
                variable.assign(value if self.parts is None else self.parts.own(variable, value))

    def _whole_moments(
        self, moments: Sequence[tf.Variable], checkpoint: Optional[Checkpoint], processes: Together
    ) -> List[np.ndarray]:
        """A checkpoint's for the chief, anything of these shapes for others; without a checkpoint the present ones."""
        whole = value_of if self.parts is None else self.parts.whole
        if checkpoint is None:
            return [whole(variable) for variable in moments]
        blank = value_of if self.parts is None else self.parts.blank
        if not processes.is_chief:
            return [blank(variable) for variable in moments]
        prefix = checkpoint.folder / OPTIMIZER
        return HostCopy(self._optimizer, blank).restored(lambda reader: _read(reader, checkpoint, prefix))

    def _check_order(self, checkpoint: Checkpoint) -> None:
        saved = (checkpoint.facts or {}).get(ORDER, self._order)
        if saved != self._order:
            first = next(pair for pair in zip_longest(saved, self._order) if pair[0] != pair[1])
            raise UserError(
                f"{checkpoint.folder}: its optimizer's moments are those of a model that is built in another way"
                f" ({first[0]} where {first[1]} is expected); train on from its weights with pretrained_ckpt_path"
            )


class StateCopy:
    """A copy of the state, written from any thread."""

    def __init__(self, weights: HostCopy, optimizer: HostCopy, order: Sequence[str]) -> None:
        self._weights = weights
        self._optimizer = optimizer
        self._order = list(order)

    def write(self, folder: Path, step: int, facts: Dict[str, Any], vocabulary: Optional[Path] = None) -> Path:
        """Write a checkpoint.

        Args:
            folder: of the run's checkpoints.
            step: weight updates done.
            facts: what a reader should know before building a model (task, architecture, seed, …).
            vocabulary: the ``vocab.txt`` to put beside the weights.

        Returns:
            The checkpoint's folder.

        Raises:
            UserError: the file system refused.
        """
        with writing(folder, step, {**facts, ORDER: self._order}) as temporary:
            self._weights.write(temporary / WEIGHTS)
            self._optimizer.write(temporary / OPTIMIZER)
            if vocabulary is not None:
                shutil.copyfile(vocabulary, temporary / VOCABULARY)
        return folder / name_of(step)


def save_checkpoint(
    folder: Path,
    step: int,
    blocks: Sequence[keras.layers.Layer],
    optimizer: keras.optimizers.Optimizer,
    facts: Dict[str, Any],
    vocabulary: Optional[Path] = None,
) -> Path:
    """Write a checkpoint of the present state; see :class:`TrainingState` and :meth:`StateCopy.write`."""
    return TrainingState(blocks, optimizer).copy().write(folder, step, facts, vocabulary)


def load_weights(checkpoint: Checkpoint, blocks: Sequence[keras.layers.Layer]) -> None:
    """Set the weights of ``blocks`` from a checkpoint.

    Raises:
        UserError: the checkpoint lacks a weight, or has one of another shape.
    """
    _read(tf.train.Checkpoint(**named(blocks)), checkpoint, checkpoint.weights)


def named(blocks: Sequence[keras.layers.Layer]) -> Dict[str, keras.layers.Layer]:
    """Blocks by name."""
    return {block.name: block for block in blocks}


def _read(reader: tf.train.Checkpoint, checkpoint: Checkpoint, prefix: Path) -> None:
    try:
        # What is not asked for stays unread, and TensorFlow need not say so, also where reading fails.
        reader.read(str(prefix)).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"pretrained_ckpt_path: {checkpoint.weights} does not fit the model of this config ({reason}); use the"
            " bert_config that it was trained with"
        ) from error
