"""Weights & Biases, where the user asks for it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from keras_extensions.callbacks.reporting import Listener, Period
from utilities.errors import UserError


class WandbRun(Listener):
    """Sends every period to W&B.

    Without a login, ``WANDB_MODE=offline`` keeps the run in its folder for ``wandb sync``.

    Args:
        folder: the run's folder, where W&B keeps its files.
        name: of the run.
        config: the resolved config.
        project, entity, tags: as in the config; None leaves them to W&B.

    Raises:
        UserError: the package is not installed.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        config: Dict[str, Any],
        project: Optional[str] = None,
        entity: Optional[str] = None,
        tags: Optional[Sequence[str]] = None,
    ) -> None:
        try:
            self._wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise UserError("enable_wandb is true, but wandb is not installed; run: pip install wandb") from error
        self._settings = {
            "dir": str(folder), "name": name, "config": config, "project": project, "entity": entity,
            "tags": None if tags is None else list(tags),
        }  # fmt: skip
        self._run: Any = None

    def begin(self, first_step: int, total_steps: int) -> None:
        """Starts the run."""
        self._run = self._wandb.init(**self._settings)

    def period(self, period: Period) -> None:
        """Logs the period's numbers."""
        values = {**period.metrics, "throughput": period.throughput, "samples": period.samples}
        if period.learning_rate is not None:
            values["learning_rate"] = period.learning_rate
        self._run.log(values, step=period.step)

    def end(self) -> None:
        """Ends the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None
