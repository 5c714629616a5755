"""What the chief of several processes does for all, and what the others leave out.

The chief, process 0, alone writes the run's folder, log, metrics and checkpoints. It decides which run it is and where
it resumes, and broadcasts that. The others need no access to the run's folder.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from pathlib import Path
from typing import Callable, Iterator, List, Optional, TypeVar

from execution.processes import Processes
from training.resume import Position
from training.run_folder import RunFolder
from utilities.secrets import MaskingFormatter

Value = TypeVar("Value")


def on_chief(processes: Processes, make: Callable[[], Value]) -> Optional[Value]:
    """Return what the chief alone makes; None in the other processes.

    Raises:
        UserError: in all processes, if ``make`` raises one.
    """
    made: List[Value] = []
    processes.decide(lambda: made.append(make()))
    return made[0] if made else None


def shared_position(processes: Processes, decide: Callable[[], Position]) -> Position:
    """Return the position that the chief decides on."""
    if processes.is_single:
        return decide()
    return Position.from_json(processes.decide(lambda: decide().as_json()))


@contextlib.contextmanager
def shared_run_folder(processes: Processes, make: Callable[[], RunFolder]) -> Iterator[RunFolder]:
    """Yield the run's folder, which the chief makes; the others get a temporary one of the same name."""
    made = on_chief(processes, make)
    name = processes.decide(lambda: made.path.name if made else "")
    if made is not None:
        yield made
        return
    with tempfile.TemporaryDirectory(prefix="replica-") as temporary:
        path = Path(temporary) / name
        path.mkdir()
        yield RunFolder(path)


@contextlib.contextmanager
def replica_log(index: int) -> Iterator[None]:
    """Within the block, log only warnings and errors, preceded by the number of this process."""
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
