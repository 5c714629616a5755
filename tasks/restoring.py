"""Restores the model of a checkpoint to predict with it."""

from __future__ import annotations

from typing import Any, Tuple

from checkpoints.pretrained.pretrained import Pretrained
from settings.schema import TrainingConfig
from tasks import task_class
from training.initial_weights import refuse_random_weights, resolved_architecture
from training.machine import configured_platform
from training.task import BuiltModel
from utilities.progress import waiting


def prediction_config(**settings: Any) -> TrainingConfig:
    """Return the config of a model that is restored to predict, in float32; ``settings`` are fields of it."""
    fixed = {
        "do_training": False,
        "do_validation": False,
        "enable_recomputation": False,  # of a backward pass, which does not happen
        "embedding_serialization_factor": 1,
        "execution": {"platform": "software", "precision": "float32", "xla": False},
    }
    return TrainingConfig.model_validate({**settings, **fixed})


def restore_task(start: Pretrained, name: str, config: TrainingConfig) -> Tuple[Any, BuiltModel]:
    """Return a task and its model with a checkpoint's weights, on this machine.

    Args:
        start: the checkpoint.
        name: name of its task.
        config: from :func:`prediction_config`.

    Raises:
        UserError: the checkpoint lacks weights of the model, whose predictions would be random.
    """
    with waiting("reading the model"):
        task = task_class(name)(config, resolved_architecture(config, start), start)
        built = task.build(configured_platform(config), start.set_initial_weights)
    refuse_random_weights(start, allowed=False)
    return task, built
