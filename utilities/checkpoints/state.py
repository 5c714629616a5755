"""Training's state to and from checkpoints: weights named by block, optimizer, and whatever else training changes."""

from __future__ import annotations

import shutil
from itertools import zip_longest
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from keras_extensions.backend import keras, tf
from utilities.checkpoints.folder import OPTIMIZER, VOCABULARY, WEIGHTS, Checkpoint, name_of, writing
from utilities.checkpoints.host_copy import HostCopy, names_of
from utilities.errors import UserError

ORDER = "optimizer_order"  # the fact by which moments belong to weights


class TrainingState:
    """What training changes.

    Args:
        blocks: the model's blocks, whose names become names in the checkpoint.
        optimizer: its moments and counter are saved beside the weights.
        variables: those that the optimizer was built with, in its order, by which its moments are saved.
        others: name → anything else that TensorFlow tracks and that training changes, such as a loss scale that adapts.
    """

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

    def copy(self) -> StateCopy:
        """The present values, in the host's memory."""
        return StateCopy(HostCopy(self._weights), HostCopy(self._optimizer), self._order)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set everything to the values of a checkpoint; variables must have been created before.

        Raises:
            UserError: the checkpoint lacks a value, has one of another shape, or has moments in another order.
        """
        saved = (checkpoint.facts or {}).get(ORDER, self._order)
        if saved != self._order:
            first = next(pair for pair in zip_longest(saved, self._order) if pair[0] != pair[1])
            raise UserError(
                f"{checkpoint.folder}: its optimizer's moments are those of a model that is built in another way"
                f" ({first[0]} where {first[1]} is expected); train on from its weights with pretrained_ckpt_path"
            )
        _read(tf.train.Checkpoint(**self._weights), checkpoint, checkpoint.weights)
        _read(tf.train.Checkpoint(**self._optimizer), checkpoint, checkpoint.folder / OPTIMIZER)


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
