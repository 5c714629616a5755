"""The checkpoints of a run: their content, when they are written, and rewinding after a divergence."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from checkpoints.folder import (
    BEST,
    USUAL_LENGTH,
    Checkpoint,
    damage,
    folder_name,
    parse_step,
    read_checkpoint,
    run_of,
    set_aside,
    step_folders,
)
from checkpoints.state import TrainingState
from checkpoints.writer import CheckpointWriter, Rotation, rewrite_description
from data_utils.records.order import select_batch
from data_utils.records.pipeline import SampleReader
from data_utils.tokenizer import read_vocabulary
from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from keras_extensions.listeners.safeguards import DivergenceError
from training.resume import Position
from training.run_context import RunContext, TrainingData
from training.run_folder import config_for_files
from utilities.environment import describe_environment
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.history import REWIND
from utilities.run_names import CHECKPOINT_LIST

logger = logging.getLogger(__name__)

DIVERGED = "diverged"


class RunCheckpoints:
    """Writes and finds the checkpoints of a run; ``position`` is where training began, or continued after a rewind."""

    def __init__(
        self, context: RunContext, data: TrainingData, state: TrainingState, seconds: Callable[[], float]
    ) -> None:
        config = context.config
        self.position = context.position
        self._context = context
        self._data = data
        self._seconds = seconds
        vocabulary, lower_case = text_settings(context.task, data.reader)
        self._constant_description = constant_description(context, lower_case)
        self.writer = CheckpointWriter(
            context.run.checkpoints(config.save_ckpt_path),
            state,
            self._description,
            context.run.identity or "",
            Rotation(config.keep_last, config.keep_every),
            vocabulary,
            self._on_written,
            context.processes.is_chief,
        )

    def timer(self) -> CheckpointTimer:
        """Return what saves checkpoints from the current position to the end."""
        config, position, plan = self._context.config, self.position, self._data.plan
        processes, minutes = self._context.processes, config.checkpoint_minutes
        return CheckpointTimer(
            self.writer.save,
            every_n_updates=config.ckpt_every_n_steps_per_execution * plan.updates_per_period,
            first_step=position.step,
            every_seconds=None if minutes is None else minutes * 60,
            saved_step=None if position.checkpoint is None else position.step,
            check=self.writer.check,
            agree=lambda due: bool(processes.maximum(due and processes.is_chief)),
            save_last=self.writer.save_now,
            last_step=plan.updates,
        )

    def keep_as_best(self, step: int) -> None:
        """Keep the checkpoint of a step, which is being written or will be, until there is a better one."""
        self.writer.best = step
        if self._context.processes.is_chief:
            self.writer.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.writer.folder / BEST, json.dumps({"step": step}) + "\n")

    def best(self) -> Optional[Checkpoint]:
        """Return the best checkpoint; None without evaluation while training, or if it is damaged."""
        return best_checkpoint(self._context, self.writer.best)

    def existing(self) -> List[Path]:
        """Return the run's checkpoints; see :func:`existing_checkpoints`."""
        return existing_checkpoints(self._context)

    def newest_until(self, step: int) -> Optional[Checkpoint]:
        """Return the newest intact checkpoint of at most ``step`` updates."""
        for path in reversed(self.existing()):
            if parse_step(path) <= step and damage(path) is None:
                return read_checkpoint(path)
        return None

    def _description(self, step: int) -> Dict[str, Any]:
        samples = round(self._context.config.samples_per_update * self._data.plan.packing_factor)
        return {
            **self._constant_description,
            **self.position.description(step, self._seconds(), samples, self._data.identity),
        }

    def _on_written(self, path: Path) -> None:
        logger.info("checkpoint %s", path)
        self._context.run.write(CHECKPOINT_LIST, list_checkpoints(self.writer.folder))
        for listener in self._context.listeners:
            listener.wrote("checkpoint", path)


def existing_checkpoints(context: RunContext) -> List[Path]:
    """Return a run's checkpoints by step, without those of other runs, which may use an earlier folder now."""
    folder, resumed = context.run.checkpoints(context.config.save_ckpt_path), context.position.checkpoint
    given = [folder, context.run.checkpoints(), *([] if resumed is None else [resumed.folder.parent])]
    folders = dict.fromkeys(Path(os.path.realpath(path)) for path in given)
    paths = (path for folder in folders for path in step_folders(folder))
    return sorted((path for path in paths if run_of(path) in (None, context.run.identity)), key=parse_step)


def best_checkpoint(context: RunContext, step: Optional[int]) -> Optional[Checkpoint]:
    """Return the checkpoint of ``step``, which is the best one; None without a step, or if it is damaged."""
    if step is None:
        return None
    missing = context.run.checkpoints(context.config.save_ckpt_path) / folder_name(step)
    path = next((path for path in existing_checkpoints(context) if parse_step(path) == step), missing)
    problem = damage(path)
    if problem is None:
        return read_checkpoint(path)
    logger.warning("the best checkpoint, %s, is damaged (%s); using the last state instead", path, problem)
    return None


def list_checkpoints(folder: Path) -> List[Dict[str, Any]]:
    """Describe the checkpoints in a folder, for the report."""
    return [
        {
            "step": parse_step(path),
            "folder": str(path),
            "megabytes": round(sum(file.stat().st_size for file in path.iterdir()) / 1e6, 1),
        }
        for path in step_folders(folder)
    ]


def constant_description(context: RunContext, lower_case: Optional[bool]) -> Dict[str, Any]:
    """Return what the descriptions of all checkpoints of a run share: the model, the config, and the provenance."""
    config = context.config
    labels = list(getattr(context.task, "label_names", ()))
    return {
        "task": context.task.name,
        **({"labels": labels} if labels else {}),
        "architecture": dataclasses.asdict(context.architecture),
        "trained_positions": context.trained_positions,
        **({USUAL_LENGTH: max(config.max_seq_length, context.trained_positions)} if context.fits_data else {}),
        "lower_case": lower_case,
        "seed": config.seed,
        "precision": context.platform.precision,
        "loss_scale": config.optimizer_opts.loss_scaling or 1.0,
        "config": config_for_files(config),
        "provenance": {"run": context.run.path.name, "environment": describe_environment()},
    }


def text_settings(task: Any, reader: SampleReader) -> Tuple[Optional[Dict[str, bytes]], Optional[bool]]:
    """Return the files of the vocabulary of a task or data set, and whether text is lower-cased; None: unknown."""
    settings = getattr(task, "tokenizer_settings", None)
    if settings is not None:
        return settings.vocabulary.files(settings.lower_case), settings.lower_case
    manifest = getattr(reader, "manifest", None)
    if manifest is None:
        return None, None
    given, path = manifest.settings.get("lower_case"), manifest.vocabulary_path
    lower_case = given if isinstance(given, bool) else None
    return None if path is None else read_vocabulary(path).files(lower_case), lower_case


def rewind(context: RunContext, checkpoints: RunCheckpoints, error: DivergenceError) -> Position:
    """Go back to a checkpoint after a divergence, and leave out the batches that may have caused it.

    The batches of the logging period that showed the divergence are left out, and the batch before: the loss of an
    update is computed with the weights of the previous update, which may therefore be the cause. For the same reason, a
    checkpoint that was written right before the period is used only if there is no older one.

    When this function returns, everything that a resume needs is on disk: the checkpoint that training goes back to
    records the batches left out, and later checkpoints are renamed. No write may be in progress.
    """
    config, position = context.config, checkpoints.position
    if position.rewinds >= config.max_rewinds:
        raise UserError(
            f"{error.reason} at step {error.step}, after {position.rewinds} rewinds: training diverges repeatedly"
            " (max_rewinds); lower optimizer_opts.learning_rate.max_learning_rate, or set"
            " optimizer_opts.max_gradient_norm"
        ) from error
    first = error.step - error.updates
    target = checkpoints.newest_until(max(first - 1, 0)) or checkpoints.newest_until(first)
    if target is None:
        raise UserError(
            f"{error.reason} at step {error.step}: training diverged, and there is no earlier checkpoint to go back"
            f" to; raise keep_last ({config.keep_last}), or lower optimizer_opts.learning_rate.max_learning_rate"
        ) from error
    assert target.description is not None
    step = target.description["step"]
    suspects = [select_batch(update, position.skipped) for update in range(max(first - 1, step), error.step)]
    skipped = tuple(sorted({*position.skipped, *suspects}))
    new_position = dataclasses.replace(Position.of(target), skipped=skipped, rewinds=position.rewinds + 1)
    for path in checkpoints.existing():
        if parse_step(path) > step:
            set_aside(path, DIVERGED)
    data = {**target.description["data"], "skipped_batches": list(skipped)}
    rewrite_description(target.folder, {"data": data, "rewinds": new_position.rewinds})
    context.run.discard_metrics_after(step)
    context.run.history.add(REWIND, error.step, to=step, reason=error.reason, skipped=suspects)
    logger.warning(
        "%s at step %d: back to step %d, leaving out the global batches %s (rewind %d of at most %d)",
        error.reason,
        error.step,
        step,
        ", ".join(map(str, suspects)),
        new_position.rewinds,
        config.max_rewinds,
    )
    return new_position
