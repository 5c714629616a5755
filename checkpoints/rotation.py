"""Which checkpoints of a run to keep, and the removal of the others."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from checkpoints.folder import UNFINISHED, flush, read_facts, step_folders
from utilities.errors import UserError

logger = logging.getLogger(__name__)


class Rotation(NamedTuple):
    """What is kept.

    Attributes:
        keep_last: so many of the newest; None: all.
        keep_every: besides, for good, the first one at or after each multiple of so many updates; None: none.
    """

    keep_last: Optional[int] = None
    keep_every: Optional[int] = None


KEEP_ALL = Rotation()


def superfluous(steps: Sequence[int], rotation: Rotation) -> List[int]:
    """The steps whose checkpoints go.

    Args:
        steps: of all checkpoints, ascending.

    Example:
        >>> superfluous([100, 200, 300, 400, 500], Rotation(keep_last=2, keep_every=200))
        [100, 300]
    """
    if rotation.keep_last is None:
        return []
    older = list(steps[: -rotation.keep_last])
    every = rotation.keep_every
    if every is None:
        return older
    before = [0, *older]
    # The first of each stretch of keep_every updates: of what was removed, none could have come before it.
    return [step for step, previous in zip(older, before) if step // every == previous // every]


def rotate(folder: Path, run: str, rotation: Rotation) -> None:
    """Remove the superfluous checkpoints of a run; those of others are left alone.

    A removal that fails is a warning: the run does not depend on it.

    Args:
        folder: of the run's checkpoints.
        run: the run's id, as in the checkpoints' facts.
    """
    own = {}
    for path in step_folders(folder):
        facts = _facts(path)
        if facts is not None and facts.get("run") == run:
            own[facts["step"]] = path
    for step in superfluous(sorted(own), rotation):
        _remove(own[step])


def _facts(path: Path) -> Optional[Dict[str, Any]]:
    try:
        return read_facts(path)
    except UserError:
        return None


def _remove(checkpoint: Path) -> None:
    """Take the name away first, so that no half of a checkpoint is ever seen."""
    doomed = checkpoint.with_name(f"{UNFINISHED}{checkpoint.name}")
    try:
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(checkpoint, doomed)
        flush(checkpoint.parent)
        shutil.rmtree(doomed)
    except OSError as error:
        logger.warning("cannot remove the old checkpoint %s (%s)", checkpoint, error.strerror)
