"""What a run's checkpoints say, where they go, and when they are written."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

from checkpoints.folder import step_folders, step_of
from checkpoints.rotation import Rotation
from checkpoints.state import TrainingState
from checkpoints.writer import CheckpointWriter, Participant
from data_utils.records.pipeline import SampleReader
from keras_extensions.callbacks.checkpoints import Checkpoints
from training.position import Position
from training.resume import checkpoint_folder
from training.run_folder import shown_config
from training.session import Session, TrainingData
from utilities.config.schema import TrainingConfig
from utilities.environment import environment_facts

logger = logging.getLogger(__name__)

LIST_NAME = "checkpoints.json"


class Words(NamedTuple):
    """The vocabulary that belongs to the weights, and whether text is lower-cased before it; None: unknown."""

    vocabulary: Optional[Path] = None
    lower_case: Optional[bool] = None


class Saver:
    """Writes a run's checkpoints, and knows what stands in them.

    Args:
        session: the run.
        data: what it trains on.
        state: what training changes.
        position: where training begins or goes on.
        seconds: of training so far, at any moment.
    """

    def __init__(
        self,
        session: Session,
        data: TrainingData,
        state: TrainingState,
        position: Position,
        seconds: Callable[[], float],
    ) -> None:
        config = session.config
        self.position = position
        self._session = session
        self._data = data
        self._seconds = seconds
        words = words_of(session.task, data.reader)
        self._constant = constant_facts(session, words)
        self.writer: Union[CheckpointWriter, Participant] = Participant(checkpoint_folder(config, session.run), state)
        if not session.processes.is_chief:
            return
        self.writer = CheckpointWriter(
            checkpoint_folder(config, session.run),
            state,
            self._facts,
            session.run.identity or "",
            words.vocabulary,
            Rotation(config.keep_last, config.keep_every),
            self._written,
        )

    def callback(self, updates_per_execution: int, last_step: int) -> Checkpoints:
        """The Keras callback that saves, for training from the present position to the last update."""
        config, position = self._session.config, self.position
        minutes = config.checkpoint_minutes
        return Checkpoints(
            self.writer.save,
            every_n_updates=config.ckpt_every_n_steps_per_execution * updates_per_execution,
            first_step=position.step,
            every_seconds=None if minutes is None else minutes * 60,
            saved_step=None if position.checkpoint is None else position.step,
            check=self.writer.check,
            agreed=self._session.processes.chief_says,
            save_last=self.writer.save_now,
            last_step=last_step,
        )

    def position_facts(self, position: Position, step: int) -> Dict[str, Any]:
        """What a checkpoint says of its position."""
        samples = round(self._session.config.samples_per_update * self._data.plan.packing_factor)
        return position.facts(step, self._seconds(), samples, self._data.identity)

    def _facts(self, step: int) -> Dict[str, Any]:
        return {**self._constant, **self.position_facts(self.position, step)}

    def _written(self, path: Path) -> None:
        logger.info("checkpoint %s", path)
        self._session.run.write(LIST_NAME, listed(self.writer.folder))
        for listener in self._session.listeners:
            listener.wrote("checkpoint", path)


def listed(folder: Path) -> List[Dict[str, Any]]:
    """The checkpoints of a folder, for the report."""
    return [
        {
            "step": step_of(path),
            "folder": str(path),
            "megabytes": round(sum(file.stat().st_size for file in path.iterdir()) / 1e6, 1),
        }
        for path in step_folders(folder)
    ]


def constant_facts(session: Session, words: Words) -> Dict[str, Any]:
    """What every checkpoint of a run says alike: the model, the config, and on what it was trained."""
    config: TrainingConfig = session.config
    labels = list(getattr(session.task, "label_names", ()))
    return {
        "task": session.task.name,
        **({"labels": labels} if labels else {}),
        "architecture": dataclasses.asdict(session.architecture),
        "lower_case": words.lower_case,
        "seed": config.seed,
        "precision": session.platform.precision,
        "loss_scale": config.optimizer_opts.loss_scaling or 1.0,
        "config": shown_config(config),
        "provenance": {"run": session.run.path.name, "environment": environment_facts()},
    }


def words_of(task: Any, reader: SampleReader) -> Words:
    """The vocabulary of a fine-tuning task, or the one that the manifest of the data set names."""
    wording = getattr(task, "wording", None)
    if wording is not None:
        return Words(wording.vocabulary.path, wording.lower_case)
    manifest = getattr(reader, "manifest", None)
    if manifest is None:
        return Words()
    name = manifest.vocabulary.get("file")
    path = manifest.path.parent / name if isinstance(name, str) else None
    lower_case = manifest.settings.get("lower_case")
    return Words(
        path if path is not None and path.is_file() else None, lower_case if isinstance(lower_case, bool) else None
    )
