"""The work that only the chief of several processes does, and the checks that all processes agree.

Only the chief, process 0, writes the run's folder, log, metrics and checkpoints. It decides which run it is and where
it resumes, and broadcasts both. The others need no access to the run's folder.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

from pydantic import TypeAdapter

from execution.processes import Processes
from settings.fields import PER_PROCESS, value_at
from settings.schema import TrainingConfig, leaves
from training.resume import Position, data_name
from training.run_folder import RunFolder, config_for_files
from utilities.errors import UserError
from utilities.secrets import MaskingFormatter
from utilities.validation import different_setting

Value = TypeVar("Value")


def on_chief(processes: Processes, make: Callable[[], Value]) -> Optional[Value]:
    """Call ``make`` on the chief and return its result; return None in the other processes."""
    made: List[Value] = []
    processes.decide(lambda: made.append(make()))
    return made[0] if made else None


def shared_position(processes: Processes, decide: Callable[[], Position]) -> Position:
    if processes.is_single:
        return decide()
    adapter = TypeAdapter(Position)
    return adapter.validate_python(processes.decide(lambda: adapter.dump_python(decide(), mode="json")))


@contextlib.contextmanager
def shared_run_folder(processes: Processes, make: Callable[[], RunFolder]) -> Iterator[RunFolder]:
    """Yield the run's folder, which the chief creates; the others get a temporary one with the same name."""
    made = on_chief(processes, make)
    name = processes.decide(lambda: made.path.name if made else "")
    if made is not None:
        yield made
        return
    with tempfile.TemporaryDirectory(prefix="process-") as temporary:
        path = Path(temporary) / name
        path.mkdir()
        yield RunFolder(path)


@contextlib.contextmanager
def process_log(index: int) -> Iterator[None]:
    """Within the block, log only warnings and errors, preceded by the number of this process."""
    root = logging.getLogger()
    level, formats = root.level, [(handler, handler.formatter) for handler in root.handlers]
    for handler, _ in formats:
        handler.setFormatter(MaskingFormatter(f"process {index}: %(levelname)s %(message)s"))
    root.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, formatter in formats:
            handler.setFormatter(formatter)


def check_processes(processes: Processes, config: TrainingConfig, data: str, precision: str) -> None:
    """Check that this process starts like the chief, with the same ``data`` (checksum), so that they do not diverge."""
    if processes.is_single:
        return
    own = shared_settings(config)
    chief: Dict[str, Any] = processes.decide(lambda: {"config": own, "data": data, "precision": precision})
    with processes.together():
        different = different_setting(chief["config"], own, processes.index)
        if different is not None:
            raise UserError(different)
        if chief["precision"] != precision:
            raise UserError(
                f"execution.precision: process {processes.index} computes in {precision}, process 0 in"
                f" {chief['precision']}; name one that all machines have"
            )
        if chief["data"] != data:
            raise UserError(
                f"{data_name(config.dataset_dir)} of process {processes.index} is not the data of process 0; give"
                " all the same data set"
            )


def shared_settings(config: TrainingConfig) -> Dict[str, Any]:
    """Return the settings that all processes must share, by their names."""
    own = config_for_files(config)
    return {name: value_at(own, name) for name, leaf in leaves().items() if leaf.resume_policy is not PER_PROCESS}
