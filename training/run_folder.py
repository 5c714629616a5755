"""The folder of a run: the files that describe the run, and the lock that keeps other runs out."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import math
import os
import platform
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from keras_extensions.listeners.safeguards import total_loss
from reports.run_files import is_measurement, is_number
from settings.loading import LoadedConfig
from settings.schema import TrainingConfig
from utilities.environment import describe_environment, describe_start, program_version
from utilities.errors import UserError
from utilities.files import read_json_object, read_steps, write_atomically
from utilities.history import BEGIN, History
from utilities.run_names import DATASET, METRICS, RESOLVED
from utilities.secrets import mask_value

logger = logging.getLogger(__name__)

LOCK = ".lock"
RESTORE = "restore it from a copy, or begin a new run under another --name"


class RunFolder:
    """``output_dir/name``, or ``output_dir/name-2`` and so on if that contains an earlier run."""

    def __init__(self, path: Path):
        self.path = path
        self.history = History(path)

    @classmethod
    def create(cls, output_dir: str, name: str, task: Optional[str] = None) -> RunFolder:
        """Create a new folder for a run, and give the run an id."""
        path = Path(output_dir) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for attempt in itertools.count(2):
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    break
                path = Path(output_dir) / f"{name}-{attempt}"
            run = cls(path)
            run.history.add(BEGIN, 0, id=uuid.uuid4().hex, task=task, **describe_start())
        except OSError as error:
            raise UserError(f"output_dir: cannot make {path} ({error.strerror}); name a folder to write to") from error
        return run

    def same_named(self) -> List[RunFolder]:
        """Return the runs of this name, oldest first: the folder itself, and those with a number after its name."""
        paths = (self.path.with_name(f"{self.path.name}-{number}") for number in itertools.count(2))
        return [RunFolder(path) for path in itertools.takewhile(Path.is_dir, itertools.chain([self.path], paths))]

    @property
    def identity(self) -> Optional[str]:
        """The run's id, which its checkpoints contain; None if no run was begun here."""
        return next((event["id"] for event in self.history.events() if "id" in event), None)

    @property
    def task(self) -> Optional[str]:
        """The name of the run's task; None if unknown."""
        return next((event["task"] for event in self.history.events() if "task" in event), None)

    def checkpoints(self, save_ckpt_path: Optional[str] = None) -> Path:
        """Return the folder of the run's checkpoints, given the config's ``save_ckpt_path``."""
        return Path(save_ckpt_path) if save_ckpt_path else self.path / "checkpoints"

    def write(self, name: str, content: Any) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2) + "\n")

    def write_description(self, loaded: LoadedConfig, derived: Dict[str, Any], dataset: Dict[str, Any]) -> None:
        """Write the config without its secrets, the figures derived from it, the machine, and the data set."""
        config = config_for_files(loaded.config)
        content = {"version": program_version(), "config": config, "origins": loaded.origins, "derived": derived}
        self.write(RESOLVED, content)
        self.write("environment.json", describe_environment())
        self.write(DATASET, dataset)

    def recorded_config(self) -> Dict[str, Any]:
        """Return the config with which the run was last begun or resumed."""
        if self.identity is None:
            raise UserError(f"resume: {self.history.path} is missing or lacks the run's id; {RESTORE}")
        path = self.path / RESOLVED
        config = read_json_object(path, "resume: ", RESTORE).get("config")
        if not isinstance(config, dict):
            raise UserError(f"resume: {path} has no config; {RESTORE}")
        return config

    def discard_metrics_after(self, step: int) -> None:
        """Remove the lines after ``step``, which will be trained again, and incomplete ones, from metrics.jsonl."""
        path = self.path / METRICS
        if path.exists():
            kept = [record for record in self.metrics() if record["step"] <= step]
            write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))

    def evaluations(self, metric: str) -> List[Tuple[int, float]]:
        """Return step and score of each evaluation in metrics.jsonl; NaN without a score."""
        rows = [each for each in self.metrics() if "evaluation" in each]
        scores = [(row["step"], row["evaluation"].get(metric)) for row in rows]
        return [(step, score if is_number(score) else math.nan) for step, score in scores]

    def metrics(self) -> List[Dict[str, Any]]:
        """Return the intact lines of metrics.jsonl: logging periods, and evaluations while training."""
        return [row for row in read_steps(self.path / METRICS) if is_measurement(row)]

    def last_step(self) -> int:
        return max((record["step"] for record in self.metrics()), default=0)

    def losses(self, names: Sequence[str]) -> List[Tuple[int, float]]:
        """Return the number of updates, and the sum of the named losses, of each period of metrics.jsonl."""
        found, last = [], 0
        for period in (record for record in self.metrics() if "evaluation" not in record):
            numbers = {name: value for name, value in period["metrics"].items() if is_number(value)}
            loss = total_loss(numbers, names)
            if loss is not None:
                found.append((period["step"] - last, loss))
            last = period["step"]
        return found


def config_for_files(config: TrainingConfig) -> Dict[str, Any]:
    """Return a config as JSON, without its secrets and without the names of the configs that it extends."""
    return mask_value(config.model_dump(mode="json", exclude={"extends"}))


class FolderLocks(contextlib.ExitStack):
    """Keeps other runs out of folders by kernel locks on files, until the block or the process ends."""

    def lock(self, folder: Path) -> None:
        try:
            file = self.enter_context((folder / LOCK).open("a+", encoding="utf-8"))
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be written to ({error.strerror}); name a folder to write to (output_dir,"
                " save_ckpt_path)"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = " ".join(file.read(200).split()) or "another process"
            raise UserError(
                f"{folder}: another run is writing to it ({owner}); wait for it to end, or begin one with another name"
                " (--name) and save_ckpt_path"
            ) from None
        except OSError as error:
            logger.warning("%s: no lock on this file system (%s); start no second run in it", folder, error.strerror)
        with contextlib.suppress(OSError):  # the owner's name is only a convenience
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            file.flush()
