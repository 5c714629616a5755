"""A run of several processes: what the chief does for all, and what the others leave alone.

The chief, process 0, alone writes: the run's folder, its log, metrics and checkpoints. It decides which run it is and
where it goes on; the others are told. They need no access to the run's folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

from checkpoints.folder import Checkpoint
from execution.select import processes_for
from execution.software.cluster.processes import Processes
from keras_extensions.backend import tf
from keras_extensions.callbacks.signals import StopRequest
from training.position import Position
from training.run_folder import RunFolder
from utilities.config.figures import micro_batches
from utilities.config.schema import TrainingConfig
from utilities.errors import ReplicaLostError, Stopped, UserError
from utilities.secrets import MaskingFormatter

Value = TypeVar("Value")


def processes_of(config: TrainingConfig) -> Processes:
    """The processes that the environment names, or that PopRun started.

    Raises:
        UserError: they cannot share an update evenly.
    """
    processes = processes_for(config.execution.platform)
    parts = micro_batches(config)
    if parts % processes.count:
        batch = config.global_batch
        raise UserError(
            f"global_batch: {processes.count} processes cannot share {parts:,} micro batches evenly ({batch.replicas}"
            f" replicas × {batch.grad_acc_steps_per_replica} grad_acc_steps_per_replica); start a number of processes"
            " that divides them, or change grad_acc_steps_per_replica"
        )
    return processes


@contextlib.contextmanager
def ended_together(processes: Processes, stop: StopRequest, name: Callable[[], Optional[str]]) -> Iterator[None]:
    """Around all that a process does: when another one is lost, this one ends with a line that names it.

    Args:
        stop: whether someone asked this process to stop.
        name: of the run, once it has one.

    Raises:
        ReplicaLostError: another process is gone.
        Stopped: all were asked to stop; only the chief has something to tell then.
    """
    if processes.is_alone:
        yield
        return
    try:
        yield
    except Stopped as error:
        raise Stopped(str(error), error.run, told=processes.is_chief) from None
    except tf.errors.OpError as error:
        lost = processes.lost(error)
        if lost is None:
            raise
        if stop.signal is not None:
            raise Stopped(f"stopped by {stop.signal}", told=processes.is_chief) from None
        raise ReplicaLostError(lost, processes.index, name() or "") from error


def by_chief(processes: Processes, make: Callable[[], Value]) -> Optional[Value]:
    """What the chief alone makes; None to the others.

    Raises:
        UserError: in all processes, what kept the chief from it.
    """
    made: List[Value] = []
    processes.decided(lambda: made.append(make()))
    return made[0] if made else None


def agreed_position(processes: Processes, position: Callable[[], Optional[Position]]) -> Optional[Position]:
    """The position that the chief names; None where it names none."""
    if processes.is_alone:
        return position()
    told: Optional[Dict[str, Any]] = processes.decided(lambda: as_json(position()))
    return None if told is None else from_json(told)


def as_json(position: Optional[Position]) -> Optional[Dict[str, Any]]:
    """A position as JSON holds it."""
    if position is None:
        return None
    checkpoint = position.checkpoint
    content = {"step": position.step, "skipped": list(position.skipped), "rewinds": position.rewinds}
    state = None if checkpoint is None else {"weights": str(checkpoint.weights), "facts": checkpoint.facts}
    return {**content, "seconds": position.seconds, "checkpoint": state}


def from_json(content: Dict[str, Any]) -> Position:
    """The position again."""
    state = content["checkpoint"]
    checkpoint = None if state is None else Checkpoint(Path(state["weights"]), state["facts"])
    position = Position(content["step"], tuple(content["skipped"]), content["rewinds"], content["seconds"])
    return dataclasses.replace(position, checkpoint=checkpoint)


def run_folder(processes: Processes, make: Callable[[], RunFolder], held: contextlib.ExitStack) -> RunFolder:
    """The run's folder, made by the chief; to the others one of the same name for the time of the run.

    Args:
        held: removes that of the others.
    """
    made = by_chief(processes, make)
    name = processes.decided(lambda: made.path.name if made else "")
    if made is not None:
        return made
    path = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="replica-"))) / name
    path.mkdir()
    return RunFolder(path)


@contextlib.contextmanager
def replica_log(index: int) -> Iterator[None]:
    """For the time of a run, warnings and errors alone, with the replica's number, where log lines go."""
    root = logging.getLogger()
    level, formats = root.level, [(handler, handler.formatter) for handler in root.handlers]
    for handler, _ in formats:
        handler.setFormatter(MaskingFormatter(f"replica {index}: %(levelname)s %(message)s"))
    root.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, formatter in formats:
            handler.setFormatter(formatter)
