"""Going on with a run: which one, from which checkpoint, and whether it is the same run at all."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from checkpoints.folder import (
    WEIGHTS,
    Checkpoint,
    clear_unfinished,
    damage,
    read_facts,
    set_aside,
    step_folders,
    step_of,
)
from checkpoints.state import load_weights
from keras_extensions.backend import keras
from model.architecture import Architecture
from training.position import Position
from training.run_folder import RunFolder
from training.run_lock import locked
from training.unchanged import differences, free_changes, refuse_differences
from utilities.config.loading import COMMAND_LINE, LoadedConfig
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.history import HISTORY_NAME, RESUME

logger = logging.getLogger(__name__)

DAMAGED = "damaged"


class Resumed(NamedTuple):
    """A run that goes on; other runs are locked out of its folders.

    Attributes:
        run: its folder.
        position: where it goes on.
        notes: what to put into its log.
    """

    run: RunFolder
    position: Position
    notes: List[str]


class SavedState:
    """The weights of a run's own checkpoint; a :class:`training.start.Start`.

    Args:
        checkpoint: of the run.
        read: whether this process reads the weights; it may get them from another one.
    """

    def __init__(self, checkpoint: Checkpoint, read: bool = True) -> None:
        assert checkpoint.facts is not None
        self._read = read
        self._checkpoint = checkpoint
        self.origin = str(checkpoint.folder)
        self.architecture: Dict[str, Any] = checkpoint.facts["architecture"]
        self.vocabulary: Optional[Path] = checkpoint.vocabulary
        self.lower_case: Optional[bool] = checkpoint.facts.get("lower_case")

    def fill_source(self, source: keras.Model) -> None:
        """Nothing: the weights fit the converted blocks."""

    def load_blocks(self, blocks: Sequence[keras.layers.Layer]) -> None:
        """See :class:`training.start.Start`."""
        if self._read:
            load_weights(self._checkpoint, blocks)


def run_to_resume(loaded: LoadedConfig, held: contextlib.ExitStack) -> Optional[Resumed]:
    """The run that goes on; None where a new one begins.

    With ``resume``, that is the run ``output_dir/name``. Without, it is too if its name was typed on the command line,
    it has not ended, and the config would not change its outcome: the same command again goes on.

    Args:
        loaded: the config.
        held: gets the locks of the run's folders.

    Raises:
        UserError: there is nothing to resume, or not with this config, or another process is at it.
    """
    config = loaded.config
    run = RunFolder(Path(config.output_dir) / str(config.name))
    recorded = run.recorded_config() if run.path.is_dir() else None
    if not config.resume:
        typed = loaded.origins["name"] == COMMAND_LINE
        if not typed or recorded is None or run.identity is None or run.history.finished:
            return None
        if run.task != loaded.task or differences(config, recorded):
            return None
    if recorded is None or run.identity is None:
        raise UserError(f"resume: there is no run to go on with in {run.path}; {_others(run.path)}")
    if run.task != loaded.task:
        raise UserError(f"resume: {run.path} is a run of {run.task}, not of {loaded.task}; name another one")
    refuse_differences(config, recorded, str(run.path))
    held.enter_context(locked(run.path))
    folders = checkpoint_folders(config, recorded, run)
    if config.save_ckpt_path:
        lock_folder(Path(config.save_ckpt_path), held)
    position, notes = position_of(folders, run)
    return Resumed(run, position, notes)


def new_run(loaded: LoadedConfig, held: contextlib.ExitStack) -> RunFolder:
    """A folder for a run that begins.

    Args:
        loaded: the config.
        held: gets the locks of the run's folders.

    Raises:
        UserError: it cannot be made, or the folder for checkpoints is another run's.
    """
    config = loaded.config
    if config.save_ckpt_path:
        folder = Path(config.save_ckpt_path)
        lock_folder(folder, held)
        if step_folders(folder):
            raise UserError(
                f"save_ckpt_path: {folder} holds the checkpoints of another run; name an empty folder, or go on with"
                " that run: --name NAME --resume"
            )
    run = RunFolder.create(config.output_dir, str(config.name), loaded.task)
    held.enter_context(locked(run.path))
    return run


def lock_folder(folder: Path, held: contextlib.ExitStack) -> None:
    """Make a folder if need be, and keep other runs out of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"save_ckpt_path: cannot make {folder} ({error.strerror}); name another folder") from error
    held.enter_context(locked(folder))


def checkpoint_folder(config: TrainingConfig, run: RunFolder) -> Path:
    """Where a run's checkpoints are written."""
    return Path(config.save_ckpt_path) if config.save_ckpt_path else run.checkpoints


def checkpoint_folders(config: TrainingConfig, recorded: Dict[str, Any], run: RunFolder) -> List[Path]:
    """Where checkpoints of a run may lie: where they are to be written, and where they were."""
    before = recorded.get("save_ckpt_path")
    folders = [checkpoint_folder(config, run), Path(before) if before else run.checkpoints]
    return list(dict.fromkeys(folders))


def position_of(folders: Sequence[Path], run: RunFolder) -> Any:
    """The position of the newest whole checkpoint of a run, and notes for its log.

    Damaged checkpoints are renamed, so that they stay and nothing takes them for whole.

    Raises:
        UserError: there are checkpoints, but no whole one.
    """
    notes: List[str] = []
    candidates = []
    for folder in folders:
        clear_unfinished(folder)
        candidates += [(step_of(path), path) for path in step_folders(folder)]
    for _, path in sorted(candidates, reverse=True):
        problem = damage(path)
        if problem is not None:
            kept = set_aside(path, DAMAGED)
            notes.append(f"checkpoint {path} is damaged ({problem}); kept as {kept.name}, taking the one before it")
            continue
        facts = read_facts(path)
        if facts.get("run") == run.identity:
            return Position.of(Checkpoint(path / WEIGHTS, facts)), notes
    broken = [path for folder in folders for path in folder.glob(f"{DAMAGED}-*")]
    if broken:
        raise UserError(
            f"resume: no checkpoint of {run.path} is whole (damaged: {', '.join(map(str, sorted(broken)))}); begin a"
            " new run under another --name"
        )
    notes.append("no checkpoint was written before the run ended; it begins again")
    return Position(), notes


def resumed_architecture(config: TrainingConfig, start: SavedState) -> Architecture:
    """The architecture of the run, computed as the config says now."""
    trained = Architecture(**start.architecture)
    factor, kernel = config.embedding_serialization_factor, config.sparsity.kernel
    return dataclasses.replace(trained, embedding_serialization_factor=factor, sparsity_kernel=kernel)


def check_same_data(position: Position, identity: str, config: TrainingConfig) -> None:
    """
    Raises:
        UserError: the run was begun on other data.
    """
    if position.checkpoint is None or position.checkpoint.facts is None:
        return
    if position.checkpoint.facts["data"]["identity"] != identity:
        raise UserError(
            f"dataset_dir: {config.dataset_dir} does not hold the data that the run was begun with; name that data, or"
            " begin a new run under another --name"
        )


def check_same_precision(position: Position, precision: str) -> None:
    """
    Raises:
        UserError: the run was begun in another number format.
    """
    facts = (position.checkpoint.facts if position.checkpoint is not None else None) or {}
    begun = facts.get("precision", precision)
    if begun != precision:
        raise UserError(
            f"resume: the run was begun in {begun}, and would go on in {precision}; set execution.precision to {begun},"
            " or begin a new run from its weights: --pretrained-ckpt-path"
        )


def go_on(resumed: Resumed, config: TrainingConfig) -> None:
    """Take back what was logged after the position, and write into log and history that, and from where, it goes on."""
    run, position = resumed.run, resumed.position
    run.forget_after(position.step)
    for note in resumed.notes:
        logger.warning(note)
    changes = free_changes(config, run.recorded_config() or {})
    source = position.checkpoint.folder if position.checkpoint is not None else None
    run.history.add(
        RESUME,
        position.step,
        checkpoint=None if source is None else source.name,
        changed={name: list(values) for name, values in changes.items()},
        notes=resumed.notes,
    )
    if source is not None:
        logger.info("going on from step %s, saved in %s", f"{position.step:,}", source)
    for name, (before, now) in changes.items():
        logger.info("%s is %s now and was %s", name, now, before)


def _others(folder: Path) -> str:
    begun = sorted(folder.parent.glob(f"*/{HISTORY_NAME}"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = ", ".join(path.parent.name for path in begun[:8])
    return f"the last runs in {folder.parent}: {names}" if names else f"{folder.parent} has no runs"
