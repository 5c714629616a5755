"""Continues the training of Graphcore's published program from one of its checkpoints, with ``continue_pretrained``.

The weights come from ``pretrained_ckpt_path`` in any case. Here the optimizer's moments and the number of updates
follow. The data does not: the program shuffles without a seed, so the run goes on with the global batches of its own
order.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path
from typing import Optional

import numpy as np

from checkpoints.pretrained.native_checkpoint import origins_of_saved
from checkpoints.pretrained.pretrained import OptimizerState, Pretrained
from checkpoints.state import by_name, variable_names
from keras_extensions.backend import keras, tf
from training.initial_weights import InitialWeights
from training.resume import Position
from training.run_context import RunContext, TrainingData
from training.task import BuiltModel
from utilities.errors import UserError

logger = logging.getLogger(__name__)

KEY = "continue_pretrained"
_NUMBER = re.compile(r"(\d+)\.ckpt")  # the updates of a run, in the names of the program's checkpoints


def state_to_continue(continues: bool, start: Optional[InitialWeights]) -> Optional[OptimizerState]:
    """Return the optimizer's state in the checkpoint to start from; None unless the training continues it."""
    if not continues or not isinstance(start, Pretrained):  # a run of this project is resumed instead
        return None
    if start.state is None:
        raise UserError(
            f"{KEY}: {start.origin} has no optimizer's state of Graphcore's program; a run of this project is continued"
            " with --resume, and other weights are the start of a new training (remove it)"
        )
    number = _NUMBER.fullmatch(Path(start.origin).name)
    if number is not None and int(number.group(1)) != start.state.updates:
        raise UserError(
            f"{KEY}: {start.origin} is of a run that began with the moments of another, so its optimizer has counted"
            f" {start.state.updates:,} updates; its place in the schedule is lost, so start a new training from its"
            " weights (remove it)"
        )
    return start.state


def continued_position(continues: bool, start: Optional[InitialWeights], position: Position) -> Position:
    """Return the position after the updates of a checkpoint to continue, otherwise ``position``."""
    state = state_to_continue(continues, start)
    return position if state is None else dataclasses.replace(position, step=state.updates)


def check_length(position: Position, data: TrainingData) -> None:
    """Refuse to continue a training that has ended."""
    if position.checkpoint is None and position.step >= data.plan.updates:
        raise UserError(
            f"{KEY}: the checkpoint has {position.step:,} updates, and the run ends after {data.plan.updates:,}; set"
            " total_num_train_samples to the whole length, or remove it to start a new training from the weights"
        )


def adopt_state(
    context: RunContext, start: Optional[InitialWeights], built: BuiltModel, optimizer: keras.optimizers.Optimizer
) -> None:
    """Give a compiled model's optimizer the moments and the number of updates of a checkpoint to continue."""
    state = state_to_continue(context.config.continue_pretrained, start)
    if state is None:
        return
    assert start is not None
    variables, shards = built.model.trainable_variables, context.platform.shards(optimizer)
    names = variable_names(variables, by_name(built.blocks))
    origins = origins_of_saved(context.task.name, names)
    for name, variable in zip(names, variables):
        for moment, saved in zip(context.platform.moments(optimizer, variable), (state.first, state.second)):
            parts = origins.get(name, [])
            if not parts or any(part.name not in saved for part in parts):
                raise UserError(
                    f"{KEY}: {start.origin} has no moments of {name}, which this model trains; leave the task and the"
                    " use_… options to those of the checkpoint, or remove it to start a new training from the weights"
                )
            arrays = [saved[part.name].value() for part in parts]  # as in PyTorch
            value = np.concatenate([a.T if part.transposed else a for a, part in zip(arrays, parts)], axis=-1)
            if value.shape != tuple(variable.shape):
                raise UserError(
                    f"{KEY}: {start.origin} has moments of {name} of shape {list(value.shape)}, this model has"
                    f" {list(variable.shape)}; use its bert_config and vocabulary"
                )
            moment.assign(shards.own(moment, value))
    optimizer.iterations.assign(tf.cast(state.updates, optimizer.iterations.dtype))
    logger.info("continuing after update %s of %s, with its optimizer's moments", f"{state.updates:,}", start.origin)
