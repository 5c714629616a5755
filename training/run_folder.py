"""A run's own folder, and the files that describe the run."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from keras_extensions.callbacks.divergence import total_loss
from utilities.config.loading import LoadedConfig
from utilities.config.schema import TrainingConfig
from utilities.environment import environment_facts
from utilities.errors import UserError
from utilities.history import BEGIN, History
from utilities.secrets import mask_value

METRICS, RESOLVED = "metrics.jsonl", "resolved_config.json"


class RunFolder:
    """``output_dir/name``, or ``output_dir/name-2`` … where that holds an earlier run."""

    def __init__(self, path: Path):
        self.path = path
        self.history = History(path)

    @classmethod
    def create(cls, output_dir: str, name: str, task: Optional[str] = None) -> RunFolder:
        """Make a folder that no other run has, and give the run an id.

        Raises:
            UserError: the folder cannot be made.
        """
        attempt = 1
        while True:
            path = Path(output_dir) / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                path.mkdir(parents=True)
                run = cls(path)
                run.history.add(BEGIN, 0, id=uuid.uuid4().hex, task=task)
                return run
            except FileExistsError:
                attempt += 1
            except OSError as error:
                problem = f"output_dir: cannot make {path} ({error.strerror})"
                raise UserError(f"{problem}; name a folder to write to") from error

    @property
    def identity(self) -> Optional[str]:
        """The id that the run's checkpoints carry; None where nothing was begun."""
        return next((event["id"] for event in self.history.events() if "id" in event), None)

    @property
    def task(self) -> Optional[str]:
        """What was trained; None if unknown."""
        return next((event["task"] for event in self.history.events() if "task" in event), None)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go unless ``save_ckpt_path`` says otherwise."""
        return self.path / "checkpoints"

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        (self.path / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def describe(self, loaded: LoadedConfig, derived: Dict[str, Any], dataset: Dict[str, Any]) -> None:
        """Write what was asked for, without its secrets, on what machine, and on which data."""
        config = shown_config(loaded.config)
        self.write(RESOLVED, {"config": config, "origins": loaded.origins, "derived": derived})
        self.write("environment.json", environment_facts())
        self.write("dataset.json", dataset)

    def recorded_config(self) -> Optional[Dict[str, Any]]:
        """The config that the run was last begun or resumed with; None if it cannot be read."""
        try:
            config = json.loads((self.path / RESOLVED).read_text(encoding="utf-8"))["config"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return config if isinstance(config, dict) else None

    def forget_after(self, step: int) -> None:
        """Take the periods after ``step`` out of metrics.jsonl, and lines that a killed run left half written.

        They will be trained again. The file is replaced at once.
        """
        path = self.path / METRICS
        if not path.exists():
            return
        kept = [line for line, record in self._periods() if record["step"] <= step]
        temporary = path.with_name(f"{METRICS}.new")
        temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        os.replace(temporary, path)

    def last_step(self) -> int:
        """Updates that metrics.jsonl tells of."""
        return max((record["step"] for _, record in self._periods()), default=0)

    def losses(self, names: Sequence[str]) -> List[float]:
        """The sum of these losses in each period of metrics.jsonl."""
        sums = (total_loss(record.get("metrics") or {}, names) for _, record in self._periods())
        return [loss for loss in sums if loss is not None]

    def _periods(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Lines of metrics.jsonl that are whole, and what they say."""
        try:
            lines = (self.path / METRICS).read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                yield line, record


def shown_config(config: TrainingConfig) -> Dict[str, Any]:
    """A config as files show it: without its secrets, and without what it was merged from."""
    return mask_value(config.model_dump(mode="json", exclude={"extends"}))
