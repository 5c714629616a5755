"""Checkpoint folders: their files, their verification, and the choice of one checkpoint among several.

    <checkpoints>/step-00000120/
        weights.index, weights.data-…       TensorFlow's format, one object per block
        optimizer.index, optimizer.data-…
        vocab.txt                           vocabulary of the data set, if it names one
        checkpoint.json                     the description: step, task, architecture, position in the data, seed,
                                            config, provenance, SHA-256 of every other file and of itself

A folder named ``step-…`` is always complete, because ``checkpoints.writer`` renames it last. This module does not
import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from utilities.errors import UserError
from utilities.files import json_digest, sha256

logger = logging.getLogger(__name__)

DESCRIPTION = "checkpoint.json"
BEST = "best.json"  # in the folder of all checkpoints: the step of the best one, if there were evaluations in training
WEIGHTS = "weights"
OPTIMIZER = "optimizer"
VOCABULARY = "vocab.txt"
USUAL_LENGTH = "usual_length"  # in a description: tokens of a text to predict, if not the run's max_seq_length
FORMAT = "bert-checkpoint"
VERSION = 2

_NAME = re.compile(r"step-(\d{8,})")
_NEWEST = re.compile(r'^model_checkpoint_path: *"(.+)"', re.MULTILINE)  # in TensorFlow's file "checkpoint"
_LAST_NUMBER = re.compile(r"\d+(?=(\.ckpt)?$)")
_NEWER = "of a newer version"
UNFINISHED = ".writing-"
REPLACED = ".replaced-"


class NewerVersionError(UserError):
    """A newer version of this program wrote a checkpoint."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to read weights from: prefix of TensorFlow's files, and content of checkpoint.json, if any."""

    weights: Path
    description: Optional[Dict[str, Any]]

    @property
    def folder(self) -> Path:
        return self.weights.parent

    @property
    def vocabulary(self) -> Optional[Path]:
        """Path of the vocabulary that the weights were trained with; None if the checkpoint has none."""
        path = self.folder / VOCABULARY
        return path if self.description is not None and VOCABULARY in self.description["files"] else None


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def parse_step(checkpoint: Path) -> int:
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, checkpoint
    return int(match.group(1))


def step_folders(folder: Path) -> List[Path]:
    """Return all checkpoints in a folder, intact or damaged, sorted by step."""
    return sorted((path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)), key=parse_step)


def best_step(folder: Path) -> Optional[int]:
    """Return the step of the best checkpoint in a folder of checkpoints; None if the run recorded none."""
    try:
        step = json.loads((folder / BEST).read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def description_as_json(description: Dict[str, Any]) -> str:
    """Return the text of checkpoint.json, including a checksum of its content."""
    content = {"format": FORMAT, "version": VERSION, **description}
    return json.dumps({**content, "sha256": json_digest(content)}, indent=2) + "\n"


def find_checkpoint(path: Path, key: str = "pretrained_ckpt_path") -> Checkpoint:
    """Find the checkpoint of a run's folder (see :func:`newest`), of its own folder, or of one of its files."""
    if path.is_dir():
        if (path / DESCRIPTION).is_file():
            problem = damage(path)
            if problem:
                raise UserError(f"{key}: {path} is damaged ({problem}); name another checkpoint")
            return read_checkpoint(path)
        return newest(path, key)
    prefix = path.with_suffix("") if path.suffix == ".index" else path
    if Path(f"{prefix}.index").is_file():
        if prefix.name == WEIGHTS and (prefix.parent / DESCRIPTION).is_file():
            return find_checkpoint(prefix.parent, key)
        return Checkpoint(prefix, None)
    raise UserError(f"{key}: there is no checkpoint at {path}; give a folder or a file that exists")


def newest(folder: Path, key: str) -> Checkpoint:
    """Return the best checkpoint of a run or checkpoints folder, or the newest intact one; warn of damaged ones."""
    inner = folder / "checkpoints"
    folder = inner if inner.is_dir() else folder
    best = best_step(folder)
    if best is not None and not (folder / folder_name(best)).exists():
        logger.warning("the best checkpoint, %s, is missing; using the newest one", folder / folder_name(best))
    problems = []
    for candidate in sorted(
        step_folders(folder), key=lambda path: (parse_step(path) == best, parse_step(path)), reverse=True
    ):
        problem = damage(candidate)
        if problem is None:
            return read_checkpoint(candidate)
        problems.append(f"{candidate.name}: {problem}")
        logger.warning("checkpoint %s is damaged (%s); trying the one before it", candidate, problem)
    plain = newest_tensorflow(folder, key)
    if plain is None:
        reason = f" ({problems[0]})" if problems else ""
        raise UserError(f"{key}: {folder} has no intact checkpoint{reason}; name a folder that has one")
    return Checkpoint(plain, None)


def newest_tensorflow(folder: Path, key: str) -> Optional[Path]:
    """Return the prefix of the newest plain TensorFlow checkpoint in a folder; None if there is none.

    TensorFlow's file ``checkpoint`` names it; otherwise its name has the highest step, as copies have other times.
    """
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index") if path.is_file())
    named = _named_by_tensorflow(folder)
    if named in prefixes or len(prefixes) < 2:
        return named if named in prefixes else next(iter(prefixes), None)
    steps = {prefix: _LAST_NUMBER.search(prefix.name) for prefix in prefixes}
    numbers = {int(step.group()): prefix for prefix, step in steps.items() if step is not None}
    if len(numbers) < len(prefixes):
        names = " and ".join(prefix.name for prefix in prefixes[:2])
        raise UserError(f"{key}: {folder} has several checkpoints ({names}), and no order of them; name one")
    return numbers[max(numbers)]


def _named_by_tensorflow(folder: Path) -> Optional[Path]:
    """Return the prefix that TensorFlow's file ``checkpoint`` calls the newest, in this folder."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named = _NEWEST.search((folder / "checkpoint").read_text(encoding="utf-8"))
        return folder / Path(named.group(1)).name if named else None
    return None


def damage(checkpoint: Path) -> Optional[str]:
    """Return the problem of a checkpoint folder, or None; that of a newer program is a ``NewerVersionError``."""
    try:
        description = read_description(checkpoint)
    except NewerVersionError:
        raise
    except UserError as error:
        return str(error)
    if _NAME.fullmatch(checkpoint.name) and parse_step(checkpoint) != description["step"]:
        return f"{DESCRIPTION} is that of step {description['step']}"
    for name, checksum in description["files"].items():
        try:
            if sha256(checkpoint / name) != checksum:
                return f"{name} does not have the SHA-256 in {DESCRIPTION}"
        except (OSError, ValueError) as error:  # ValueError: not a possible file name
            return f"{name}: {getattr(error, 'strerror', None) or error}"
    return None


def read_description(checkpoint: Path) -> Dict[str, Any]:
    """Return the content of checkpoint.json; see :func:`damage` for the errors."""
    path = checkpoint / DESCRIPTION
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        problem = _format_problem(description)
    except (OSError, ValueError, RecursionError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    else:
        if problem == _NEWER:
            raise NewerVersionError(f"{path} was written by a newer version of this program; update the program")
    if problem:
        raise UserError(f"{path} cannot be read ({problem}); name another checkpoint")
    return description


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return a checkpoint of this project, given its folder; see :func:`damage` for the errors."""
    return Checkpoint(folder / WEIGHTS, read_description(folder))


def run_of(checkpoint: Path) -> Optional[str]:
    """Return the id of the run that wrote a checkpoint; None if it is damaged."""
    with contextlib.suppress(UserError):
        return read_description(checkpoint).get("run")
    return None


def _format_problem(description: Any) -> Optional[str]:
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        return f"format is not {FORMAT}"
    version = description.get("version")
    if version != VERSION:
        return _NEWER if isinstance(version, int) and version > VERSION else "its version"
    if description.get("sha256") != json_digest({key: value for key, value in description.items() if key != "sha256"}):
        return "it does not have its own recorded SHA-256"
    files = description.get("files")
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        return "its list of files"
    if not isinstance(description.get("step"), int):
        return "its step"
    for name, kind in (("architecture", dict), ("config", dict), ("labels", list)):
        if not isinstance(description.get(name, kind()), kind):
            return f"its {name}"
    return None if f"{WEIGHTS}.index" in files else "it lists no weights"


def set_aside(checkpoint: Path, reason: str) -> Path:
    """Rename a checkpoint to ``reason``-…, which is kept but never used again, and return its new path."""
    renamed = checkpoint.with_name(f"{reason}-{checkpoint.name}")
    number = 1
    while renamed.exists():
        number += 1
        renamed = checkpoint.with_name(f"{reason}-{checkpoint.name}-{number}")
    try:
        os.replace(checkpoint, renamed)
        flush_to_disk(renamed.parent)
    except OSError as error:
        raise UserError(f"{checkpoint}: cannot be renamed ({error.strerror}); check its permissions") from error
    return renamed


def clear_unfinished(folder: Path) -> None:
    """Remove the temporary files of a killed writer, and restore a checkpoint that was being replaced.

    Only the run that has the folder's lock may call this.
    """
    for path in folder.glob(f"{REPLACED}step-*"):
        final = folder / path.name[len(REPLACED) :]
        if not final.exists():
            with contextlib.suppress(OSError):
                os.replace(path, final)
    for path in [*folder.glob(f"{UNFINISHED}*"), *folder.glob(f"{REPLACED}*")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_to_disk(path: Path) -> None:
    """Flush a file, or a folder where the file system can: shared folders of some kinds refuse that as invalid."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
