"""A listener that tracks a run with Weights & Biases (W&B).

The package is optional. Without a login the run is kept on disk for a later upload; the user is never asked to log in.
A failure after the start never ends the training; it is logged as a warning.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from keras_extensions.listeners.reporting import Evaluation, Listener, Period
from settings.schema import TrainingConfig
from training.run_folder import RunFolder
from utilities.environment import describe_environment
from utilities.errors import UserError, one_line
from utilities.secrets import mask_value

logger = logging.getLogger(__name__)

START_SECONDS = 60.0  # timeout for the server, after which the run is kept offline
FINISH_SECONDS = 900.0  # timeout for uploads at the end; the rest stays on disk for `wandb sync`
FINAL = "final"  # of the scores of the evaluation in the summary
ARTIFACT_TYPES = {"checkpoint": "model", "report": "report"}


def wandb_runs(config: TrainingConfig, run: RunFolder) -> List[Listener]:
    """Return the listener that a config asks for, or none; what W&B gets of the config has no secrets."""
    if not config.enable_wandb:
        return []
    shown = {**config.model_dump(mode="json", exclude={"extends", "about"}), "environment": describe_environment()}
    settings = {
        "name": run.path.name, "config": json.loads(json.dumps(mask_value(shown))), "tags": config.wandb_tags,
        "project": config.wandb_project_name, "entity": config.wandb_entity_name,
    }  # fmt: skip
    return [WandbRun(run.path, str(run.identity), mask_value(settings))]


class WandbRun(Listener):
    """Sends every period, the scores, the report, the checkpoints and system metrics to W&B.

    A resumed run continues the W&B run with its ``identity``. ``WANDB_MODE`` and W&B's other environment variables are
    honoured; without a login the mode is ``offline``.
    """

    def __init__(self, folder: Path, identity: str, settings: Dict[str, Any]) -> None:
        try:
            self._wandb = importlib.import_module("wandb")
        except ImportError as error:
            fix = "run: pip install wandb, or set enable_wandb to false"
            raise UserError(f"enable_wandb is true, but wandb is not installed; {fix}") from error
        self._id = identity
        self._arguments = {"dir": str(folder), "id": identity, "resume": "allow", **settings}
        self._run: Any = None
        self._ended = False
        self._step = 0  # the last one that W&B has
        self._written: List[Tuple[str, Path]] = []

    def begin(self, first_step: int, total_steps: int) -> None:
        self._start()
        if self._run is not None and first_step + 1 < self._step:  # after a rewind
            dropped = f"steps {first_step + 1} to {self._step - 1}, which are trained again"
            logger.warning("W&B keeps the first values of %s; metrics.jsonl has the last", dropped)

    def period(self, period: Period) -> None:
        self._step = max(self._step, period.step)
        self._attempt(lambda run: run.log({**period.scalars(), "samples": period.samples}, step=period.step))

    def evaluated(self, evaluation: Evaluation) -> None:
        self._start()
        self._attempt(lambda run: run.log(evaluation.scalars(), step=evaluation.step))

    def scored(self, scores: Dict[str, float]) -> None:
        """Add the scores to the W&B run's summary as ``final/…``; also in runs that only evaluate.

        The summary has the last values of the curves besides, some of the same names, which are those of training.
        """
        self._start()
        self._attempt(lambda run: run.summary.update({f"{FINAL}/{name}": value for name, value in scores.items()}))

    def wrote(self, kind: str, path: Path) -> None:
        """Remember files to upload at the end, when older checkpoints may have been removed."""
        self._written.append((kind, Path(path)))

    def close(self, completed: bool) -> None:
        """Upload the report and the checkpoints, and end the W&B run."""
        if self._run is None:
            return
        for kind, path in dict.fromkeys(self._written):
            if path.exists():
                self._attempt(lambda run, kind=kind, path=path: self._upload(run, kind, path))
        self._attempt(lambda run: run.finish(exit_code=0 if completed else 1))
        self._run, self._ended = None, True

    def _start(self) -> None:
        """Start the W&B run, offline if there is no login or the server does not answer."""
        if self._run is not None or self._ended:
            return
        wandb = self._wandb
        try:
            # W&B's own lines would break the progress bar; the log has the same information.
            wandb.setup(settings=wandb.Settings(silent=True))
            settings = wandb.Settings(
                silent=True,
                console="off",
                host="-",
                disable_git=True,  # the config has the commit; a git address may contain a password
                save_code=False,
                x_disable_meta=True,  # command line, user and host stay private
                init_timeout=START_SECONDS,
                finish_timeout=FINISH_SECONDS,
            )
            offline = not self._online()
            try:
                self._run = wandb.init(**self._arguments, mode="offline" if offline else None, settings=settings)
            except wandb.errors.CommError as error:
                logger.warning("W&B does not answer (%s): the run is kept on disk", one_line(error))
                offline = True
                self._run = wandb.init(**self._arguments, mode="offline", settings=settings)
        except (wandb.Error, TypeError, ValueError) as error:
            fix = "correct the wandb_… keys or update the package, or set enable_wandb to false"
            raise UserError(f"enable_wandb: W&B {wandb.__version__} refuses ({one_line(error)}); {fix}") from error
        if os.environ.get("WANDB_MODE") == "disabled":
            logger.info("W&B is switched off by WANDB_MODE")
        elif offline or os.environ.get("WANDB_MODE") == "offline":
            logger.info("W&B offline; to upload the run: wandb sync %s", Path(self._run.dir).parent)
        else:
            logger.info("W&B: %s", self._run.url)

    def _online(self) -> bool:
        """Return whether there is a login, or ``WANDB_MODE`` makes one unnecessary."""
        if os.environ.get("WANDB_MODE", "online") != "online":
            return True
        return bool(self._wandb.login(prompt=False, verify=False))

    def _upload(self, run: Any, kind: str, path: Path) -> None:
        artifact = self._wandb.Artifact(f"{kind}-{self._id}", type=ARTIFACT_TYPES[kind], metadata={"name": path.name})
        if path.is_dir():
            # The run folder keeps these files, so W&B need not copy them.
            artifact.add_dir(str(path), policy="immutable", skip_cache=True)
        else:
            artifact.add_file(str(path), skip_cache=True)
        run.log_artifact(artifact, aliases=["latest", re.sub(r"[^\w.-]", "_", path.name)])

    def _attempt(self, action: Any) -> None:
        """Call ``action`` with the W&B run; if that fails, tracking ends and training continues."""
        if self._run is None:
            return
        try:
            action(self._run)
        except Exception as error:  # no failure of W&B's service may end the training
            logger.warning("W&B: %s; tracking stops here, training continues", one_line(error))
            self._run, self._ended = None, True
