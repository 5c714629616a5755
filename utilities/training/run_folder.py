"""A run's own folder, and the files that describe the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

from utilities.config.loading import LoadedConfig
from utilities.environment import environment_facts
from utilities.errors import UserError
from utilities.secrets import mask_value


class RunFolder:
    """``output_dir/name``, or ``output_dir/name-2`` … where that holds an earlier run."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, output_dir: str, name: str) -> RunFolder:
        """Make a folder that no other run has.

        Raises:
            UserError: the folder cannot be made.
        """
        attempt = 1
        while True:
            path = Path(output_dir) / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                path.mkdir(parents=True)
                return cls(path)
            except FileExistsError:
                attempt += 1
            except OSError as error:
                problem = f"output_dir: cannot make {path} ({error.strerror})"
                raise UserError(f"{problem}; name a folder to write to") from error

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go unless ``save_ckpt_path`` says otherwise."""
        return self.path / "checkpoints"

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        (self.path / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def describe(self, loaded: LoadedConfig, derived: Dict[str, Any], dataset: Dict[str, Any]) -> None:
        """Write what was asked for, without its secrets, on what machine, and on which data."""
        config = mask_value(loaded.config.model_dump(mode="json", exclude={"extends"}))
        self.write("resolved_config.json", {"config": config, "origins": loaded.origins, "derived": derived})
        self.write("environment.json", environment_facts())
        self.write("dataset.json", dataset)
