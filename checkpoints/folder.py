"""What a checkpoint is on disk, and which one of a folder to take.

    <checkpoints>/step-00000120/
        weights.index, weights.data-…       TensorFlow's format, one object per block
        optimizer.index, optimizer.data-…
        vocab.txt                           of the data set, where it names one
        checkpoint.json                     step, task, architecture, position in the data, seed, config, provenance,
                                            SHA-256 of every other file and of the description itself

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
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from utilities.errors import UserError

logger = logging.getLogger(__name__)

DESCRIPTION = "checkpoint.json"
WEIGHTS = "weights"
OPTIMIZER = "optimizer"
VOCABULARY = "vocab.txt"
FORMAT = "bert-checkpoint"
VERSION = 2  # 1 had no checksum of the description

_NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = ".writing-"
_REPLACED = ".replaced-"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to read weights from.

    Attributes:
        weights: prefix of the TensorFlow checkpoint of the weights.
        facts: content of checkpoint.json; None for a bare TensorFlow checkpoint.
    """

    weights: Path
    facts: Optional[Dict[str, Any]]

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return self.weights.parent

    @property
    def vocabulary(self) -> Optional[Path]:
        """The vocabulary that the weights were trained with, if it lies beside them."""
        path = self.folder / VOCABULARY
        return path if self.facts is not None and VOCABULARY in self.facts["files"] else None


def name_of(step: int) -> str:
    """The folder's name after so many updates."""
    return f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The number of updates in a checkpoint's name."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, checkpoint
    return int(match.group(1))


def step_folders(folder: Path) -> List[Path]:
    """The checkpoints of a folder, whole or damaged, by step; the newest comes last."""
    return sorted((path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)), key=step_of)


@contextlib.contextmanager
def writing(folder: Path, step: int, facts: Dict[str, Any]) -> Iterator[Path]:
    """Where to write the files of a checkpoint; on leaving, it becomes ``step-…`` at once.

    Args:
        folder: of all checkpoints of the run; made if absent.
        step: weight updates done.
        facts: goes into checkpoint.json.
    """
    final = folder / name_of(step)
    temporary = folder / f"{UNFINISHED}{final.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        (temporary / DESCRIPTION).write_text(described({"step": step, **facts, "files": files}), encoding="utf-8")
        for path in [*temporary.iterdir(), temporary]:
            flush(path)
        replaced = folder / f"{_REPLACED}{final.name}"
        if final.exists():
            os.replace(final, replaced)
        os.replace(temporary, final)
        flush(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        raise UserError(f"save_ckpt_path: cannot write {final} ({reason}); free space there or change it") from error


def described(facts: Dict[str, Any]) -> str:
    """The text of checkpoint.json, with a checksum of its content."""
    content = {"format": FORMAT, "version": VERSION, **facts}
    return json.dumps({**content, "sha256": digest_of(content)}, indent=2) + "\n"


def digest_of(content: Dict[str, Any]) -> str:
    """SHA-256 of a JSON object, whatever the order of its keys and its white space."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()


def rewrite_facts(checkpoint: Path, changes: Dict[str, Any]) -> None:
    """Change facts of a checkpoint that is there; at any moment its description is the old or the new one.

    Raises:
        UserError: the folder cannot be written to.
    """
    facts = {key: value for key, value in read_facts(checkpoint).items() if key not in ("format", "version", "sha256")}
    temporary = checkpoint.parent / f"{UNFINISHED}{checkpoint.name}.json"
    try:
        temporary.write_text(described({**facts, **changes}), encoding="utf-8")
        flush(temporary)
        os.replace(temporary, checkpoint / DESCRIPTION)
        flush(checkpoint)
    except OSError as error:
        raise UserError(f"{checkpoint}: cannot be changed ({error.strerror}); free space there") from error


def set_aside(checkpoint: Path, why: str) -> Path:
    """Rename a checkpoint that must not be used, and keep it; returns its new place.

    Raises:
        UserError: it cannot be renamed.
    """
    kept = checkpoint.with_name(f"{why}-{checkpoint.name}")
    number = 1
    while kept.exists():
        number += 1
        kept = checkpoint.with_name(f"{why}-{checkpoint.name}-{number}")
    try:
        os.replace(checkpoint, kept)
        flush(kept.parent)
    except OSError as error:
        raise UserError(f"{checkpoint}: cannot be renamed ({error.strerror}); may you write there?") from error
    return kept


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed writer left behind; a checkpoint that was being replaced comes back.

    Only for the run that alone may write here.
    """
    for path in folder.glob(f"{_REPLACED}step-*"):
        final = folder / path.name[len(_REPLACED) :]
        if not final.exists():
            with contextlib.suppress(OSError):
                os.replace(path, final)
    for path in [*folder.glob(f"{UNFINISHED}*"), *folder.glob(f"{_REPLACED}*")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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


def find_checkpoint(path: Path, key: str = "pretrained_ckpt_path") -> Checkpoint:
    """The checkpoint that a path means.

    Args:
        path: a run's folder or its folder of checkpoints (the newest whole one is taken), one checkpoint's folder, or a
            file or prefix of a TensorFlow checkpoint.
        key: config key or flag that named it, for messages.

    Raises:
        UserError: there is no checkpoint, or none that is whole.
    """
    if path.is_dir():
        if (path / DESCRIPTION).is_file():
            problem = damage(path)
            if problem:
                raise UserError(f"{key}: {path} is damaged ({problem}); name another checkpoint")
            return Checkpoint(path / WEIGHTS, read_facts(path))
        return newest(path, key)
    prefix = path.with_suffix("") if path.suffix == ".index" else path
    if Path(f"{prefix}.index").is_file():
        if prefix.name == WEIGHTS and (prefix.parent / DESCRIPTION).is_file():
            return find_checkpoint(prefix.parent, key)
        return Checkpoint(prefix, None)
    raise UserError(f"{key}: there is no checkpoint at {path}; give a folder or a file that exists")


def newest(folder: Path, key: str = "pretrained_ckpt_path") -> Checkpoint:
    """The newest whole checkpoint of a run's folder or of its folder of checkpoints; damaged ones are named."""
    inner = folder / "checkpoints"
    folder = inner if inner.is_dir() else folder
    for candidate in reversed(step_folders(folder)):
        problem = damage(candidate)
        if problem is None:
            return Checkpoint(candidate / WEIGHTS, read_facts(candidate))
        logger.warning("checkpoint %s is damaged (%s); trying the one before it", candidate, problem)
    bare = newest_tensorflow(folder)
    if bare is None:
        raise UserError(f"{key}: {folder} holds no whole checkpoint; name a folder that does")
    return Checkpoint(bare, None)


def newest_tensorflow(folder: Path) -> Optional[Path]:
    """Prefix of the newest bare TensorFlow checkpoint in a folder, by time."""
    found = (path for path in folder.glob("*.index") if path.is_file())
    indices: List[Path] = sorted(found, key=lambda path: (path.stat().st_mtime, path.name))
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
        except (OSError, ValueError) as error:  # the latter for a name that no file can have
            return f"{name}: {getattr(error, 'strerror', None) or error}"
    return None


def read_facts(checkpoint: Path) -> Dict[str, Any]:
    """The content of checkpoint.json, as it was written.

    Raises:
        UserError: it cannot be read, or was changed.
    """
    path = checkpoint / DESCRIPTION
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        problem = _problem_of(facts)
    except (OSError, ValueError, RecursionError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    if problem:
        raise UserError(f"{path} cannot be read ({problem}); name another checkpoint")
    return facts


def _problem_of(facts: Any) -> Optional[str]:
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        return f"format is not {FORMAT}"
    if facts.get("version") not in (1, VERSION):
        return "of a version that is not known here"
    if facts["version"] == VERSION:
        content = {key: value for key, value in facts.items() if key != "sha256"}
        if facts.get("sha256") != digest_of(content):
            return "it does not have its own recorded SHA-256"
    files = facts.get("files")
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        return "its list of files"
    if not isinstance(facts.get("step"), int):
        return "its step"
    return None if f"{WEIGHTS}.index" in files else "it lists no weights"
