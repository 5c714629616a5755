"""Back to a checkpoint after a divergence, and past the batches that led to it."""

from __future__ import annotations

import dataclasses
import logging
from typing import Optional

from checkpoints.folder import (
    WEIGHTS,
    Checkpoint,
    damage,
    read_facts,
    rewrite_facts,
    set_aside,
    step_folders,
    step_of,
)
from data_utils.records.order import batch_of
from keras_extensions.callbacks.divergence import DivergenceError
from training.position import Position
from training.saving import Saver
from training.session import Session
from utilities.errors import UserError
from utilities.history import REWIND

logger = logging.getLogger(__name__)

DIVERGED = "diverged"


def rewind(session: Session, saver: Saver, error: DivergenceError) -> Position:
    """Where training goes on after a divergence.

    The batches left out are those of the logging period that showed it, and the one before: the loss of an update is
    computed with the weights that the update before it left, so that one may be at fault. For the same reason a
    checkpoint that was written right before the period is not trusted where there is an older one.

    Everything that a resume needs is on disk before this returns: the skipped batches stand in the checkpoint that is
    gone back to, the later ones are renamed.

    Args:
        session: the run.
        saver: of its checkpoints; nothing is being written.
        error: what was seen.

    Raises:
        UserError: the config says to stop, the run went back too often, or there is no checkpoint to go back to.
    """
    config, position = session.config, saver.position
    if config.on_divergence != "rewind":
        raise error
    if position.rewinds >= config.max_rewinds:
        raise UserError(
            f"{error.reason} at step {error.step}, after {position.rewinds} rewinds: training diverges again and again"
            " (max_rewinds); lower optimizer_opts.learning_rate.max_learning_rate, or set"
            " optimizer_opts.max_gradient_norm"
        ) from error
    first = error.step - error.updates
    target = newest_until(saver, max(first - 1, 0)) or newest_until(saver, first)
    if target is None or target.facts is None:
        raise error
    step = target.facts["step"]
    suspects = [batch_of(update, position.skipped) for update in range(max(first - 1, step), error.step)]
    after = dataclasses.replace(
        Position.of(target), skipped=tuple(sorted({*position.skipped, *suspects})), rewinds=position.rewinds + 1
    )
    for path in step_folders(saver.writer.folder):
        if step_of(path) > step:
            set_aside(path, DIVERGED)
    rewrite_facts(target.folder, saver.position_facts(after, step))
    session.run.forget_after(step)
    session.run.history.add(REWIND, error.step, to=step, reason=error.reason, skipped=suspects)
    logger.warning(
        "%s at step %d: back to step %d, leaving out the global batches %s (rewind %d of at most %d)",
        error.reason,
        error.step,
        step,
        ", ".join(map(str, suspects)),
        after.rewinds,
        config.max_rewinds,
    )
    return after


def newest_until(saver: Saver, step: int) -> Optional[Checkpoint]:
    """The newest whole checkpoint of at most so many updates."""
    for path in reversed(step_folders(saver.writer.folder)):
        if damage(path) is None:
            facts = read_facts(path)
            if facts["step"] <= step:
                return Checkpoint(path / WEIGHTS, facts)
    return None
