"""Who is told of each logging period of a run."""

from __future__ import annotations

from typing import List

from keras_extensions.callbacks.divergence import StopOnDivergence
from keras_extensions.callbacks.metrics_file import MetricsFile
from keras_extensions.callbacks.progress import Progress
from keras_extensions.callbacks.reporting import Listener
from keras_extensions.callbacks.tensorboard import TensorBoardScalars
from keras_extensions.callbacks.wandb_run import WandbRun
from utilities.config.schema import TrainingConfig
from utilities.training.run_folder import RunFolder


def listeners_of(config: TrainingConfig, run: RunFolder) -> List[Listener]:
    """Progress, metrics.jsonl, and TensorBoard and W&B where the config asks for them.

    Last comes the one that may end the run, when the others have written what led to it.
    """
    listeners: List[Listener] = [Progress(), MetricsFile(run.path / "metrics.jsonl")]
    if config.tensorboard:
        listeners.append(TensorBoardScalars(run.path / "tensorboard"))
    if config.enable_wandb:
        settings = config.model_dump(mode="json", exclude={"extends", "about"})
        project, entity, tags = config.wandb_project_name, config.wandb_entity_name, config.wandb_tags
        listeners.append(WandbRun(run.path, run.path.name, settings, project, entity, tags))
    return [*listeners, StopOnDivergence()]
