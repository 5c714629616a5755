"""Resumes a run: finds the run and the checkpoint, and checks the data; ``same_config`` checks the config."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from checkpoints.folder import (
    Checkpoint,
    clear_unfinished,
    damage,
    parse_step,
    read_checkpoint,
    run_of,
    set_aside,
    step_folders,
)
from settings.loading import LoadedConfig
from settings.problems import TYPED
from teacher.identity import check_same_teacher  # room: teacher
from training.run_folder import FolderLocks, RunFolder
from training.same_config import changed_fields, check_same_config, differences
from utilities.environment import describe_start
from utilities.errors import UserError
from utilities.history import HISTORY_NAME, RESUME
from utilities.run_names import CHECKPOINT_LIST, METRICS

logger = logging.getLogger(__name__)

DAMAGED = "damaged"


@dataclasses.dataclass(frozen=True)
class Position:
    """The position where training begins or resumes. With weights and optimizer, it suffices for an exact resume.

    The data of an update is a function of the seed, the number of the update, and ``skipped``, the ascending numbers of
    the global batches left out after a divergence; see :func:`data_utils.records.pipeline.training_dataset`.
    """

    step: int = 0
    skipped: Tuple[int, ...] = ()
    rewinds: int = 0
    seconds: float = 0.0
    checkpoint: Optional[Checkpoint] = None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Position:
        """Return the position at which a checkpoint was written."""
        description = checkpoint.description
        assert description is not None, "a plain TensorFlow checkpoint has no position"
        skipped = tuple(description["data"]["skipped_batches"])
        return cls(description["step"], skipped, description["rewinds"], description["seconds"], checkpoint)

    def description(self, step: int, seconds: float, samples_per_update: int, identity: str) -> Dict[str, Any]:
        """Return the position as a part of a checkpoint's description; ``identity`` is the checksum of the data."""
        return {
            "data": {
                "updates": step,
                "samples_per_update": samples_per_update,
                "skipped_batches": list(self.skipped),
                "identity": identity,
            },
            "rewinds": self.rewinds,
            "seconds": round(seconds, 3),
        }


class Resumed(NamedTuple):
    """A run to resume, whose folders are locked."""

    run: RunFolder
    position: Position
    notes: List[str]


def run_to_resume(loaded: LoadedConfig, locks: FolderLocks) -> Optional[Resumed]:
    """Find and lock the run to resume; None if a new one begins.

    With ``resume`` that is the run ``output_dir/name``. Without ``resume``, a run whose name was given by flag or by
    call is resumed if it has not ended and the config would not change its outcome: repeating a command resumes its
    run, including one whose name got a number.
    """
    config, run = loaded.config, named_run(loaded)
    if not config.resume:
        unfinished = _unfinished(loaded, run) if loaded.origins["name"] in TYPED else None
        if unfinished is None:
            return None
        run = unfinished
    recorded = config_to_resume(loaded, run)
    locks.lock(run.path)
    if config.save_ckpt_path:
        _lock_checkpoints(Path(config.save_ckpt_path), locks)
    own = list(dict.fromkeys([run.checkpoints(config.save_ckpt_path), run.checkpoints()]))
    earlier = recorded.get("save_ckpt_path")
    position, notes = newest_position(own, run, [run.checkpoints(earlier)] if isinstance(earlier, str) else [])
    return Resumed(run, position, notes)


def named_run(loaded: LoadedConfig) -> RunFolder:
    """Return the run ``output_dir/name``, whether it exists or not."""
    return RunFolder(Path(loaded.config.output_dir) / str(loaded.config.name))


def config_to_resume(loaded: LoadedConfig, run: RunFolder) -> Dict[str, Any]:
    """Return the recorded config of a run that the present config can resume; any other run is refused."""
    if not run.path.is_dir():
        raise UserError(f"resume: there is no run to resume in {run.path}; {_other_runs(run.path)}")
    recorded = run.recorded_config()
    if run.task != loaded.task:
        raise UserError(f"resume: {run.path} is a run of {run.task}, not of {loaded.task}; name another one")
    check_same_config(loaded.config, recorded, str(run.path))
    return recorded


def _unfinished(loaded: LoadedConfig, first: RunFolder) -> Optional[RunFolder]:
    """Return the newest of the runs of a name, numbered or not, that the same command would continue."""
    for run in reversed(first.same_named()):
        if run.history.finished or run.task != loaded.task:
            continue
        with contextlib.suppress(UserError):  # log_new_name reports it
            if not differences(loaded.config, run.recorded_config()):
                return run
    return None


def new_run(loaded: LoadedConfig, locks: FolderLocks) -> RunFolder:
    """Create and lock the folder of a new run."""
    config = loaded.config
    if config.save_ckpt_path:
        folder = Path(config.save_ckpt_path)
        _lock_checkpoints(folder, locks)
        if step_folders(folder):
            raise UserError(
                f"save_ckpt_path: {folder} contains the checkpoints of another run; name an empty folder, or resume"
                " that run: --name NAME --resume"
            )
    run = RunFolder.create(config.output_dir, str(config.name), loaded.task)
    locks.lock(run.path)
    return run


def log_new_name(loaded: LoadedConfig, run: RunFolder) -> None:
    """Log why a new run has another name than the given one."""
    first = RunFolder(run.path.with_name(str(loaded.config.name)))
    if run.path != first.path and loaded.origins["name"] in TYPED:
        state = "has ended" if first.history.finished else "is not continued by this config"
        try:
            first.recorded_config()
        except UserError as error:
            state = f"cannot be resumed ({error})"
        logger.info("%s %s; the name of this run is %s", first.path, state, run.path.name)


def _lock_checkpoints(folder: Path, locks: FolderLocks) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"save_ckpt_path: cannot make {folder} ({error.strerror}); name another folder") from error
    locks.lock(folder)


def newest_position(
    folders: Sequence[Path], run: RunFolder, earlier: Sequence[Path] = ()
) -> Tuple[Position, List[str]]:
    """Return the position of a run's newest intact checkpoint, and notes for its log.

    Damaged checkpoints are never used; those in ``folders`` are renamed.

    New checkpoints will be written into the first of the locked ``folders``. The ``earlier`` folders, of earlier
    configs, are only read, because another run may be writing to them.
    """
    notes: List[str] = []
    broken = []
    for folder in folders:
        clear_unfinished(folder)
    everywhere = list(dict.fromkeys([*folders, *earlier]))
    candidates = [(parse_step(path), path) for folder in everywhere for path in step_folders(folder)]
    for path in step_folders(folders[0]):
        if run_of(path) not in (None, run.identity):
            raise UserError(
                f"resume: the checkpoints in {folders[0]} are of another run than {run.path}; name another folder with"
                " --save-ckpt-path, or begin a new run under another --name"
            )
    for _, path in sorted(candidates, reverse=True):
        problem = damage(path)
        if problem is not None:
            renamed = ""
            if path.parent in folders:
                renamed = f"renamed to {set_aside(path, DAMAGED).name}, "
            else:
                broken.append(path)
            notes.append(f"checkpoint {path} is damaged ({problem}); {renamed}using the one before it")
            continue
        if run_of(path) == run.identity:
            return Position.of(read_checkpoint(path)), notes
    broken += [path for folder in everywhere for path in folder.glob(f"{DAMAGED}-*")]
    if broken:
        raise UserError(
            f"resume: no checkpoint of {run.path} is intact (damaged: {', '.join(map(str, sorted(broken)))}); begin a"
            " new run under another --name"
        )
    if (run.path / CHECKPOINT_LIST).exists():
        raise UserError(
            f"resume: {run.path} has written checkpoints ({CHECKPOINT_LIST}), but none of them exists; restore them,"
            " name their folder with --save-ckpt-path, or begin a new run under another --name"
        )
    notes.append("no checkpoint was written before the run ended; it starts from the beginning")
    return Position(), notes


def check_same_data(position: Position, identity: str, dataset_dir: Optional[str]) -> None:
    if position.checkpoint is None or position.checkpoint.description is None:
        return
    begun = position.checkpoint.description["data"]["identity"]
    check_same_teacher(begun, identity)  # room: teacher
    if begun != identity:
        raise UserError(
            f"{data_name(dataset_dir)} is not the data that the run was begun with; name that data, or begin a new run"
            " under another --name"
        )


def data_name(dataset_dir: Optional[str]) -> str:
    return "the data set" if dataset_dir is None else f"dataset_dir: {dataset_dir}"


def check_same_precision(position: Position, precision: str) -> None:
    description = (position.checkpoint.description if position.checkpoint is not None else None) or {}
    begun = description.get("precision", precision)
    if begun != precision:
        raise UserError(
            f"resume: the run was begun in {begun}, and would continue in {precision}; set execution.precision to"
            f" {begun}, or begin a new run from its weights: --pretrained-ckpt-path"
        )


def record_resume(resumed: Resumed, present: Mapping[str, Any]) -> None:
    """Discard metrics after the position, and record the resume, by the present config, in the log and the history."""
    run, position = resumed.run, resumed.position
    notes = [*resumed.notes, *missing_metrics(run, position.step)]
    run.discard_metrics_after(position.step)
    for note in notes:
        logger.warning(note)
    changes = changed_fields(present, run.recorded_config())
    source = position.checkpoint.folder if position.checkpoint is not None else None
    run.history.add(
        RESUME,
        position.step,
        checkpoint=None if source is None else source.name,
        changed={name: list(values) for name, values in changes.items()},
        notes=notes,
        **describe_start(),
    )
    if source is not None:
        logger.info("resuming from step %s, saved in %s", f"{position.step:,}", source)
    for name, (before, now) in changes.items():
        logger.info("%s is %s now and was %s", name, now, before)


def missing_metrics(run: RunFolder, step: int) -> List[str]:
    """Return a note if metrics.jsonl lacks the last logging periods before ``step``."""
    path, last = run.path / METRICS, run.last_step()
    if last >= step:
        return []
    state = f"ends at step {last:,}" if path.exists() else "is missing"
    return [f"{path} {state}: losses and evaluations until step {step:,} are lost, and curves will lack them"]


def _other_runs(folder: Path) -> str:
    begun = sorted(folder.parent.glob(f"*/{HISTORY_NAME}"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = ", ".join(path.parent.name for path in begun[:8])
    return f"the last runs in {folder.parent}: {names}" if names else f"{folder.parent} has no runs"
