"""What a checkpoint is on disk, and which one of a folder to take.

    <checkpoints>/step-00000120/
        weights.index, weights.data-…       TensorFlow's format, one object per block
        optimizer.index, optimizer.data-…
        checkpoint.json                     step, task, architecture, SHA-256 of every other file

A checkpoint is written under a temporary name, flushed to disk and renamed, so a folder named ``step-…`` is complete.
Nothing here imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from utilities.errors import UserError

logger = logging.getLogger(__name__)

DESCRIPTION = "checkpoint.json"
WEIGHTS = "weights"
OPTIMIZER = "optimizer"
FORMAT = "bert-checkpoint"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to read weights from.

    Attributes:
        weights: prefix of the TensorFlow checkpoint of the weights.
        facts: content of checkpoint.json; None for a bare TensorFlow checkpoint.
    """

    weights: Path
    facts: Optional[Dict[str, Any]]


@contextlib.contextmanager
def writing(folder: Path, step: int, facts: Dict[str, Any]) -> Iterator[Path]:
    """Where to write the files of a checkpoint; on leaving, it becomes ``step-…`` at once.

    Args:
        folder: of all checkpoints of the run; made if absent.
        step: weight updates done.
        facts: goes into checkpoint.json.
    """
    final = folder / f"step-{step:08d}"
    temporary = folder / f".writing-{final.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        description = {"format": FORMAT, "version": 1, "step": step, **facts, "files": files}
        (temporary / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        for path in [*temporary.iterdir(), temporary]:
            flush(path)
        if final.exists():
            shutil.rmtree(final)
        os.replace(temporary, final)
        flush(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        raise UserError(f"save_ckpt_path: cannot write {final} ({reason}); free space there or change it") from error


def flush(path: Path) -> None:
    """Force a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint that a path means.

    Args:
        path: a run's folder or its folder of checkpoints (the newest whole one is taken), one checkpoint's folder, or a
            file or prefix of a TensorFlow checkpoint.

    Raises:
        UserError: there is no checkpoint, or none that is whole.
    """
    if path.is_dir():
        if (path / DESCRIPTION).is_file():
            problem = damage(path)
            if problem:
                raise UserError(f"pretrained_ckpt_path: {path} is damaged ({problem}); name another checkpoint")
            return Checkpoint(path / WEIGHTS, read_facts(path))
        return newest(path)
    prefix = path.with_suffix("") if path.suffix == ".index" else path
    if Path(f"{prefix}.index").is_file():
        facts = read_facts(prefix.parent) if (prefix.parent / DESCRIPTION).is_file() else None
        return Checkpoint(prefix, facts)
    raise UserError(f"pretrained_ckpt_path: there is no checkpoint at {path}; give a folder or a file that exists")


def newest(folder: Path) -> Checkpoint:
    """The newest whole checkpoint of a run's folder or of its folder of checkpoints; damaged ones are named."""
    inner = folder / "checkpoints"
    folder = inner if inner.is_dir() else folder
    for candidate in sorted(folder.glob("step-*"), reverse=True):
        problem = damage(candidate)
        if problem is None:
            return Checkpoint(candidate / WEIGHTS, read_facts(candidate))
        logger.warning("checkpoint %s is damaged (%s); trying the one before it", candidate, problem)
    bare = newest_tensorflow(folder)
    if bare is None:
        raise UserError(f"pretrained_ckpt_path: {folder} holds no whole checkpoint; name a folder that does")
    return Checkpoint(bare, None)


def newest_tensorflow(folder: Path) -> Optional[Path]:
    """Prefix of the newest bare TensorFlow checkpoint in a folder, by time."""
    indices: List[Path] = sorted(folder.glob("*.index"), key=lambda path: (path.stat().st_mtime, path.name))
    return indices[-1].with_suffix("") if indices else None


def damage(checkpoint: Path) -> Optional[str]:
    """What is wrong with a checkpoint folder; None if it is whole."""
    try:
        facts = read_facts(checkpoint)
    except UserError as error:
        return str(error)
    for name, checksum in facts["files"].items():
        try:
            if sha256(checkpoint / name) != checksum:
                return f"{name} does not have the recorded SHA-256"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return None


def read_facts(checkpoint: Path) -> Dict[str, Any]:
    """The content of checkpoint.json."""
    path = checkpoint / DESCRIPTION
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT or not isinstance(facts["files"], dict):
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}); name another checkpoint") from error
    return facts
