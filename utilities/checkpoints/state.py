"""Weights and optimizer state to and from TensorFlow checkpoints, named by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Sequence

from keras_extensions.backend import keras, tf
from utilities.checkpoints.folder import OPTIMIZER, WEIGHTS, Checkpoint, writing
from utilities.errors import UserError


def save_checkpoint(
    folder: Path,
    step: int,
    blocks: Sequence[keras.layers.Layer],
    optimizer: keras.optimizers.Optimizer,
    facts: Dict[str, Any],
) -> Path:
    """Write a checkpoint of the present state.

    Args:
        folder: of the run's checkpoints.
        step: weight updates done.
        blocks: the model's blocks, whose names become names in the checkpoint.
        optimizer: its moments and counter are saved beside the weights.
        facts: what a reader should know before building a model (task, architecture, seed, …).

    Returns:
        The checkpoint's folder.
    """
    with writing(folder, step, facts) as temporary:
        tf.train.Checkpoint(**named(blocks)).write(str(temporary / WEIGHTS))
        tf.train.Checkpoint(optimizer=optimizer).write(str(temporary / OPTIMIZER))
    return folder / f"step-{step:08d}"


def load_weights(checkpoint: Checkpoint, blocks: Sequence[keras.layers.Layer]) -> None:
    """Set the weights of ``blocks`` from a checkpoint.

    Raises:
        UserError: the checkpoint lacks a weight, or has one of another shape.
    """
    reader = tf.train.Checkpoint(**named(blocks))
    try:
        reader.read(str(checkpoint.weights)).assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"pretrained_ckpt_path: {checkpoint.weights} does not fit the model of this config ({reason}); use the"
            " bert_config that it was trained with"
        ) from error


def named(blocks: Sequence[keras.layers.Layer]) -> Dict[str, keras.layers.Layer]:
    """Blocks by name."""
    return {block.name: block for block in blocks}
